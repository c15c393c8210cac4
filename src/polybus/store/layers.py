"""What a journal holds, in memory: the youngest state of rows, as layers over the database below.

A layer is the content of one segment of the journal: for each key that was written there the last word, None where it
was deleted, and the ranges that were deleted before. Younger layers go before older ones, and all of them before the
database. Writing costs one update of a dictionary. Order is made only when somebody scans, in runs of bounded length, so
that no sort keeps the other threads waiting for long.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from itertools import islice
from typing import Final

from polybus.rows import NO_LIMIT, Row

Change = tuple[bytes, bytes | None]
Range = tuple[bytes, bytes]

_RUN: Final = 8_192
"""Keys that are sorted at once: some two milliseconds."""
_PIECE: Final = 1_024
"""Keys of one run that are looked at together."""
ROW_WEIGHT: Final = 160
"""Bytes that a row takes in memory beside its key and value: its place in the dictionary and in a run, two objects."""


class Layer:
    """The rows of one segment. A key is never taken out again: whoever follows what is new counts them."""

    __slots__ = ("_ordered", "_runs", "ranges", "rows", "weight")

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes | None] = {}
        self.ranges: list[Range] = []
        """Deleted from everything below this layer; the layer's own rows are younger."""
        self.weight = 0
        """Bytes of memory, at most."""
        self._runs: list[list[bytes]] = []
        self._ordered = 0

    def apply(self, ranges: list[Range], ops: list[Change], size: int) -> None:
        """Takes a batch in, whose keys and values are `size` bytes."""
        for start, end in ranges:
            if start < end:
                self._cover(start, end)
        self.rows.update(ops)
        self.weight += size + ROW_WEIGHT * (len(ops) + len(ranges))

    def _cover(self, start: bytes, end: bytes) -> None:
        for run in self.runs():
            for key in run[bisect_left(run, start) : bisect_left(run, end)]:
                self.rows[key] = None
        self.ranges.append((start, end))

    def covers(self, key: bytes) -> bool:
        return any(start <= key < end for start, end in self.ranges)

    def runs(self) -> list[list[bytes]]:
        """The keys in sorted lists."""
        rows = self.rows
        fresh = len(rows) - self._ordered
        if fresh:
            new = list(islice(reversed(rows), fresh))
            for at in range(0, fresh, _RUN):
                self._add(new[at : at + _RUN])
                if fresh > _RUN:
                    time.sleep(0)  # others may go on
            self._ordered += fresh
        return self._runs

    def _add(self, keys: list[bytes]) -> None:
        if self._runs and len(self._runs[-1]) + len(keys) <= _RUN:
            run = self._runs[-1]
            run += keys
            run.sort()
        else:
            keys.sort()
            self._runs.append(keys)


def ranges_of(layers: list[Layer]) -> list[Range]:
    """What is deleted from the database below."""
    return [each for layer in layers for each in layer.ranges]


def look_up(layers: list[Layer], key: bytes) -> tuple[bool, bytes | None]:
    """Whether the layers say what this key's row is, or that there is none; and the youngest value."""
    for layer in layers:
        rows = layer.rows
        if key in rows:
            return True, rows[key]
        if layer.ranges and layer.covers(key):
            return True, None
    return False, None


def changes_in(layers: list[Layer], start: bytes, end: bytes, limit: int, max_bytes: int = NO_LIMIT) -> list[Change]:
    """The youngest word on each key with start <= key < end, in order, until there are `limit` rows or more than
    `max_bytes` among them: whoever has the same limits needs none of what follows."""
    found: list[Change] = []
    piece = min(max(limit, 16), _PIECE)
    while start < end:
        bound = end
        keys: set[bytes] = set()
        for layer in layers:
            for run in layer.runs():
                at = bisect_left(run, start)
                some = run[at : at + piece]
                if not some:
                    continue
                if len(some) == piece and some[-1] < bound:
                    bound = some[-1] + b"\0"  # what the other runs have after it comes in the next turn
                keys.update(some)
        for key in sorted(keys):
            if key >= bound:
                break
            _, value = look_up(layers, key)
            found.append((key, value))
            if value is not None:
                limit -= 1
                max_bytes -= len(key) + len(value)
                if limit <= 0 or max_bytes < 0:
                    return found
        start = bound
    return found


def overlaid(rows: list[Row], changes: list[Change], start: int, end: int) -> list[Row]:
    """The rows of the database with these changes made."""
    mixed: dict[bytes, bytes | None] = dict(rows)
    mixed.update(changes[start:end])
    return [(key, value) for key, value in sorted(mixed.items()) if value is not None]


def unsuperseded(changes: list[Change], younger: list[Layer]) -> list[Change]:
    """Those of an old layer's changes that no younger layer has a word on, in order."""
    for layer in younger:
        rows = layer.rows
        if rows:
            changes = [change for change in changes if change[0] not in rows]
    changes.sort()
    return changes
