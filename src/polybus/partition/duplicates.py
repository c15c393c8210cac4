"""The ids of messages sent within the window, by which a partition tells duplicates.

Every id is a row, and a row by time lets old ones be removed. Memory holds only the newest; as long as it holds
all (`whole`), nothing has to be read.
"""

from __future__ import annotations

import struct
from typing import Final

from polybus.limits import RECENT_IDS
from polybus.partition import records
from polybus.rows import Batch

_TIME: Final = struct.Struct(">Q")


class DuplicateHistory:
    def __init__(self, prefix: bytes) -> None:
        self.id_prefix = prefix + records.DUPLICATE_IDS
        self.time_prefix = prefix + records.DUPLICATE_TIMES
        self._recent: dict[str, int] = {}
        self.whole = True
        """Whether every id in the store is in memory as well."""
        self.oldest_ms = 0
        """A time before which no row is left."""

    def id_key(self, message_id: str) -> bytes:
        return self.id_prefix + message_id.encode()

    def time_key(self, time_ms: int, message_id: str) -> bytes:
        return self.time_prefix + _TIME.pack(time_ms) + message_id.encode()

    def must_read(self, message_id: str) -> bool:
        return not self.whole and message_id not in self._recent

    def seen_at(self, message_id: str, row: object) -> int | None:
        """When the id was last accepted, from memory or from the row that was read for it."""
        known = self._recent.get(message_id)
        if known is not None:
            return known
        if isinstance(row, bytes):
            return records.unsealed_number(row, "a message id's row")
        return None

    def add(self, batch: Batch, message_id: str, time_ms: int, replaced_ms: int | None) -> None:
        """Notes an accepted id; `replaced_ms` is the time of an outdated row of the same id."""
        if replaced_ms is not None:
            batch.delete(self.time_key(replaced_ms, message_id))
        batch.put(self.id_key(message_id), records.sealed_number(time_ms))
        batch.put(self.time_key(time_ms, message_id), b"")
        self._recent.pop(message_id, None)
        self._recent[message_id] = time_ms
        if len(self._recent) > RECENT_IDS:
            self.whole = False
            del self._recent[next(iter(self._recent))]

    def prune(self, batch: Batch, rows: list[object]) -> None:
        """Removes the ids of these rows by time."""
        for row in rows:
            assert isinstance(row, tuple)
            key: bytes = row[0]
            at = len(self.time_prefix)
            message_id = key[at + 8 :].decode()
            self.oldest_ms = _TIME.unpack_from(key, at)[0]
            batch.delete(key)
            batch.delete(self.id_key(message_id))
            self._recent.pop(message_id, None)
