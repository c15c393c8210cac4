"""Ranges as they come over the wire: taken up again where they broke off, and losses told from gaps."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from polybus.errors import ServerBusy
from polybus.limits import SPARK_INTAKE_BYTES
from polybus.message.message import build
from polybus.partition.records import message_record
from polybus.spark.planning import Range
from polybus.spark.range_reading import END_KEY, DataLoss, RangesRead, losses, report_losses
from polybus.spark.transport import Patience

COLUMNS = ("partition", "position")


class Answers:
    """A bus that gives prepared streams, and remembers what it was asked."""

    entity = "orders"

    def __init__(self, *streams: bytes, seconds: float = 5) -> None:
        self._streams = list(streams)
        self._seconds = seconds
        self.asked: list[list[Range]] = []

    def open_records(self, ranges: list[Range], entity_id: str | None) -> io.BytesIO:
        assert entity_id == "7-1"
        self.asked.append(ranges)
        return io.BytesIO(self._streams.pop(0))

    def patience(self) -> Patience:
        return Patience(self._seconds)

    def repeat(self, work: Callable[[], Any]) -> Any:
        return work()

    def close(self) -> None: ...


def _stream(rows: list[tuple[int, int]], end: dict[str, object] | None) -> bytes:
    """An answer with messages of these partitions and positions."""
    sink = pa.BufferOutputStream()
    schema = pa.schema([("record", pa.binary()), ("settled", pa.uint8())])
    raw = build(b"x", message_id="1").raw
    records = [message_record(p << 48 | at, at, 1, 0, 0, 0, 0, len(raw), b"", raw) for p, at in rows]
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch([records, [0] * len(rows)], schema=schema))
        if end is not None:
            empty = pa.record_batch([[], []], schema=schema)
            writer.write_batch(empty, custom_metadata={END_KEY: json.dumps(end).encode()})
    return bytes(sink.getvalue())


def _end(*complete_to: int, **more: str) -> dict[str, object]:
    return {"ranges": [{"partition": 3, "complete_to": position} for position in complete_to], **more}


def _read(bus: Answers, *ranges: Range) -> tuple[list[tuple[int, int]], RangesRead]:
    reading = RangesRead(bus, COLUMNS, list(ranges), "7-1")  # type: ignore[arg-type]
    rows = [tuple(row.values()) for batch in reading.batches() for row in batch.to_pylist()]
    return rows, reading


def test_a_whole_answer_is_taken_as_it_is() -> None:
    bus = Answers(_stream([(3, 1), (3, 2), (3, 4)], _end(4)))
    rows, reading = _read(bus, Range(3, 1, 4))
    assert rows == [(3, 1), (3, 2), (3, 4)]
    assert reading.ranges[0].missing == [(3, 3)]
    assert bus.asked == [[Range(3, 1, 4)]]


def test_several_ranges_come_in_one_answer_and_each_knows_its_gaps() -> None:
    came = [(3, 2), (3, 3), (3, 4), (3, 5), (4, 7), (4, 9), (3, 1)]
    bus = Answers(_stream(came, _end(4, 6, 9, 1)))
    rows, reading = _read(bus, Range(3, 2, 4), Range(3, 5, 6), Range(4, 6, 9), Range(3, 1, 1))
    assert rows == came
    assert [each.missing for each in reading.ranges] == [[], [(6, 6)], [(6, 6), (8, 8)], []]


def test_an_answer_that_breaks_off_is_taken_up_after_its_last_message() -> None:
    bus = Answers(_stream([(3, 1), (3, 3)], None), _stream([(3, 4), (4, 1)], _end(4, 1)))
    rows, reading = _read(bus, Range(3, 1, 4), Range(4, 1, 1))
    assert rows == [(3, 1), (3, 3), (3, 4), (4, 1)]
    assert bus.asked[1] == [Range(3, 4, 4), Range(4, 1, 1)]
    assert reading.ranges[0].missing == [(2, 2)]


def test_bytes_that_stop_in_the_middle_are_no_end() -> None:
    within_the_end = _stream([(3, 1), (3, 2)], _end(2))[:-20]
    bus = Answers(within_the_end, _stream([(3, 3)], _end(3)))
    assert _read(bus, Range(3, 1, 3))[0] == [(3, 1), (3, 2), (3, 3)]
    whole = [(3, 1), (3, 2), (3, 3)]
    bus = Answers(_stream(whole, None)[:-20], _stream(whole, _end(3)))
    assert _read(bus, Range(3, 1, 3))[0] == whole
    assert bus.asked == [[Range(3, 1, 3)], [Range(3, 1, 3)]]


def _large_stream(bodies: list[list[bytes]], end: dict[str, object]) -> bytes:
    """An answer of several batches, whose parts are large enough to share the reader's memory."""
    sink = pa.BufferOutputStream()
    schema = pa.schema([("record", pa.binary()), ("settled", pa.uint8())])
    position = 0
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in bodies:
            raws = [build(body, message_id=f"{len(body)}", application={"n": "x"}).raw for body in batch]
            records = []
            for raw in raws:
                position += 1
                records.append(message_record(3 << 48 | position, position, 1, 0, 0, 0, 0, len(raw), b"", raw))
            writer.write_batch(pa.record_batch([records, [0] * len(records)], schema=schema))
        empty = pa.record_batch([[], []], schema=schema)
        writer.write_batch(empty, custom_metadata={END_KEY: json.dumps(end).encode()})
    return bytes(sink.getvalue())


def test_batches_stay_as_they_are_while_the_next_ones_are_read() -> None:
    bodies = [[bytes((65 + number,)) * (SPARK_INTAKE_BYTES + size) for size in (9, 0, 4)] for number in range(3)]
    columns = ("message_id", "session_id", "properties", "body")
    reading = RangesRead(Answers(_large_stream(bodies, _end(9))), columns, [Range(3, 1, 9)], "7-1")  # type: ignore[arg-type]
    batches = list(reading.batches())
    assert [batch.column("body").to_pylist() for batch in batches] == bodies
    expected = [[str(len(body)) for body in batch] for batch in bodies]
    assert [batch.column("message_id").to_pylist() for batch in batches] == expected


def test_a_large_part_that_stops_in_the_middle_is_no_part() -> None:
    stream = _large_stream([[b"a" * SPARK_INTAKE_BYTES], [b"b" * SPARK_INTAKE_BYTES]], _end(2))
    bus = Answers(stream[: len(stream) // 2], stream[: len(stream) * 3 // 4], seconds=0)
    with pytest.raises(pa.ArrowInvalid):
        _read(bus, Range(3, 1, 2))
    assert bus.asked == [[Range(3, 1, 2)]]


def test_a_store_that_is_away_is_waited_for_and_then_an_error() -> None:
    stuck = _stream([], _end(error="the store is away"))
    assert _read(Answers(stuck, _stream([(3, 1)], _end(1))), Range(3, 1, 1))[0] == [(3, 1)]
    with pytest.raises(ServerBusy, match="the store is away"):
        _read(Answers(stuck, seconds=0), Range(3, 1, 4))


def test_an_end_before_the_journaled_one_is_never_passed_over() -> None:
    with pytest.raises(ServerBusy, match="position 1 of 9"):
        _read(Answers(_stream([(3, 1)], _end(1)), seconds=0), Range(3, 1, 9))


def test_only_what_the_cursor_should_have_held_is_lost() -> None:
    missing = [(2, 4), (8, 9), (20, 30)]
    assert losses(missing, 0) == []
    assert losses(missing, 8) == [(2, 4), (8, 8)]
    assert losses(missing, 100) == missing


def test_losses_raise_or_warn() -> None:
    told: list[str] = []
    report_losses(Range(3, 1, 9), [], "orders", True, told.append)
    assert told == []
    with pytest.raises(DataLoss, match="4 messages of 'orders', partition 3, positions 2-4, 8-8"):
        report_losses(Range(3, 1, 9), [(2, 4), (8, 8)], "orders", True, told.append)
    report_losses(Range(3, 1, 9), [(2, 4)], "orders", False, told.append)
    assert len(told) == 1
