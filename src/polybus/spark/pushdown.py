"""Filters that a batch read takes over from Spark, as far as they save reading.

Only what narrows a read is kept: a partition, a span of sequence numbers or positions, a span of times, a session.
Spark filters the rows again, so a filter that is kept only roughly is still right; what is not kept here is not lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

_LARGEST = (1 << 63) - 1


@dataclass
class ValueSpan:
    """Whole numbers from `least` to `most`, both included."""

    least: int = 0
    most: int = _LARGEST

    def narrow(self, least: int, most: int) -> None:
        self.least = max(self.least, least)
        self.most = min(self.most, most)

    @property
    def whole(self) -> bool:
        return self.least == 0 and self.most == _LARGEST


@dataclass
class Pushed:
    """What is left to read after the filters."""

    partition: ValueSpan = field(default_factory=ValueSpan)
    partitions: set[int] | None = None
    sequence_number: ValueSpan = field(default_factory=ValueSpan)
    position: ValueSpan = field(default_factory=ValueSpan)
    earliest: datetime | None = None
    """Nothing before this time is wanted."""
    latest: datetime | None = None
    sessions: set[str] | None = None

    def push(self, filters: Iterable[Filter]) -> None:
        for each in filters:
            column = each.attribute[0] if len(getattr(each, "attribute", ())) == 1 else ""
            if column in ("partition", "sequence_number", "position"):
                self._number(column, each)
            elif column == "enqueued_time":
                self._time(each)
            elif column == "session_id":
                self.sessions = _common(self.sessions, each)

    def _number(self, column: str, each: Filter) -> None:
        span: ValueSpan = getattr(self, column)
        bounds = _bounds(each)
        if bounds is not None:
            span.narrow(*bounds)
        elif column == "partition" and isinstance(each, In):
            self.partitions = _common(self.partitions, each)

    def _time(self, each: Filter) -> None:
        moment = getattr(each, "value", None)
        if not isinstance(moment, datetime) or moment.tzinfo is None:
            return
        if isinstance(each, GreaterThan | GreaterThanOrEqual | EqualTo):
            self.earliest = moment if self.earliest is None else max(self.earliest, moment)
        if isinstance(each, LessThan | LessThanOrEqual | EqualTo):
            self.latest = moment if self.latest is None else min(self.latest, moment)

    def wants_partition(self, index: int) -> bool:
        listed = self.partitions is None or index in self.partitions
        return listed and self.partition.least <= index <= self.partition.most


def _bounds(each: Filter) -> tuple[int, int] | None:
    value = getattr(each, "value", None)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    if isinstance(each, EqualTo):
        return value, value
    if isinstance(each, GreaterThan):
        return value + 1, _LARGEST
    if isinstance(each, GreaterThanOrEqual):
        return value, _LARGEST
    if isinstance(each, LessThan):
        return 0, value - 1
    if isinstance(each, LessThanOrEqual):
        return 0, value
    return None


def _common(known: set[Any] | None, each: Filter) -> set[Any] | None:
    """What both the filters before and this one allow."""
    if isinstance(each, EqualTo):
        named = {each.value}
    elif isinstance(each, In):
        named = set(each.value)
    else:
        return known
    return named if known is None else known & named
