"""Events in one order, each with the span of bus time in which the bus acted on it.

A *stamp* is an integer, milliseconds shifted left with an order below, so that comparing two stamps says
what is certain: one operation came after another where its `began` is above the other's `ended`. In one
history the order of recording decides inside a millisecond; between histories of several processes it does
not, and there what happens in the same millisecond counts as simultaneous. Checks compare stamps and never
raw times.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from polybus.testing.history import Event, Op, merge

_ORDER_BITS: Final = 32
_LAST: Final = (1 << _ORDER_BITS) - 1
INFINITY: Final = 1 << 120
"""Later than every stamp."""


def stamp_ms(ms: int) -> int:
    """A duration as a difference of stamps."""
    return ms << _ORDER_BITS


class Span:
    """An event on the bus's clocks.

    `began` and `ended` are stamps around the moment at which the bus acted; `wall_from_ms` and `wall_to_ms`
    are around what its wall clock can have shown then. The bus's wall clock never runs back behind what it
    has stored, so the upper bound is the highest reading so far.
    """

    __slots__ = ("began", "ended", "event", "wall_from_ms", "wall_to_ms")

    def __init__(self, event: Event, began: int, ended: int, wall_from_ms: int, wall_to_ms: int) -> None:
        self.event = event
        self.began = began
        self.ended = ended
        self.wall_from_ms = wall_from_ms
        self.wall_to_ms = wall_to_ms


class _Moves:
    """How far the bus's clocks were ahead of the recorders' at a time."""

    def __init__(self, events: Iterable[Event]) -> None:
        moves = [event for event in events if event.op == Op.CLOCK_MOVED]
        self._began = [move.began_ms for move in moves]
        self._ended = [move.ended_ms for move in moves]
        self._ahead = [(0, 0)]
        for move in moves:
            mono, wall = self._ahead[-1]
            self._ahead.append((mono + (move.moved_mono_ms or 0), wall + (move.moved_wall_ms or 0)))

    def __bool__(self) -> bool:
        return bool(self._began)

    def at_most(self, ms: int) -> tuple[int, int]:
        return self._ahead[bisect_right(self._began, ms)]

    def at_least(self, ms: int) -> tuple[int, int]:
        return self._ahead[bisect_left(self._ended, ms)]

    def after(self, count: int) -> tuple[int, int]:
        return self._ahead[count]


def timeline(histories: Sequence[Iterable[Event]]) -> list[Span]:
    """The spans of all histories, by the time they ended."""
    events = merge(histories)
    return _Layer(events, single=len(histories) == 1).spans()


class _Layer:
    """Builds the spans; `single` says that recording order is the order of things."""

    def __init__(self, events: list[Event], single: bool) -> None:
        self._events = events
        self._single = single
        self._moves = _Moves(events)
        self._moved = 0

    def spans(self) -> list[Span]:
        spans = []
        highest_ms = self._highest_walls()
        for order, event in enumerate(self._events, 1):
            if event.op == Op.CLOCK_MOVED:
                self._moved += 1
            spans.append(self._span(event, order, highest_ms[order - 1]))
        return spans

    def _highest_walls(self) -> list[int]:
        """For each event the highest reading of the bus's wall clock that may have come before."""
        highest: list[int] = []
        for event in self._events:
            wall_ms = event.wall_ms + self._moves.at_most(event.ended_ms)[1]
            highest.append(max(wall_ms, highest[-1]) if highest else wall_ms)
        if not self._single:
            for place in range(len(highest) - 2, -1, -1):
                if self._events[place].ended_ms == self._events[place + 1].ended_ms:
                    highest[place] = highest[place + 1]
        return highest

    def _span(self, event: Event, order: int, highest_ms: int) -> Span:
        (mono_from, wall_from), (mono_to, _) = self._ahead(event)
        wall_from_ms = event.wall_ms + wall_from - (event.ended_ms - event.began_ms)
        return Span(
            event,
            event.began_ms + mono_from << _ORDER_BITS | self._began_order(event, order),
            event.ended_ms + mono_to << _ORDER_BITS | (2 * order if self._single else _LAST),
            wall_from_ms,
            highest_ms,
        )

    def _began_order(self, event: Event, order: int) -> int:
        """Odd, and just above the even order of the last event that had ended before."""
        if not self._single:
            return 0
        if event.after is not None:
            return 2 * event.after + 1
        return 2 * order - 1 if event.began_ms == event.ended_ms else 0

    def _ahead(self, event: Event) -> tuple[tuple[int, int], tuple[int, int]]:
        if not self._moves:
            return (0, 0), (0, 0)
        if self._single and event.after is None and event.began_ms == event.ended_ms:
            ahead = self._moves.after(self._moved)
            return ahead, ahead
        return self._moves.at_least(event.began_ms), self._moves.at_most(event.ended_ms)


class Outages:
    """When locks of a partition ended because the bus restarted or its messaging store was fenced."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._outages = [span for span in spans if span.event.op in (Op.RESTART, Op.FENCED)]
        self._tables: dict[tuple[str, int | None, bool], _OutageTable] = {}

    def first_possible(self, entity: str, partition: int | None, since: int) -> int:
        """The stamp from which a lock taken at or after `since` may have been ended by an outage."""
        if not self._outages:
            return INFINITY
        return self._table(entity, partition, certain=False).first_possible(since)

    def certain_between(self, entity: str, partition: int | None, after: int, before: int) -> bool:
        """True where an outage certainly lies between two stamps."""
        if not self._outages:
            return False
        return self._table(entity, partition, certain=True).certain_between(after, before)

    def _table(self, entity: str, partition: int | None, certain: bool) -> _OutageTable:
        key = (entity, partition, certain)
        table = self._tables.get(key)
        if table is None:
            table = _OutageTable([o for o in self._outages if _concerns(o.event, entity, partition, certain)])
            self._tables[key] = table
        return table


def _concerns(event: Event, entity: str, partition: int | None, certain: bool) -> bool:
    if event.op == Op.RESTART:
        return True
    if event.entity not in ("", entity):
        return False
    if partition is None:
        return not certain
    return event.partitions is None or partition in event.partitions


class _OutageTable:
    def __init__(self, outages: list[Span]) -> None:
        by_end = sorted(outages, key=lambda span: span.ended)
        self._ends = [span.ended for span in by_end]
        self._first_began = _running_minimum([span.began for span in by_end])
        by_begin = sorted(outages, key=lambda span: span.began)
        self._begins = [span.began for span in by_begin]
        self._first_ended = _running_minimum([span.ended for span in by_begin])

    def first_possible(self, since: int) -> int:
        return self._first_began[bisect_left(self._ends, since)]

    def certain_between(self, after: int, before: int) -> bool:
        return self._first_ended[bisect_right(self._begins, after)] < before


def _running_minimum(stamps: list[int]) -> list[int]:
    """At each place the lowest stamp from there to the end, and INFINITY behind the last."""
    lowest = [INFINITY]
    for stamp in reversed(stamps):
        lowest.append(min(stamp, lowest[-1]))
    lowest.reverse()
    return lowest
