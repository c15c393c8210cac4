"""Rows that are removed in memory while the store may still show them.

A read can come back with a row whose removal is not synced yet, or that was removed after the read began. Whoever
reads asks here, so that nothing settled ever returns.
"""

from __future__ import annotations


class Removing:
    def __init__(self) -> None:
        self._numbers: set[int] = set()
        self._synced: list[int] = []
        self._reads = 0

    def __contains__(self, number: int) -> bool:
        return number in self._numbers

    def add(self, number: int) -> None:
        self._numbers.add(number)

    def synced(self, number: int) -> None:
        """The removal is on disk; reads that began earlier may still show the row."""
        if self._reads:
            self._synced.append(number)
        else:
            self._numbers.discard(number)

    def read_begins(self) -> None:
        self._reads += 1

    def read_ends(self) -> None:
        self._reads -= 1
        if self._reads == 0:
            for number in self._synced:
                self._numbers.discard(number)
            self._synced.clear()
