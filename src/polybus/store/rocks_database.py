"""The database in a store's folder: RocksDB as the store uses it, with its own record and its errors in our words.

Of `rocksdict`: only `bytes` are taken (raw mode, no pickles). An iterator or a handle of a column family keeps the
database open after `close`, so none outlives its call. Iterators, opening and `write` hold the GIL; `flush_wal`, `flush`
and multi-get let it go. So batches are written unsynced, which reaches only memory, and synced by a call of its own;
where RocksDB would have a writer wait for its merges, the waiting is done here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rocksdict import Checkpoint, Rdict, WriteBatch

from polybus.errors import StoreCorrupt, StoreError, StoreFenced
from polybus.limits import ROCKS_STALL_SECONDS
from polybus.store.format import FORMAT_NAME, StoreFormat
from polybus.store.journal import Mark
from polybus.store.layers import Change, Range
from polybus.store.rocks_options import Budget, families, rocks_options, synced_writes, written_only

RECORD_KEY = b"format"
MARK_KEY = b"journal"
_STALLED = "Result incomplete"
"""What RocksDB says where a write would have had to wait and was told not to; nothing was written."""


class RocksDatabase:
    """One open database. Whoever calls sees to it that it is not closed meanwhile."""

    def __init__(self, path: Path, url: str, budget: Budget, *, create: bool = False) -> None:
        self.url = url
        self._synced = synced_writes()
        self._written = written_only()
        options = rocks_options(budget, create=create)
        self._db: Any = None
        try:
            self._db = Rdict(str(path), options, families(options))
        except Exception as error:
            raise self.translated(error) from error

    @property
    def handle(self) -> Any:
        """The binding's own; StoreFenced where it is closed."""
        if self._db is None:
            raise StoreFenced(f"{self.url} is closed")
        return self._db

    # Its own records, in a family for themselves, out of reach of scans

    def read_format(self) -> StoreFormat:
        record = self._read_own(RECORD_KEY)
        if record is None:
            raise StoreCorrupt(f"{self.url}: its format record is missing")
        return StoreFormat.decode(record, self.url)

    def write_format(self, record: StoreFormat) -> None:
        self._write_own(RECORD_KEY, record.encode())

    def read_mark(self) -> Mark | None:
        record = self._read_own(MARK_KEY)
        return None if record is None else Mark.decode(record, self.url)

    def write_mark(self, mark: Mark) -> None:
        self._write_own(MARK_KEY, mark.encode(), flush=False)

    def _read_own(self, key: bytes) -> bytes | None:
        return read_own(self.handle, key, self.translated)

    def _write_own(self, key: bytes, value: bytes, *, flush: bool = True) -> None:
        family = self.handle.get_column_family(FORMAT_NAME)
        try:
            family.put(key, value, self._synced)
            if flush:
                family.flush()
        except Exception as error:
            raise self.translated(error) from error
        finally:
            family.close()

    # Rows

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        try:
            values: list[bytes | None] = self.handle.get(list(keys))
        except Exception as error:
            raise self.translated(error) from error
        return values

    def write(self, ranges: list[Range], changes: list[Change], mark: Mark | None = None) -> None:
        """Writes to RocksDB's log and memory, all or nothing, and waits where RocksDB is behind with its own work."""
        while not self.try_to_write(ranges, changes, mark):
            time.sleep(ROCKS_STALL_SECONDS)

    def try_to_write(self, ranges: list[Range], changes: list[Change], mark: Mark | None = None) -> bool:
        """False where it would have to wait: nothing was written."""
        handle = self.handle
        family = None
        try:
            writes = write_batch(ranges, changes)
            if mark is not None:
                family = handle.get_column_family_handle(FORMAT_NAME)
                writes.put(MARK_KEY, mark.encode(), family)
            handle.write(writes, self._written)
        except Exception as error:
            if str(error).startswith(_STALLED):
                return False
            raise self.translated(error) from error
        finally:
            family = None
        return True

    def sync(self) -> None:
        """Returns when everything that was written is on the disk."""
        try:
            self.handle.flush_wal(True)
        except Exception as error:
            raise self.translated(error) from error

    # Tables

    def buffered_bytes(self) -> int:
        db = self._db
        return 0 if db is None else db.property_int_value("rocksdb.cur-size-active-mem-table") or 0

    def flush(self, *, wait: bool = True) -> None:
        """Writes the buffers to a table. It lets the GIL go, which making a checkpoint does not. With `wait` those of the
        own records, too: as long as one of them is only in a log, the log stays."""
        family = None
        try:
            self.handle.flush(wait=wait)
            if wait:
                family = self.handle.get_column_family(FORMAT_NAME)
                family.flush()
        except Exception as error:
            raise self.translated(error) from error
        finally:
            if family is not None:
                family.close()

    def link_files(self, target: Path) -> None:
        """Makes `target`, which must be on the same disk, a database with what is written now. Where the buffers were
        flushed just before there are only links to make."""
        checkpoint = None
        try:
            checkpoint = Checkpoint(self.handle)
            checkpoint.create_checkpoint(str(target))
        except Exception as error:
            raise self.translated(error) from error
        finally:
            checkpoint = None

    def close(self) -> None:
        db, self._db = self._db, None
        try:
            if db is not None:
                db.close()
        except Exception as error:
            raise self.translated(error) from error

    def translated(self, error: Exception) -> StoreError:
        if isinstance(error, StoreError):
            return error
        text = f"{self.url}: {error}"
        return StoreCorrupt(text) if str(error).startswith("Corruption") else StoreError(text)


def read_own(db: Any, key: bytes, translated: Any) -> bytes | None:
    """One of the store's own records."""
    family = db.get_column_family(FORMAT_NAME)
    try:
        record: bytes | None = family.get(key)
    except Exception as error:
        raise translated(error) from error
    finally:
        family.close()
    return record


def write_batch(ranges: list[Range], changes: list[Change]) -> Any:
    writes = WriteBatch(raw_mode=True)
    for start, end in ranges:
        # A range that ends before it starts is empty for us, but breaks RocksDB's log for good.
        if start < end:
            writes.delete_range(start, end)
    put = writes.put
    delete = writes.delete
    for key, value in changes:
        if value is None:
            delete(key)
        else:
            put(key, value)
    return writes
