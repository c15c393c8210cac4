"""The ids of messages sent within the window, by which a partition tells duplicates.

Every id is a row, and a row by time lets old ones be removed. Memory holds only those last asked for; as long as it
holds all (`whole`), nothing has to be read. An id stays in memory at least until its row is synced, and none leaves
between the question what must be read and the answer, unless a batch is closed meanwhile.
"""

from __future__ import annotations

import struct
from typing import Final

from polybus.partition import records
from polybus.partition.output import Output
from polybus.partition.timetable import NOT_DUE
from polybus.partition.unsynced import Unsynced
from polybus.rows import Row

_TIME: Final = struct.Struct(">Q")


class DuplicateHistory:
    def __init__(self, prefix: bytes, most_recent: int) -> None:
        self.id_prefix = prefix + records.DUPLICATE_IDS
        self.time_prefix = prefix + records.DUPLICATE_TIMES
        self._most_recent = most_recent
        self._recent: dict[str, int] = {}
        """Id to the time it was accepted; the one that was asked for last is the last."""
        self.whole = True
        """Whether every id in the store is in memory as well."""
        self.oldest_ms = 0
        """A time before which no row is left."""
        self.pruning = False
        self.at = b""
        """Where pruning goes on, in the middle of its work."""
        self._newest_ms = -1
        """A time after which there is no row; negative where there is none at all."""
        self.again = Unsynced()
        """Ids that were accepted a second time, after the window: a scan may show the row of the first."""
        self._fresh = Unsynced()
        """Ids whose rows a read may not show yet."""

    def restore(self, wall_ms: int) -> None:
        """There may be rows of before, up to this time."""
        self.whole = False
        self._newest_ms = wall_ms

    def id_key(self, message_id: str) -> bytes:
        return self.id_prefix + message_id.encode()

    def time_key(self, time_ms: int, message_id: str) -> bytes:
        return self.time_prefix + _TIME.pack(time_ms) + message_id.encode()

    def must_read(self, message_id: str) -> bool:
        """Whether memory cannot vouch for the id; where it can, it will for a while."""
        if self.whole:
            return False
        known = self._recent.pop(message_id, None)
        if known is not None:
            self._recent[message_id] = known
        return known is None

    def knows(self, message_id: str, rows: dict[bytes, object] | None) -> bool:
        """Whether the id can be judged, from memory or from rows that were read."""
        return self.whole or message_id in self._recent or (rows is not None and self.id_key(message_id) in rows)

    def seen_at(self, message_id: str, row: object) -> int | None:
        """When the id was last accepted, from memory or from the row that was read for it."""
        known = self._recent.get(message_id)
        if known is not None:
            return known
        if isinstance(row, bytes):
            return records.unsealed_number(row, "a message id's row")
        return None

    def add(self, batch: Output, message_id: str, time_ms: int, replaced_ms: int | None) -> None:
        """Notes an accepted id; `replaced_ms` is the time of an outdated row of the same id."""
        if replaced_ms is not None:
            batch.delete(self.time_key(replaced_ms, message_id))
            self.again.changed(batch, message_id)
        batch.put(self.id_key(message_id), records.sealed_number(time_ms))
        batch.put(self.time_key(time_ms, message_id), b"")
        self._recent.pop(message_id, None)
        self._recent[message_id] = time_ms
        self._newest_ms = time_ms
        self._fresh.changed(batch, message_id)

    def evict(self) -> None:
        """Lets go of those asked for longest ago, at the end of a batch."""
        recent = self._recent
        while len(recent) > self._most_recent:
            oldest = next(iter(recent))
            if oldest in self._fresh:
                return
            self.whole = False
            del recent[oldest]

    def prune(self, batch: Output, rows: list[Row]) -> None:
        """Removes the ids of these rows by time; one that was accepted again since keeps its newer row."""
        at = len(self.time_prefix)
        for key, _ in rows:
            message_id = key[at + 8 :].decode()
            time_ms: int = _TIME.unpack_from(key, at)[0]
            batch.delete(key)
            if message_id not in self.again and self._recent.get(message_id, time_ms) == time_ms:
                batch.delete(self.id_key(message_id))
                self._recent.pop(message_id, None)

    def pruned_to(self, time_ms: int) -> None:
        """Nothing older than this is left; where that was all, memory vouches for every id again."""
        self.oldest_ms = max(self.oldest_ms, time_ms)
        if self._newest_ms < time_ms:
            self._newest_ms = -1
            self.whole = True

    def prune_due_ms(self, window_ms: int) -> int:
        """When it is worth looking for old ids: not for each of them, and not where there is none."""
        if self._newest_ms < 0:
            return NOT_DUE
        if self.at:
            return self.oldest_ms + window_ms + 1
        return self.oldest_ms + window_ms + window_ms // 8
