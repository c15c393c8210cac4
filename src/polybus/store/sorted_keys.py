"""A sorted collection of keys that is cheap to add to, to remove from and to walk from any place.

A store in memory needs what a tree gives, at the price of a dictionary. Adding and removing only make a note;
the order is made when somebody walks, so a key that comes and goes between two walks costs next to nothing,
which is the life of most messages. The ordered part is a list of short sorted lists ("runs"), so that making
room for one key moves a thousand pointers and not a million. Values do not live here.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

_RUN = 1_024
"""Keys in a fresh run: about where finding the run and shifting inside it cost the same."""
_SKIPPED = 64
"""Removed keys that a walk steps over in one run before it clears them away."""


class SortedKeys:
    """Keys in byte order. `add` and `remove` are told only about real changes: the caller knows what is there."""

    def __init__(self) -> None:
        self._runs: list[list[bytes]] = []
        self._lasts: list[bytes] = []
        self._held = 0
        self._added: dict[bytes, None] = {}
        self._removed: set[bytes] = set()

    def add(self, key: bytes) -> None:
        if key in self._removed:
            self._removed.discard(key)
        else:
            self._added[key] = None

    def remove(self, key: bytes) -> None:
        if key in self._added:
            del self._added[key]
        else:
            self._removed.add(key)

    def walk(self, start: bytes, end: bytes) -> Iterator[bytes]:
        """The keys with start <= key < end. Nothing may be added or removed while one walks."""
        self._settle()
        removed = self._removed
        index = bisect_left(self._lasts, start)
        while index < len(self._runs):
            run = self._runs[index]
            skipped = 0
            for key in run[bisect_left(run, start) :]:
                if key >= end:
                    return
                if key not in removed:
                    yield key
                    continue
                skipped += 1
                if skipped == _SKIPPED:
                    self._sweep(index)
                    start = key
                    break
            else:
                index += 1

    def take(self, start: bytes, end: bytes) -> list[bytes]:
        """Removes the keys with start <= key < end and gives them."""
        keys = list(self.walk(start, end))
        self._removed.update(keys)
        return keys

    def _settle(self) -> None:
        # Notes of removal may not outgrow what they are about, or memory would never come back.
        if len(self._removed) > _RUN and len(self._removed) * 2 > self._held:
            self._rebuild()
        if self._added:
            for key in sorted(self._added):
                self._insert(key)
            self._held += len(self._added)
            self._added.clear()

    def _insert(self, key: bytes) -> None:
        lasts = self._lasts
        if not lasts or key > lasts[-1]:
            self._append(key)
            return
        index = bisect_left(lasts, key)
        run = self._runs[index]
        insort(run, key)
        if len(run) > 2 * _RUN:
            self._split(index)

    def _append(self, key: bytes) -> None:
        if self._runs and len(self._runs[-1]) < _RUN:
            self._runs[-1].append(key)
            self._lasts[-1] = key
        else:
            self._runs.append([key])
            self._lasts.append(key)

    def _split(self, index: int) -> None:
        run = self._runs[index]
        tail = run[_RUN:]
        del run[_RUN:]
        self._runs.insert(index + 1, tail)
        self._lasts[index : index + 1] = [run[-1], tail[-1]]

    def _sweep(self, index: int) -> None:
        """Forgets the removed keys of one run, and the run where nothing of it is left."""
        run = self._runs[index]
        kept = [key for key in run if key not in self._removed]
        self._removed.difference_update(run)
        self._held -= len(run) - len(kept)
        if kept:
            self._runs[index] = kept
            self._lasts[index] = kept[-1]
        else:
            del self._runs[index], self._lasts[index]

    def _rebuild(self) -> None:
        kept = [key for run in self._runs for key in run if key not in self._removed]
        self._runs = [kept[at : at + _RUN] for at in range(0, len(kept), _RUN)]
        self._lasts = [run[-1] for run in self._runs]
        self._held = len(kept)
        self._removed.clear()
