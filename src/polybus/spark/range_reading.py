"""Messages of a range or of a browse, as the Arrow batches that Spark takes.

A read of the bus ends with a summary; one that breaks off has none, and is taken up again after the last message that
arrived. Positions are dense, so what did not come is known. Some never had anything to give: what was settled before
the cursor began. What the cursor should have held and does not is lost, and that is said loudly.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from polybus.errors import CursorTruncated, ServerBusy
from polybus.limits import BULK_RANGES
from polybus.spark.bus import BusClient
from polybus.spark.columns import arrow_schema
from polybus.spark.planning import Range
from polybus.spark.record_columns import RecordColumns
from polybus.spark.transport import Intake, Query
from polybus.spark.walking import Numbers

END_KEY: Final = b"polybus.end"
Gap = tuple[int, int]
"""Positions with nothing at them, both ends included."""


class ReadProgress:
    """One range: how far it has been read, and at which positions nothing was."""

    def __init__(self, wanted: Range) -> None:
        self.range = wanted
        self.next = wanted.first
        self.missing: list[Gap] = []

    @property
    def done(self) -> bool:
        return self.next > self.range.last

    @property
    def left(self) -> Range:
        return Range(self.range.partition, self.next, self.range.last)

    def read(self, positions: Numbers) -> None:
        """Takes note of messages that came: positions are dense, so what is left out is missing."""
        self.complete_to(int(positions[0]) - 1)
        for place in np.nonzero(np.diff(positions) != 1)[0].tolist():
            self._miss(int(positions[place]) + 1, int(positions[place + 1]) - 1)
        self.next = int(positions[-1]) + 1

    def complete_to(self, position: int) -> None:
        """Nothing more comes up to this position."""
        self._miss(self.next, position)
        self.next = max(self.next, position + 1)

    def _miss(self, first: int, last: int) -> None:
        if first <= last:
            self.missing.append((first, last))


class RangesRead:
    """Ranges, one after the other, each from its first position to its last, however often the bus goes away."""

    def __init__(
        self,
        bus: BusClient,
        columns: tuple[str, ...],
        wanted: list[Range],
        entity_id: str | None,
        *,
        settled: bool = True,
    ) -> None:
        """Without `settled` the messages are left out that are only kept for somebody's cursor."""
        self._bus = bus
        self._columns = columns
        self._entity_id = entity_id
        self._settled = settled
        self.ranges = [ReadProgress(each) for each in wanted]

    def batches(self) -> Iterator[Any]:
        patience = self._bus.patience()
        while left := [each for each in self.ranges if not each.done]:
            before = [each.next for each in left]
            try:
                yield from self._attempt(left[:BULK_RANGES])
            except (OSError, http.client.HTTPException, pa.ArrowException, ServerBusy):
                self._bus.close()
                if [each.next for each in left] != before:
                    patience.renew()
                if not patience.wait():
                    raise

    def _attempt(self, left: list[ReadProgress]) -> Iterator[Any]:
        """What one request gives; it ends in the middle where the connection does."""
        asked = [each.left for each in left]
        response = self._bus.repeat(lambda: self._bus.open_records(asked, self._entity_id))
        end: dict[str, Any] | None = None
        for batch, told in _parts(Intake(response)):
            end = told
            if batch.num_rows:
                records = RecordColumns(batch, self._columns)
                rows = records.batch() if self._settled else records.present(records.batch())
                self._note(records, left)
                if rows.num_rows:
                    yield rows
        if end is None:
            raise ServerBusy(f"A read of '{self._bus.entity}' broke off.")
        for each, ended in zip(left, end["ranges"], strict=False):
            each.complete_to(ended["complete_to"])
        short = next((each for each in left if not each.done), None)
        if short is not None:
            raise ServerBusy(
                f"Partition {short.range.partition} could be read only up to position {short.next - 1} of"
                f" {short.range.last}: {end.get('error') or 'there is no more'}"
            )

    def _note(self, records: RecordColumns, left: list[ReadProgress]) -> None:
        """Finds the ranges that rows belong to: they come range by range, in the order in which they were asked."""
        partitions, positions = records.partitions, records.positions
        cuts = np.nonzero((np.diff(partitions) != 0) | (np.diff(positions) < 0))[0] + 1
        for part in np.split(np.arange(len(positions)), cuts):
            self._note_run(int(partitions[part[0]]), positions[part], left)

    def _note_run(self, partition: int, positions: Numbers, left: list[ReadProgress]) -> None:
        """Neighbouring ranges of one partition may follow each other without a cut."""
        for each in left:
            if each.range.partition != partition or each.done:
                continue
            inside = positions[(positions >= each.next) & (positions <= each.range.last)]
            if len(inside):
                each.read(inside)


def browse(bus: BusClient, columns: tuple[str, ...], query: Query) -> Iterator[Any]:
    """What is there now, in the states that the query names; partitions that are out are an error."""
    schema = arrow_schema(columns)
    response = bus.repeat(lambda: bus.open_browse({**query, "columns": ",".join(columns)}))
    end: dict[str, Any] | None = None
    for batch, told in _parts(response):
        end = told
        if batch.num_rows:
            yield _fitted(batch, schema)
    if end is None or "error" in end or end["unreachable"]:
        why = "it broke off" if end is None else end.get("error") or f"partitions {end['unreachable']} are out"
        raise ServerBusy(f"Browsing '{bus.entity}' did not come to its end: {why}.")


def _parts(response: Any) -> Iterator[tuple[Any, dict[str, Any] | None]]:
    """The batches of a stream, and with the last one its summary."""
    with pa.ipc.open_stream(response) as reader:
        while True:
            try:
                batch, metadata = reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                break
            told = None if metadata is None else metadata.get(END_KEY)
            yield batch, None if told is None else json.loads(told)
    response.read()


def _fitted(batch: Any, schema: Any) -> Any:
    """The batch with exactly the columns that Spark expects."""
    if batch.schema.equals(schema):
        return batch
    return pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)


def losses(missing: list[Gap], lost_to: int) -> list[Gap]:
    """Of positions with nothing at them, those that a cursor should have kept: up to where it was cut off."""
    return [(first, min(last, lost_to)) for first, last in missing if first <= lost_to]


def report_losses(wanted: Range, lost: list[Gap], entity: str, fail: bool, warn: Callable[[str], None]) -> None:
    """Raises, or warns where the user has said that losses are no failure."""
    count = sum(last - first + 1 for first, last in lost)
    if not count:
        return
    shown = ", ".join(f"{first}-{last}" for first, last in lost[:5])
    text = (
        f"{count} messages of '{entity}', partition {wanted.partition}, positions {shown}, are no longer there: the"
        " cursor lagged over its limit, or the checkpoint is older than the cursor."
    )
    if fail:
        raise DataLoss(f"{text} With failOnDataLoss=false the query goes on without them.")
    warn(text)


class DataLoss(CursorTruncated):
    """Messages that a query had not read are gone."""
