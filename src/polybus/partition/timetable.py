"""An index by time, as far as memory knows it: where its rows begin, and when the first of them is due.

Scans start at a remembered time, for walking over the rows of a long past that are deleted costs more than the
work itself. Rows count as due only when they are synced, since a scan cannot see them before. A walk takes several
steps where there is much to do; between them its place is kept here.
"""

from __future__ import annotations

from collections import deque
from typing import Final

NOT_DUE: Final = 1 << 62


class Timetable:
    def __init__(self) -> None:
        self.low = NOT_DUE
        """No synced row is earlier than this."""
        self.due_ms = NOT_DUE
        self.walking = False
        self.at = b""
        """Where the next step of a walk begins; empty where a walk begins anew, at `low`."""
        self._left = NOT_DUE
        """The earliest row that the present walk has left behind."""
        self._news = NOT_DUE
        """The earliest row that came or was freed since the present walk began: its scans may have missed it."""
        self._open = NOT_DUE
        self._unsynced: deque[int] = deque()
        self._before = NOT_DUE

    def add(self, time_ms: int) -> None:
        """A row enters the open output."""
        if time_ms < self._open:
            self._open = time_ms

    def wake(self, time_ms: int) -> None:
        """A row can be worked on that could not before."""
        self._news = min(self._news, time_ms)
        self.due_ms = min(self.due_ms, time_ms)

    def seal(self) -> int:
        """The open output is closed; gives the time before which no row is, for the counters' row."""
        low = min(self.low, self._open)
        for time_ms in self._unsynced:
            low = min(low, time_ms)
        self._unsynced.append(self._open)
        self._open = NOT_DUE
        return low

    def synced(self) -> None:
        """The oldest closed output is on disk."""
        first = self._unsynced.popleft()
        if first != NOT_DUE:
            self.low = min(self.low, first)
            self.wake(first)

    def step_begins(self) -> None:
        self.walking = True
        self._before = self.due_ms
        self.due_ms = NOT_DUE
        if not self.at:
            self._left = self._news = NOT_DUE

    def step_fails(self) -> None:
        """Nothing is known to have changed: the step will be tried again."""
        self.walking = False
        self.wake(self._before)

    def step_ends(self, left_ms: int, next_ms: int, at: bytes) -> None:
        """`left_ms` is the earliest row that stays, `next_ms` the next one; `at` is where to go on, if anywhere."""
        self.walking = False
        self._left = min(self._left, left_ms)
        self.at = at
        self.low = min(self._left, next_ms, self._news)
        self.due_ms = min(self.due_ms, next_ms) if at else min(self._news, next_ms)
