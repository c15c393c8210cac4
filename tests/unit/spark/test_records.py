"""Records taken apart side by side: the same columns as the bus makes of the same messages, one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.amqp.codec import encode
from polybus.amqp.types import Symbol, Timestamp, UInt, ULong
from polybus.errors import StoreCorrupt, StoreVersionMismatch
from polybus.message.columns import MAP, READ_COLUMNS, TIME, Row
from polybus.message.message import Message, build
from polybus.message.overlay import Overlay
from polybus.message.rendering import Marks
from polybus.partition.records import HEAD_BYTES, message_record
from polybus.spark.columns import COLUMNS, ON_REQUEST
from polybus.spark.record_columns import HEAD, RecordColumns

PARTITION = 9
EVERY = (*COLUMNS, *ON_REQUEST)
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)  # type: ignore[arg-type]
keys = st.none() | st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)  # type: ignore[arg-type]
values = texts | st.integers(-(1 << 63), (1 << 63) - 1) | st.booleans() | st.floats(allow_nan=False) | st.binary()
built = st.builds(
    lambda body, application, **fields: build(body, application=application, **fields).raw,
    st.binary(max_size=400) | st.just(b"y" * 70_000),
    st.dictionaries(st.text(st.characters(codec="ascii"), min_size=1, max_size=12), texts | values, max_size=5)
    | st.just({"DeadLetterReason": "sent again"})
    | st.just({f"property {number}": "x" for number in range(40)}),
    message_id=keys,
    session_id=keys,
    partition_key=keys,
    subject=st.none() | texts,
    correlation_id=st.none() | texts,
    content_type=st.none() | st.just("text/plain"),
    to=st.none() | texts,
    reply_to=st.none() | texts,
    reply_to_session_id=keys,
    ttl_ms=st.none() | st.integers(1, 1 << 40),
    scheduled_ms=st.none() | st.integers(1, 1 << 40),
)


def _section(code: int, value: object) -> bytes:
    return bytes((0x00, 0x53, code)) + encode(value)


ODD = [
    _section(0x75, b"one") + _section(0x75, b"two"),
    _section(0x77, "a text"),
    _section(0x77, [1, {"a": None}]),
    _section(0x76, ["a", "list"]),
    _section(0x73, [ULong(7)]) + _section(0x75, b"a number for an id"),
    _section(0x73, [UUID(int=5), b"user"]) + _section(0x75, b""),
    _section(0x73, [b"\x01\x02"]) + _section(0x75, b"bytes for an id"),
    _section(0x73, ["id", b"user", None, None, None, None, None, None, Timestamp(5)]) + _section(0x75, b"times"),
    _section(0x71, {Symbol("x"): 1}) + _section(0x72, {Symbol("x-opt-other"): "y"}) + _section(0x75, b"annotated"),
    _section(0x72, {Symbol("x-opt-partition-key"): UInt(5)}) + _section(0x75, b"a key that is none"),
    _section(0x74, {"n": None, "t": Timestamp(1)}) + _section(0x75, b"typed"),
    _section(0x75, b"with a footer") + _section(0x78, {Symbol("f"): 1}),
    b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x75\xa0\x01z",
    b"\x00\x53\x73\x45\x00\x53\x75\xa0\x00",
    b"",
]
raws = built | st.sampled_from(ODD)


def _overlay() -> bytes:
    overlay = Overlay()
    overlay.application = {"DeadLetterReason": "worn out"}
    overlay.dead_letter_source = "orders"
    return overlay.to_bytes()


class Sent:
    """A message as it lies in a log, and the row that the bus would make of it."""

    def __init__(self, raw: bytes, number: int, changed: bool, settled: bool, expires_ms: int) -> None:
        changes = _overlay() if changed else b""
        original = number % 2
        self.record = message_record(
            PARTITION << 48 | number,
            number,
            1_763_000_000_000 + number,
            expires_ms,
            number % 3,
            original,
            0,
            len(raw),
            changes,
            raw,
        )
        overlay = None
        if changed:
            overlay = Overlay()
            overlay.application, overlay.dead_letter_source = {"DeadLetterReason": "worn out"}, "orders"
        marks = Marks(PARTITION << 48 | number, 1_763_000_000_000 + number, original, number % 3, overlay=overlay)
        self.settled = settled
        self.row = Row(PARTITION, number, Message(raw, True), marks, expires_ms, "settled" if settled else "active")


def _decoded(sent: list[Sent], columns: tuple[str, ...]) -> list[dict[str, Any]]:
    arrays = [
        pa.array([each.record for each in sent], pa.binary()),
        pa.array([each.settled for each in sent]).cast(pa.uint8()),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, names=["record", "settled"])
    made = RecordColumns(batch, columns).batch()
    made.validate(full=True)
    found: list[dict[str, Any]] = made.to_pylist()
    return found


def _expected(row: Row, columns: tuple[str, ...]) -> dict[str, Any]:
    return {name: _shown(READ_COLUMNS[name][0], READ_COLUMNS[name][1]([row])[0]) for name in columns}


def _shown(kind: str, value: Any) -> Any:
    if kind == TIME:
        return None if value is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value)
    return list(value.items()) if kind == MAP else value


@given(
    st.lists(
        st.tuples(raws, st.integers(0, 9), st.booleans(), st.just(0) | st.integers(1, 1 << 41)),
        min_size=1,
        max_size=12,
    ),
    st.just(EVERY) | st.just(tuple(COLUMNS)) | st.lists(st.sampled_from(EVERY), min_size=1, unique=True).map(tuple),
)
def test_every_message_becomes_the_row_that_the_bus_would_make(
    given_messages: list[tuple[bytes, int, bool, int]], columns: tuple[str, ...]
) -> None:
    sent = [
        Sent(raw, number, luck == 0, settled, expires_ms)
        for number, (raw, luck, settled, expires_ms) in enumerate(given_messages, 1)
    ]
    assert _decoded(sent, columns) == [_expected(each.row, columns) for each in sent]


@pytest.mark.parametrize("raw", ODD)
def test_what_is_unlike_most_messages_is_right_too(raw: bytes) -> None:
    sent = [
        Sent(build(b"before").raw, 1, False, False, 0),
        Sent(raw, 2, False, True, 5),
        Sent(raw, 3, True, False, 0),
    ]
    assert _decoded(sent, EVERY) == [_expected(each.row, EVERY) for each in sent]


def test_the_head_is_the_one_that_the_bus_writes() -> None:
    assert HEAD.itemsize == HEAD_BYTES


def test_a_record_that_was_damaged_on_the_way_is_noticed() -> None:
    sent = Sent(build(b"body").raw, 1, False, False, 0)
    sent.record = sent.record[:-1] + b"\xff"
    with pytest.raises(StoreCorrupt, match="checksum"):
        _decoded([sent], EVERY)
    sent.record = sent.record[:20]
    with pytest.raises(StoreCorrupt, match="short"):
        _decoded([sent], EVERY)


def test_records_of_another_form_are_refused() -> None:
    sent = Sent(build(b"body").raw, 1, False, False, 0)
    sent.record = sent.record[:4] + b"\x02" + sent.record[5:]
    with pytest.raises(StoreVersionMismatch):
        _decoded([sent], EVERY)
