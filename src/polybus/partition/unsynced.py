"""Rows that are changed in memory while a read may still show them as they were.

A read can come back with a row whose change is not synced yet, or that was changed after the read began. Whoever
reads takes a ticket and then asks here, so that nothing settled ever returns and no old count is taken for the new.
Knowledge about a row is kept until its change is synced and every read that began before has ended.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polybus.partition.output import Output


class Unsynced:
    def __init__(self) -> None:
        self._changes: dict[object, int] = {}
        """Row to how many of its changes a read might miss."""
        self._synced: deque[tuple[int, object]] = deque()
        self._reads: dict[int, None] = {}
        self._clock = 0

    def __contains__(self, row: object) -> bool:
        return row in self._changes

    def has_changes(self) -> bool:
        return bool(self._changes)

    def changed(self, batch: Output, row: object) -> None:
        """The row was changed, in this output."""
        changes = self._changes
        changes[row] = changes[row] + 1 if row in changes else 1
        batch.unsynced.append((self, row))

    def synced(self, row: object) -> None:
        """One change of the row is on disk; reads that began earlier may still show the old row."""
        if self._reads:
            self._synced.append((self._clock, row))
        else:
            self._forget(row)

    def has_reads(self) -> bool:
        """Whether a read is under way that may show an older state than the store has now."""
        return bool(self._reads)

    def read_begins(self) -> int:
        """A ticket, to be given back by `read_ends`."""
        self._clock += 1
        self._reads[self._clock] = None
        return self._clock

    def read_ends(self, ticket: int) -> None:
        del self._reads[ticket]
        oldest = next(iter(self._reads), self._clock + 1)
        synced = self._synced
        while synced and synced[0][0] < oldest:
            self._forget(synced.popleft()[1])

    def _forget(self, row: object) -> None:
        left = self._changes.pop(row) - 1
        if left:
            self._changes[row] = left
        else:
            self.forgotten(row)

    def forgotten(self, row: object) -> None:
        """Every read shows the row as it is now; those who keep it in memory for that reason may let it go."""


class Rescheduled(Unsynced):
    """Scheduled messages that were given another time which a read may not show yet, by number."""

    def __init__(self) -> None:
        super().__init__()
        self._now: dict[int, tuple[int, int]] = {}
        """Number to the time at which the message is due now, and to its size."""

    def moved(self, batch: Output, number: int, due_ms: int, size: int) -> None:
        self._now[number] = (due_ms, size)
        self.changed(batch, number)

    def due(self, number: int, read_ms: int) -> int:
        """When the message is due, where a read has shown `read_ms`."""
        return self._now[number][0] if number in self._now else read_ms

    def size(self, number: int, read: int) -> int:
        return self._now[number][1] if number in self._now else read

    def forgotten(self, row: object) -> None:
        assert isinstance(row, int)
        del self._now[row]
