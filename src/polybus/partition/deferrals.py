"""The deferred messages of a log that are in memory: those that are locked, and those whose rows are being written.

Memory is right about them whatever a read shows; all others are only in the store.
"""

from __future__ import annotations

from polybus.partition.bodies import Bodies
from polybus.partition.entry import Entry
from polybus.partition.unsynced import Unsynced


class Deferrals(Unsynced):
    """Rows are known by sequence number."""

    def __init__(self, bodies: Bodies) -> None:
        super().__init__()
        self._bodies = bodies
        self.entries: dict[int, Entry] = {}

    def put(self, entry: Entry) -> None:
        self.entries[entry.sequence] = entry

    def unlocked(self, entry: Entry) -> None:
        """The entry is no longer locked: it leaves memory as soon as the store shows it as it is."""
        if entry.sequence not in self:
            self.forgotten(entry.sequence)

    def forgotten(self, row: object) -> None:
        assert isinstance(row, int)
        entry = self.entries.get(row)
        if entry is not None and not entry.lock:
            del self.entries[row]
            if not entry.gone:
                self._bodies.detach(entry)
