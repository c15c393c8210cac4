"""How a full segment of a journal is retired: what of it still lives goes into RocksDB, then its file is used again.

It is done in steps so short that nobody waits for Python's lock, by a thread of the store's own that sleeps between them.
A change that a younger layer has a word on is left out, and so is a deletion of a row that RocksDB never had: the whole
life of most messages. At the end the journal's mark is raised in a synced batch; a crash before that finds the segment
again and only repeats what was done. A failure fences the store: everything is still in the journal.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from polybus.limits import (
    JOURNAL_DOUBTS,
    JOURNAL_KEPT,
    JOURNAL_PAUSE_SECONDS,
    JOURNAL_SEGMENT_BYTES,
    JOURNAL_SEGMENTS,
    JOURNAL_STEP_BYTES,
    JOURNAL_STEP_ROWS,
)
from polybus.store.layers import Change, Layer, Range, unsuperseded
from polybus.store.segments import Segment, Segments


class Below(Protocol):
    """The database under the journal."""

    def write(self, ranges: list[Range], changes: list[Change]) -> None: ...

    def lacks(self, keys: list[bytes]) -> list[bool]:
        """Whether there is no such row, for each of these keys."""


class Journaled(Below, Protocol):
    """The store, as who retires its segments sees it."""

    url: str

    def younger_than(self, layer: Layer) -> list[Layer]: ...

    def sync_below(self, following: int) -> None: ...

    def drop(self, layer: Layer) -> None: ...

    def fence(self, error: Exception) -> None: ...

    def turn_over_now(self) -> None: ...


class _Full:
    """A segment that is no longer written."""

    __slots__ = ("following", "layer", "segment")

    def __init__(self, layer: Layer, segment: Segment, following: int) -> None:
        self.layer = layer
        self.segment = segment
        self.following = following
        """The number of the first record that is not in it."""


class Stopped(Exception):
    """The store is being closed."""


class Retirer:
    def __init__(self, store: Journaled, segments: Segments) -> None:
        self.problem: str | None = None
        """Why there is no segment to write to, and none to be had by retiring another."""
        self._store = store
        self._segments = segments
        self._full: list[_Full] = []
        self._busy = threading.Lock()
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._hurried = False
        self._wanted = 0

    # Called by who writes

    def add(self, layer: Layer, segment: Segment, following: int) -> None:
        """A segment is full, and the next one was taken."""
        self._wanted = 0
        self._full.append(_Full(layer, segment, following))

    def wake(self) -> None:
        """There may be a segment to retire, or one to make."""
        if self._thread is None and not self._stopped:
            # A thread that hangs in a dead disk must not keep the process from ending.
            name = f"journal {self._store.url}"
            self._thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._thread.start()
        self._woken.set()

    def want(self, size: int) -> None:
        """A record of so many bytes waits for a segment."""
        self._wanted = size
        self.wake()

    def hurry(self) -> None:
        """Everything is to be retired, the youngest segment, too."""
        self._hurried = True
        self.wake()

    # Called by who needs it done

    def drain(self) -> None:
        """Retires every full segment, and returns when that is done."""
        try:
            with self._busy:
                while self._full and not self._stopped:
                    self._retire(self._full[0], pause=0)
        except Exception as error:
            self._store.fence(error)
            raise

    def shrink(self) -> None:
        """Gives back the space of segments that lie ready."""
        with self._busy:
            self._segments.shrink()

    def stop(self) -> None:
        """Returns when nothing is being retired any more, for good. What is left in the journal stays there."""
        self._stopped = True
        self._woken.set()
        with self._busy:
            self._full.clear()

    # The thread

    def _work(self) -> None:
        while not self._stopped:
            self._woken.wait()
            self._woken.clear()
            try:
                self._catch_up()
            except Stopped:
                return
            except Exception as error:
                self._store.fence(error)
                return

    def _catch_up(self) -> None:
        self._make_ready()
        if self._hurried:
            self._store.turn_over_now()
        while self._full and (self._hurried or len(self._full) > JOURNAL_KEPT or not self._segments.ready):
            with self._busy:
                if self._stopped:
                    return
                if self._full:
                    self._retire(self._full[0], pause=JOURNAL_PAUSE_SECONDS)
        self._hurried = False

    def _make_ready(self) -> None:
        """One segment lies ready before it is needed. Where the disk has no room for it, an older one must go first."""
        wanted = self._wanted
        large = wanted > JOURNAL_SEGMENT_BYTES
        if any(segment.size >= wanted for segment in list(self._segments.ready)):
            return
        if not large and self._segments.count >= JOURNAL_SEGMENTS:
            return
        try:
            with self._busy:
                if not self._stopped:
                    self._segments.make(wanted if large else JOURNAL_SEGMENT_BYTES)
        except OSError as error:
            if large or (wanted and not self._full):
                self.problem = error.strerror or str(error)

    def _retire(self, full: _Full, pause: float) -> None:
        self.move(full.layer, lambda: self._store.younger_than(full.layer), self._store, pause)
        self._store.sync_below(full.following)
        self._store.drop(full.layer)
        self._full.remove(full)
        self._segments.give_back(full.segment)

    def move(self, layer: Layer, younger: Callable[[], list[Layer]], below: Below, pause: float = 0) -> None:
        """Writes what of a layer is alive to the database, unsynced, in steps."""
        ranges = layer.ranges
        doubts = _Doubts()
        for step in _steps(layer):
            if pause and self._stopped:
                raise Stopped
            changes = doubts.settle(unsuperseded(step, younger()), below)
            if changes or ranges:
                below.write(ranges, changes)
                ranges = []
            if pause:
                time.sleep(pause)
        if ranges:
            below.write(ranges, [])


class _Doubts:
    """Whether RocksDB is worth asking for the rows that are to be deleted."""

    def __init__(self) -> None:
        self._asked = 0
        self._there = 0

    def settle(self, changes: list[Change], below: Below) -> list[Change]:
        """Leaves out deletions of rows that are not there."""
        if self._asked >= JOURNAL_DOUBTS and self._there * 2 > self._asked:
            return changes
        keys = [key for key, value in changes if value is None]
        if not keys:
            return changes
        lacking = {key for key, lacks in zip(keys, below.lacks(keys), strict=True) if lacks}
        self._asked += len(keys)
        self._there += len(keys) - len(lacking)
        return [change for change in changes if change[0] not in lacking]


def _steps(layer: Layer) -> Iterator[list[Change]]:
    """The changes of a layer that is no longer written, a few at a time."""
    step: list[Change] = []
    size = 0
    for change in layer.rows.items():
        step.append(change)
        size += len(change[1]) if change[1] is not None else 0
        if len(step) >= JOURNAL_STEP_ROWS or size >= JOURNAL_STEP_BYTES:
            yield step
            step, size = [], 0
    if step:
        yield step
