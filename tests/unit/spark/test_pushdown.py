"""Filters narrow a read and never widen or wrongly close it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from polybus.spark.pushdown import Pushed

NOON, LATER = datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, tzinfo=UTC)


def _pushed(*filters: Filter) -> Pushed:
    pushed = Pushed()
    pushed.push(filters)
    return pushed


@pytest.mark.parametrize(
    ("filters", "least", "most"),
    [
        ([EqualTo(("sequence_number",), 5)], 5, 5),
        ([GreaterThan(("sequence_number",), 5)], 6, None),
        ([GreaterThanOrEqual(("sequence_number",), 5), LessThan(("sequence_number",), 9)], 5, 8),
        ([LessThanOrEqual(("sequence_number",), 9)], 0, 9),
        ([Not(EqualTo(("sequence_number",), 5))], 0, None),
        ([EqualTo(("properties", "sequence_number"), 5)], 0, None),
    ],
)
def test_numbers_become_spans(filters: list[Filter], least: int, most: int | None) -> None:
    span = _pushed(*filters).sequence_number
    assert (span.least, span.most) == (least, (1 << 63) - 1 if most is None else most)


def test_partitions_may_be_listed() -> None:
    pushed = _pushed(In(("partition",), (1, 3)), GreaterThan(("partition",), 1))
    assert [index for index in range(5) if pushed.wants_partition(index)] == [3]


def test_sessions_are_those_that_all_filters_allow() -> None:
    assert _pushed(In(("session_id",), ("a", "b")), EqualTo(("session_id",), "b")).sessions == {"b"}
    assert _pushed(StringStartsWith(("session_id",), "a")).sessions is None


def test_times_keep_the_narrowest_span() -> None:
    pushed = _pushed(GreaterThan(("enqueued_time",), NOON), GreaterThanOrEqual(("enqueued_time",), LATER))
    assert (pushed.earliest, pushed.latest) == (LATER, None)
    assert _pushed(LessThan(("enqueued_time",), LATER), EqualTo(("enqueued_time",), NOON)).latest == NOON
