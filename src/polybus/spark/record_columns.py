"""Stored records to the columns that Spark takes: a task does this, so that the bus need not.

A record is a head of fixed form, the bus's changes, and the sender's bytes, which are AMQP (docs/reference/bulk.md).
Most messages are alike: sections in their order, texts for fields, one body of bytes. All rows of those are taken
apart side by side, at a tenth of the price of one by one. Whatever is different is left to `polybus.message`, with
which the bus itself makes its columns.
"""

from __future__ import annotations

from typing import Any, Final
from zlib import crc32

import numpy as np
import pyarrow as pa

from polybus.errors import StoreCorrupt, StoreVersionMismatch
from polybus.message.columns import MAP, READ_COLUMNS, TIME, Row
from polybus.message.message import Message
from polybus.message.overlay import overlay_from_bytes
from polybus.message.rendering import Marks
from polybus.spark.columns import arrow_schema
from polybus.spark.layouts import layouts_of
from polybus.spark.texts import Texts, joined, offsets_of
from polybus.spark.walking import Numbers, Octets

VERSION: Final = 1
HEAD: Final = np.dtype(
    [
        ("check", ">u4"),
        ("version", "u1"),
        ("flags", "u1"),
        ("sequence", ">i8"),
        ("position", ">i8"),
        ("enqueued", ">i8"),
        ("expires", ">i8"),
        ("deliveries", ">u4"),
        ("original", ">i8"),
        ("body", ">i8"),
        ("size", ">i8"),
        ("changes", ">u4"),
    ]
)
_CHECK_BYTES: Final = 4
_PARTITION_SHIFT: Final = 48
"""A sequence number's upper bits are its partition."""
_STATES: Final = ("active", "settled")
_NUMBERS: Final = {"position": "position", "sequence_number": "sequence", "delivery_count": "deliveries"}
Rows = Numbers | slice
"""Some rows by their numbers, or all of them."""
_TIMES: Final = {"enqueued_time": "enqueued", "expires_at": "expires"}


class RecordColumns:
    """Some records, taken apart as far as the columns need it."""

    def __init__(self, sent: Any, columns: tuple[str, ...]) -> None:
        records, settled = sent.column("record"), sent.column("settled")
        self._kinds = arrow_schema(columns)
        _, offsets, data = records.buffers()
        self._data: Octets = np.frombuffer(data, np.uint8)
        self._view = memoryview(data)
        bounds = np.frombuffer(offsets, np.int32)[records.offset : records.offset + len(records) + 1].astype(np.int64)
        self._start, self._end = bounds[:-1], bounds[1:]
        self._settled = np.frombuffer(settled.buffers()[1], np.uint8)[settled.offset : settled.offset + len(settled)]
        self._check()
        message_at = self._start + HEAD.itemsize + self._head["changes"]
        self._sections = layouts_of(columns).sections(self._data, message_at, self._end)

    def _check(self) -> None:
        if (self._end - self._start < HEAD.itemsize).any():
            raise StoreCorrupt("a message record is too short")
        heads = Texts(self._start, np.full(len(self._start), HEAD.itemsize)).column(self._data, pa.binary())
        self._head = np.frombuffer(heads.buffers()[2], HEAD)
        if (self._head["version"] != VERSION).any():
            raise StoreVersionMismatch(f"the bus sends records of another form than {VERSION}: install its version")
        view, starts, ends = self._view, self._start + _CHECK_BYTES, self._end.tolist()
        sums = [crc32(view[start:end]) for start, end in zip(starts.tolist(), ends, strict=True)]
        if sums != self._head["check"].tolist():
            raise StoreCorrupt("the checksum of a message record is wrong")

    @property
    def partitions(self) -> Numbers:
        numbers: Numbers = self._head["sequence"].astype(np.int64)
        return numbers >> _PARTITION_SHIFT

    @property
    def positions(self) -> Numbers:
        positions: Numbers = self._head["position"].astype(np.int64)
        return positions

    def batch(self) -> Any:
        """All rows, in their order, with exactly the columns that were asked for."""
        plain = self._sections.plain & (self._head["changes"] == 0)
        if plain.all():
            arrays = self._plain_arrays(slice(None))
        else:
            easy, hard = np.nonzero(plain)[0], np.nonzero(~plain)[0]
            order = pa.array(np.argsort(np.concatenate((easy, hard))))
            pairs = zip(self._plain_arrays(easy), self._odd_arrays(hard), strict=True)
            arrays = [pa.concat_arrays(pair).take(order) for pair in pairs]
        return pa.RecordBatch.from_arrays(arrays, schema=self._kinds)

    def present(self, batch: Any) -> Any:
        """The rows of these records that are not settled."""
        return batch.filter(pa.array(self._settled == 0)) if self._settled.any() else batch

    # Rows that are like most

    def _plain_arrays(self, rows: Rows) -> list[Any]:
        return [self._plain(field.name, field.type, rows) for field in self._kinds]

    def _plain(self, name: str, kind: Any, rows: Rows) -> Any:
        head, sections = self._head, self._sections
        if name in _NUMBERS:
            return pa.array(head[_NUMBERS[name]][rows].astype(kind.to_pandas_dtype()), kind)
        if name in _TIMES:
            return _times(head[_TIMES[name]][rows], kind)
        if name == "message_id":
            return self._ids(rows, kind)
        if name in sections.texts:
            return sections.texts[name].of(rows).column(self._data, kind)
        if name == "properties":
            return self._maps(rows, kind)
        if name == "body":
            return sections.body.of(rows).column(self._data, kind)
        if name == "partition":
            return pa.array(self.partitions[rows].astype(np.int32))
        if name == "state":
            return pa.array(np.array(_STATES)[self._settled[rows]], kind)
        # What only the bus's changes could tell, or what a plain row cannot have.
        return pa.nulls(len(head[rows]), kind)

    def _ids(self, rows: Rows, kind: Any) -> Any:
        """Message ids; a message that came without one has the number it was first given."""
        known = self._sections.texts.get("message_id") or Texts.none_of(self._start)
        texts, data = known.of(rows), self._data
        without = np.nonzero(~texts.present)[0]
        if len(without):
            head = self._head[rows][without]
            numbers = np.where(head["original"] != 0, head["original"], head["sequence"])
            more, at, length = joined([f"{number:032x}" for number in numbers.tolist()])
            texts.put(without, at + len(data), length)
            data = np.concatenate((data, more))
        return texts.column(data, kind)

    def _maps(self, rows: Rows, kind: Any) -> Any:
        counts, keys, values = self._sections.pairs.of(rows, len(self._start))
        offsets = pa.array(offsets_of(counts).astype(np.int32))
        data = self._sections.data
        columns = [texts.column(data, pa.string()) for texts in (keys, values)]
        return pa.MapArray.from_arrays(offsets, *columns, type=kind)

    # Any other row

    def _odd_arrays(self, rows: Numbers) -> list[Any]:
        found = [self._row(int(row)) for row in rows]
        return [_odd(field.name, field.type, found) for field in self._kinds]

    def _row(self, row: int) -> Row:
        head, start, end = self._head[row], int(self._start[row]), int(self._end[row])
        message_at = start + HEAD.itemsize + int(head["changes"])
        changes = bytes(self._view[start + HEAD.itemsize : message_at])
        marks = Marks(
            int(head["sequence"]),
            int(head["enqueued"]),
            int(head["original"]),
            int(head["deliveries"]),
            overlay=overlay_from_bytes(changes) if changes else None,
        )
        message = Message(bytes(self._view[message_at:end]), True)
        state = _STATES[self._settled[row]]
        partition = marks.sequence >> _PARTITION_SHIFT
        return Row(partition, int(head["position"]), message, marks, int(head["expires"]), state)


def _times(wall_ms: Any, kind: Any) -> Any:
    values = wall_ms.astype(np.int64)
    return pa.array(values * 1000, pa.int64(), mask=values == 0).cast(kind)


def _odd(name: str, kind: Any, rows: list[Row]) -> Any:
    form, values = READ_COLUMNS[name]
    found: list[Any] = values(rows)
    if form == TIME:
        return pa.array([None if value is None else value * 1000 for value in found], pa.int64()).cast(kind)
    if form == MAP:
        return pa.array([list(value.items()) for value in found], kind)
    return pa.array(found, kind)
