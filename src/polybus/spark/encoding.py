"""Rows to AMQP messages, many at once: what a task does, so that the bus need not (AMQP 1.0 §1.6, §3.2).

A message is put together from columns of bytes, piece by piece, by Arrow's own joins. The bytes are those that the
bus would write for the same row; a test holds the two against each other. Columns of types that need more than
joining (times, numbers as properties) are left to the bus: then there is no encoding here.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from polybus.spark.columns import WRITTEN

_NULL: Final = b"\x40"
_TEXT, _SYMBOL, _BYTES = 0xA1, 0xA3, 0xA0
_LIST, _MAP = 0xC0, 0xC1
_LONG: Final = 0x10
"""What a constructor has more where a length takes four bytes."""
_PARTITION_KEY: Final = b"\xa3\x13x-opt-partition-key"
_FIELDS: Final = (
    "message_id",
    None,
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    None,
    None,
    None,
    "session_id",
    None,
    "reply_to_session_id",
)
"""The columns that are fields of the properties section, in their places."""
_LEFT_TO_THE_BUS: Final = ("time_to_live", "scheduled_enqueue_time")


def encoded_messages(batch: Any) -> Any | None:
    """A column of whole messages; None where the bus must make them."""
    names = batch.schema.names
    unknown = [name for name in names if name not in WRITTEN]
    if any(name in names for name in _LEFT_TO_THE_BUS) or ("properties" in names and unknown):
        return None
    if not all(pa.types.is_string(batch.schema.field(name).type) for name in unknown):
        return None
    application = _from_map(batch.column("properties")) if "properties" in names else _from_columns(batch, unknown)
    if application is None:
        return None
    # The body is joined only once: it is most of a message, and every join copies it.
    return _joined(_annotations(batch), _properties(batch), application, *_data(batch.column("body")))


# Sections


def _annotations(batch: Any) -> Any:
    if "partition_key" not in batch.schema.names:
        return b""
    key = batch.column("partition_key")
    section = _section(0x72, _MAP, _joined(_PARTITION_KEY, _value(key, _TEXT)), 2)
    return pc.if_else(pc.is_valid(key), section, b"") if key.null_count else section


def _properties(batch: Any) -> Any:
    columns = {name: batch.column(name) for name in _FIELDS if name in batch.schema.names}
    if not columns:
        return b""
    fields = [
        _value(columns[name], _SYMBOL if name == "content_type" else _TEXT) if name in columns else _NULL
        for name in _FIELDS
    ]
    section = _section(0x73, _LIST, _joined(*fields), len(_FIELDS))
    if not all(column.null_count for column in columns.values()):
        return section
    given = pc.is_valid(next(iter(columns.values())))
    for column in columns.values():
        given = pc.or_(given, pc.is_valid(column))
    return pc.if_else(given, section, b"")


def _from_columns(batch: Any, names: list[str]) -> Any:
    """Application properties that are columns of their own; a null is no property."""
    if not names:
        return b""
    pairs, counts = [], pa.array([0] * batch.num_rows, pa.int64())
    for name in names:
        column = batch.column(name)
        given = pc.is_valid(column)
        pair = _joined(_value(pa.array([name]), _TEXT)[0].as_py(), _value(column, _TEXT))
        pairs.append(pc.if_else(given, pair, b""))
        counts = pc.add(counts, pc.multiply(pc.cast(given, pa.int64()), 2))
    section = _section(0x74, _MAP, _joined(*pairs), counts)
    return pc.if_else(pc.greater(counts, 0), section, b"")


def _from_map(column: Any) -> Any | None:
    """Application properties that are a map from text to text."""
    kind = column.type
    if not (pa.types.is_string(kind.key_type) and pa.types.is_string(kind.item_type)) or column.offset:
        return None
    keys, items = column.keys, column.items
    if items.null_count or not len(keys):
        return b"" if not len(keys) else None
    pairs = _joined(_value(keys, _TEXT), _value(items, _TEXT))
    lists = pa.ListArray.from_arrays(column.offsets, pairs)
    counts = pc.multiply(pc.cast(pc.list_value_length(lists), pa.int64()), 2)
    section = _section(0x74, _MAP, pc.binary_join(lists, b""), counts)
    return pc.if_else(pc.fill_null(pc.and_(pc.is_valid(column), pc.greater(counts, 0)), False), section, b"")


def _data(body: Any) -> list[Any]:
    if body.null_count:
        return [b"\x00\x53\x75", _value(body, _BYTES)]
    body = body.cast(pa.binary())
    return [b"\x00\x53\x75", _leads(pc.binary_length(body), _BYTES), body]


def _section(code: int, kind: int, items: Any, count: Any) -> Any:
    """A list or map with its size and count before its items."""
    sizes = pc.binary_length(items)
    most = count if isinstance(count, int) else pc.max(count).as_py() or 0
    if not len(items) or (pc.max(sizes).as_py() < 255 and most <= 255):
        head = [_octets(kind), _byte(pc.add(sizes, 1)), _octets(count) if isinstance(count, int) else _byte(count)]
    else:
        counts = pa.array([count] * len(items), pa.int64()) if isinstance(count, int) else count
        head = [pa.array([_head(kind, *each) for each in zip(sizes.to_pylist(), counts.to_pylist(), strict=True)])]
    return _joined(bytes((0x00, 0x53, code)), *head, items)


def _head(kind: int, size: int, count: int) -> bytes:
    if size < 255 and count <= 255:
        return bytes((kind, size + 1, count))
    return bytes((kind + _LONG,)) + (size + 4).to_bytes(4, "big") + count.to_bytes(4, "big")


# Values


def _value(column: Any, kind: int) -> Any:
    """Texts or bytes with their constructor and length; where there is none, null."""
    column = column.cast(pa.binary())
    if not column.null_count:
        return _joined(_leads(pc.binary_length(column), kind), column)
    lengths = pc.fill_null(pc.binary_length(column), 0)
    return pc.fill_null(_joined(_leads(lengths, kind), column), _NULL)


def _leads(lengths: Any, kind: int) -> Any:
    """Constructors with these lengths, which take one byte or four."""
    longest = pc.max(lengths).as_py() or 0
    if longest <= 255:
        return _SHORT[kind].take(lengths)
    long = _joined(_octets(kind + _LONG), _four_bytes(lengths))
    if pc.min(lengths).as_py() > 255:
        return long
    short = _SHORT[kind].take(pc.min_element_wise(lengths, 255))
    return pc.if_else(pc.greater(lengths, 255), long, short)


_BYTE: Final = pa.array([bytes((number,)) for number in range(256)], pa.binary())
_SHORT: Final = {
    kind: pa.array([bytes((kind, number)) for number in range(256)], pa.binary()) for kind in (_TEXT, _SYMBOL, _BYTES)
}
"""Constructors with a length of one byte."""


def _byte(numbers: Any) -> Any:
    """Each of these small numbers as a byte."""
    return _BYTE.take(numbers)


def _four_bytes(numbers: Any) -> Any:
    """Each of these numbers as four bytes, the greatest first."""
    data = pa.py_buffer(numbers.to_numpy(zero_copy_only=False).astype(">u4").tobytes())
    return pa.Array.from_buffers(pa.binary(4), len(numbers), [None, data]).cast(pa.binary())


def _octets(number: int) -> bytes:
    return bytes((number,))


def _joined(*parts: Any) -> Any:
    """Columns and constants behind each other, row by row; null where one of them is."""
    runs: list[Any] = []
    for part in parts:
        if isinstance(part, bytes) and runs and isinstance(runs[-1], bytes):
            runs[-1] += part  # every part costs something in every row
        else:
            runs.append(part)
    return pc.binary_join_element_wise(
        *[pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in runs],
        pa.scalar(b"", pa.binary()),
    )
