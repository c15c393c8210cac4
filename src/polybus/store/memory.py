"""A messaging store in memory: for tests, for throw-away buses, and the yardstick of the core's own cost.

It keeps every promise of a store but the last: what it holds ends with the process. So it calls itself
`unsafe` and `volatile`, and health and metrics say so. Nothing here may wait or touch a file.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

from polybus.errors import StoreFenced
from polybus.store.base import NO_LIMIT, Batch, Copy, Row, Store
from polybus.store.copying import copy_into_folder
from polybus.store.sorted_keys import SortedKeys

MEMORY_URL = "memory:"


class MemoryStore(Store):
    """A sorted map in memory. `reopen` gives a new handle to the same contents, as after a restart."""

    reads_block = False
    unsafe = True
    volatile = True

    def __init__(self, url: str = MEMORY_URL, store_id: bytes | None = None) -> None:
        self.url = url
        self.store_id = store_id or uuid.uuid4().bytes
        self._rows: dict[bytes, bytes] = {}
        self._keys = SortedKeys()
        self._closed = False
        # Reads may come from any thread, and a walk puts the keys in order as it goes.
        self._lock = threading.Lock()

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._lock:
            self._check_open()
            return list(map(self._rows.get, keys))

    def scan(self, start: bytes, end: bytes, limit: int, max_bytes: int = NO_LIMIT) -> list[Row]:
        rows: list[Row] = []
        with self._lock:
            self._check_open()
            values = self._rows
            for key in self._keys.walk(start, end):
                if len(rows) >= limit:
                    break
                value = values[key]
                max_bytes -= len(key) + len(value)
                if max_bytes < 0 and rows:
                    break
                rows.append((key, value))
        return rows

    def commit(self, batch: Batch) -> None:
        with self._lock:
            self._check_open()
            for start, end in batch.ranges:
                for key in self._keys.take(start, end):
                    del self._rows[key]
            self._apply(batch.ops)

    def _apply(self, ops: Iterable[tuple[bytes, bytes | None]]) -> None:
        rows = self._rows
        add = self._keys.add
        remove = self._keys.remove
        for key, value in ops:
            if value is None:
                if rows.pop(key, None) is not None:
                    remove(key)
            else:
                if key not in rows:
                    add(key)
                rows[key] = value

    def free_bytes(self) -> int | None:
        return None

    def copy(self, target: Path) -> Copy:
        return _MemoryCopy(self, target)

    def snapshot(self) -> MemoryStore:
        """Another store with the same id and what this one holds now."""
        with self._lock:
            self._check_open()
            snapshot = MemoryStore(self.url, self.store_id)
            snapshot._apply(self._rows.items())
        return snapshot

    def close(self) -> None:
        with self._lock:
            self._closed = True

    def reopen(self) -> MemoryStore:
        """A new handle to the same contents; the old one is closed for good."""
        self.close()
        fresh = MemoryStore(self.url, self.store_id)
        fresh._rows = self._rows
        fresh._keys = self._keys
        return fresh

    def _check_open(self) -> None:
        if self._closed:
            raise StoreFenced(f"{self.url} is closed")


class _MemoryCopy(Copy):
    def __init__(self, store: MemoryStore, target: Path) -> None:
        self._store = store
        self._target = target

    def fix(self) -> None:
        self._store = self._store.snapshot()

    def save(self) -> None:
        copy_into_folder(self._store.store_id, self._store.scan, self._target)

    def close(self) -> None:
        return
