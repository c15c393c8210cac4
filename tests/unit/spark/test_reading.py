"""Ranges as they come over the wire: taken up again where they broke off, and losses told from gaps."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from polybus.errors import ServerBusy
from polybus.spark.columns import arrow_schema
from polybus.spark.planning import Range
from polybus.spark.reading import END_KEY, DataLoss, RangeRead, losses, report_losses

COLUMNS = ("position", "body")


class Answers:
    """A bus that gives prepared streams, and remembers what it was asked."""

    entity = "orders"

    def __init__(self, *streams: bytes) -> None:
        self._streams = list(streams)
        self.asked: list[dict[str, Any]] = []

    def open_range(self, query: dict[str, Any]) -> io.BytesIO:
        self.asked.append(query)
        return io.BytesIO(self._streams.pop(0))

    def repeat(self, work: Callable[[], Any]) -> Any:
        return work()

    def close(self) -> None: ...


def _stream(positions: list[int], end: dict[str, object] | None) -> bytes:
    sink = pa.BufferOutputStream()
    schema = arrow_schema(COLUMNS)
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch([positions, [b"x"] * len(positions)], schema=schema))
        if end is not None:
            empty = pa.record_batch([[], []], schema=schema)
            writer.write_batch(empty, custom_metadata={END_KEY: json.dumps(end).encode()})
    return bytes(sink.getvalue())


def _read(bus: Answers, first: int, last: int) -> tuple[list[int], RangeRead]:
    reading = RangeRead(bus, COLUMNS, Range(3, first, last), "7-1")  # type: ignore[arg-type]
    return [position for batch in reading.batches() for position in batch.column("position").to_pylist()], reading


def test_a_whole_answer_is_taken_as_it_is() -> None:
    bus = Answers(_stream([1, 2, 4], {"complete_to": 4, "missing": [[3, 3]]}))
    positions, reading = _read(bus, 1, 4)
    assert positions == [1, 2, 4]
    assert reading.missing == [(3, 3)]
    assert bus.asked[0] | {} == {
        "partition": 3,
        "last": 4,
        "columns": "position,body",
        "entity_id": "7-1",
        "first": 1,
    }


def test_an_answer_that_breaks_off_is_taken_up_after_its_last_message() -> None:
    whole = _stream([3, 4], {"complete_to": 4, "missing": []})
    cut = _stream([1, 2], None)
    bus = Answers(cut, whole)
    assert _read(bus, 1, 4)[0] == [1, 2, 3, 4]
    assert [query["first"] for query in bus.asked] == [1, 3]


def test_bytes_that_stop_in_the_middle_are_no_end() -> None:
    within_the_end = _stream([1, 2], {"complete_to": 2, "missing": []})[:-20]
    bus = Answers(within_the_end, _stream([3], {"complete_to": 3, "missing": []}))
    assert _read(bus, 1, 3)[0] == [1, 2, 3]
    within_the_rows = _stream([1, 2, 3], None)[:-20]
    bus = Answers(within_the_rows, _stream([1, 2, 3], {"complete_to": 3, "missing": []}))
    assert _read(bus, 1, 3)[0] == [1, 2, 3]
    assert [query["first"] for query in bus.asked] == [1, 1]


def test_no_progress_twice_is_an_error() -> None:
    stuck = _stream([], {"complete_to": 0, "missing": [], "error": "the store is away"})
    with pytest.raises(ServerBusy, match="the store is away"):
        _read(Answers(stuck, stuck), 1, 4)


def test_an_end_before_the_journaled_one_is_never_passed_over() -> None:
    short = _stream([1], {"complete_to": 1, "missing": []})
    none = _stream([], {"complete_to": 1, "missing": []})
    with pytest.raises(ServerBusy, match="position 1 of 9"):
        _read(Answers(short, none, none), 1, 9)


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
