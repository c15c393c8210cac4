"""Scans of the database below a journal, with the journal's changes made on the way.

An iterator shows the moment at which it was made. The upper bound is kept by RocksDB as a bare pointer into the caller's
bytes, so `end` must live as long as the iterator. Rows are taken in strides, and the journal's changes are made to each;
where there are none, which is the rule for a backlog, they are only counted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from itertools import chain, islice
from operator import itemgetter
from typing import Any

from polybus.limits import ROCKS_STRIDE
from polybus.rows import Row
from polybus.store.layers import Change, Range, overlaid

_key_of = itemgetter(0)


class Below(ABC):
    """Rows of the database, from one place on, a few at a time."""

    @abstractmethod
    def take(self, count: int) -> list[Row]:
        """The next rows, fewer than asked for only at the end."""


class SteppedRows(Below):
    """Four calls for each row. It knows the end from a damaged block, and can leap over what the journal deletes."""

    def __init__(self, iterator: Any, start: bytes, ranges: list[Range]) -> None:
        self._iterator = iterator
        self._ranges = ranges
        iterator.seek(start)

    def take(self, count: int) -> list[Row]:
        iterator = self._iterator
        valid, key_here, value_here, step = iterator.valid, iterator.key, iterator.value, iterator.next
        rows: list[Row] = []
        while valid():
            key: bytes = key_here()
            if self._ranges and (past := _past(self._ranges, key)) is not None:
                iterator.seek(past)
                continue
            rows.append((key, value_here()))
            step()
            if len(rows) >= count:
                return rows
        # An iterator ends the same way at the end of its range and at a damaged block.
        iterator.status()
        return rows


def _past(ranges: list[Range], key: bytes) -> bytes | None:
    """The end of a range that holds this key."""
    return next((end for start, end in ranges if start <= key < end), None)


class BulkRows(Below):
    """One call for each row. It cannot tell the end of the range from a damaged block, so somebody else must look."""

    def __init__(self, items: Iterator[Row], start: bytes) -> None:
        self._items = items
        self.following = start
        """Where the rows begin that were not given yet."""

    def take(self, count: int) -> list[Row]:
        rows = list(islice(self._items, count))
        if rows:
            self.following = rows[-1][0] + b"\0"
        return rows


def merged(below: Below, changes: list[Change], limit: int, max_bytes: int) -> tuple[list[Row], bool]:
    """Rows up to the limits, and whether the database had no more. It reads a little further than it may, by a share of
    the bytes that are left, and leaves that out again."""
    rows: list[Row] = []
    left, stride, made = max_bytes, 1, 0
    ended = False
    while not ended and len(rows) < limit:
        asked = min(stride, limit - len(rows))
        some = below.take(asked)
        ended = len(some) < asked
        upto = len(changes) if ended else bisect_right(changes, some[-1][0], lo=made, key=_key_of)
        if upto > made:
            some = overlaid(some, changes, made, upto)
            made = upto
        rows += some
        left -= _bytes(some)
        if left < 0:
            while left < 0 and len(rows) > 1:
                left += _bytes([rows.pop()])
            break
        average = (max_bytes - left) // max(len(rows), 1) + 1
        stride = max(min(left // average // 2, ROCKS_STRIDE), 1)
    if len(rows) > limit:
        del rows[limit:]
    return rows, ended


def is_end(iterator: Any, place: bytes) -> bool:
    """Whether nothing comes from here on. Where something does, it may be new: a scan is of one moment, and begins
    anew."""
    iterator.seek(place)
    if iterator.valid():
        return False
    iterator.status()
    return True


def _bytes(rows: list[Row]) -> int:
    return sum(map(len, chain.from_iterable(rows)))
