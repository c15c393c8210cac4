"""A messaging store on RocksDB: embedded, one folder, one sync for each batch.

RocksDB gives atomic batches, checksums on everything and reads that never wait for the writer. What it does
not give is decided here: a write that failed in any way fences the store, for nobody knows what the disk holds
then; space is checked before a write, so that running full is refused and not suffered; a damaged store is
reported, never repaired. How the engine is set up lives in `rocks_options`, the folder in `folder`.

Of `rocksdict`: only `bytes` are taken (raw mode, no pickles). An iterator keeps the database open after `close`,
so none outlives its call. The upper bound of a scan is kept by RocksDB as a bare pointer into the caller's
bytes, so `end` must live as long as the iterator. Iterators, opening and `write` hold the GIL; `flush_wal`, `flush`
and multi-get let it go. So a batch is written unsynced, which reaches only memory, and synced by a call of its own;
where RocksDB would have a writer wait for its merges, the waiting is done here. A disk that stops answering then holds
up nobody else as long as it is written or asked for single rows, but the whole process while a scan waits for it: the
binding has no other scan.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from rocksdict import Checkpoint, Rdict, ReadOptions, WriteBatch

from polybus.errors import StoreCorrupt, StoreError, StoreFenced, StoreFull
from polybus.limits import (
    ROCKS_FLOOR_BYTES,
    ROCKS_LONG_SCAN,
    ROCKS_RELIEF_BYTES,
    ROCKS_STALL_SECONDS,
    ROCKS_STRIDE,
)
from polybus.store.base import NO_LIMIT, Batch, Copy, Row, Store
from polybus.store.folder import StoreFolder, make_fresh_folder
from polybus.store.format import FORMAT_NAME, StoreFormat, new_format
from polybus.store.logcheck import check_logs
from polybus.store.rocks_options import Budget, families, rocks_options, shared_budget, synced_writes, written_only

_key_of = itemgetter(0)

_RECORD_KEY = b"format"
_STALLED = "Result incomplete"
"""What RocksDB says where a write would have had to wait and was told not to; nothing was written."""


def disk_free_bytes(path: Path) -> int:
    return shutil.disk_usage(path).free


class RocksStore(Store):
    """The store in one folder, made where the folder is new or empty."""

    reads_block = True
    unsafe = False

    def __init__(
        self,
        path: Path,
        *,
        store_id: bytes | None = None,
        budget: Budget | None = None,
        floor_bytes: int = ROCKS_FLOOR_BYTES,
        free_space: Callable[[Path], int] = disk_free_bytes,
    ) -> None:
        self.url = f"rocksdb:{path}"
        self._budget = budget or shared_budget()
        self._floor_bytes = floor_bytes
        self._free_space = free_space
        self._synced = synced_writes()
        self._written = written_only()
        self._fenced: str | None = None
        self._unrelieved_bytes = 0
        self._room: int | None = None
        """Free bytes when it was last looked; None where nobody can tell."""
        self._db: Any = None
        # A handle that is closed while another thread is inside it would be an error of the binding.
        self._reading = threading.Lock()
        self._writing = threading.Lock()
        self._copying = threading.Lock()
        self._commit: threading.Lock | None = None
        """Of the commit under way, locked until it is synced: readers see its rows before that."""
        self._folder = StoreFolder(path)
        try:
            self._room = self.free_bytes()
            self.format = self._open(store_id)
        except BaseException:
            self.close()
            raise
        self.store_id = self.format.store_id
        self._budget.join(self)

    def _open(self, store_id: bytes | None) -> StoreFormat:
        if not self._folder.database.exists():
            record = new_format(time.time_ns() // 1_000_000, store_id)
            self._folder.make_database(lambda target: self._make(target, record))
        check_logs(self._folder.database)
        self._db = self._open_database(self._folder.database, create=False)
        found = self._read_format()
        found.check(self.url, store_id)
        if found.is_older:
            found = found.raised()
            self._write_format(self._db, found)
        return found

    def _make(self, target: Path, record: StoreFormat) -> None:
        db = self._open_database(target, create=True)
        try:
            self._write_format(db, record)
        finally:
            db.close()

    def _write_format(self, db: Any, record: StoreFormat) -> None:
        family = db.get_column_family(FORMAT_NAME)
        try:
            family.put(_RECORD_KEY, record.encode(), self._synced)
            family.flush()
        except Exception as error:
            raise self._translated(error) from error
        finally:
            family.close()

    def _open_database(self, path: Path, *, create: bool) -> Any:
        options = rocks_options(self._budget, create=create)
        try:
            return Rdict(str(path), options, families(options))
        except Exception as error:
            raise self._translated(error) from error

    def _read_format(self) -> StoreFormat:
        family = self._db.get_column_family(FORMAT_NAME)
        try:
            record = family.get(_RECORD_KEY)
        except Exception as error:
            raise self._translated(error) from error
        finally:
            family.close()
        if record is None:
            raise StoreCorrupt(f"{self.url}: its format record is missing")
        return StoreFormat.decode(record, self.url)

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._reading:
            db = self._opened()
            try:
                values: list[bytes | None] = db.get(list(keys))
            except Exception as error:
                raise self._translated(error) from error
        self._wait_until_synced()
        return values

    def scan(self, start: bytes, end: bytes, limit: int, max_bytes: int = NO_LIMIT) -> list[Row]:
        if start >= end or limit <= 0:
            return []
        rows = self._scan(start, end, limit, max_bytes)
        self._wait_until_synced()
        return rows

    def _wait_until_synced(self) -> None:
        """What was read may be of the commit under way: nobody may know of it before it is safe."""
        commit = self._commit
        if commit is not None:
            with commit:
                pass
        self._refuse_fenced()

    def _refuse_fenced(self) -> None:
        if self._fenced is not None:
            raise StoreFenced(f"{self.url}: fenced after: {self._fenced}")

    def _scan(self, start: bytes, end: bytes, limit: int, max_bytes: int) -> list[Row]:
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(end)
        many: list[Row] = []
        if limit >= ROCKS_LONG_SCAN:
            # What is read once would only push out of the cache what is asked for again.
            bounds.fill_cache(False)
            if self._read_many(bounds, start, limit, max_bytes, many):
                return many
        with self._reading:
            iterator = self._opened().iter(bounds)
        try:
            if many and _is_end(iterator, many[-1][0]):
                return many
            return _rows(iterator, start, limit, max_bytes)
        except Exception as error:
            failure = self._translated(error)
        finally:
            del iterator
        # Raised out here, the error carries no frame that would keep the iterator, and so the database, alive.
        raise failure

    def _read_many(self, bounds: Any, start: bytes, limit: int, max_bytes: int, rows: list[Row]) -> bool:
        """Reads rows in one call each, where four are the rule. False where it came to an end before its limits:
        such an iterator cannot tell the end of the range from a damaged block, so one of the other kind must look."""
        with self._reading:
            items = self._opened().items(from_key=start, read_opt=bounds)
        try:
            return _many_rows(items, limit, max_bytes, rows)
        except Exception as error:
            failure = self._translated(error)
        finally:
            del items
        raise failure

    def commit(self, batch: Batch) -> None:
        with self._writing:
            self._refuse_fenced()
            self._room = self.free_bytes()
            if not self._has_room(batch):
                raise StoreFull(
                    f"{self.url}: {self._room} bytes free, {self._floor_bytes} are kept for the store's own work"
                )
            while not self._write(batch):
                time.sleep(ROCKS_STALL_SECONDS)
            self._sync(batch)

    def begin(self, batch: Batch) -> bool:
        if not self._writing.acquire(blocking=False):
            return False
        begun = False
        try:
            self._refuse_fenced()
            begun = self._has_room(batch) and self._write(batch)
            return begun
        finally:
            if not begun:
                self._writing.release()

    def finish(self, batch: Batch) -> None:
        try:
            self._sync(batch)
        finally:
            self._writing.release()

    def _write(self, batch: Batch) -> bool:
        """Writes to the log and to memory; False where RocksDB's own work in the background leaves no room there."""
        db = self._opened()
        commit = self._commit = threading.Lock()
        commit.acquire()
        try:
            db.write(_write_batch(batch), self._written)
        except Exception as error:
            stalled = str(error).startswith(_STALLED)
            if not stalled:
                self._fenced = str(error)
            self._let_readers_go()
            if stalled:
                return False
            raise self._translated(error) from error
        return True

    def _sync(self, batch: Batch) -> None:
        try:
            self._opened().flush_wal(True)
        except Exception as error:
            self._fenced = str(error)
            raise self._translated(error) from error
        finally:
            self._let_readers_go()
        self._room = self.free_bytes()
        self._unrelieved_bytes += batch.bytes
        if self._unrelieved_bytes > ROCKS_RELIEF_BYTES:
            self._unrelieved_bytes = 0
            self._budget.relieve()

    def _let_readers_go(self) -> None:
        commit, self._commit = self._commit, None
        assert commit is not None, "a commit is under way"
        commit.release()

    def buffered_bytes(self) -> int:
        db = self._db
        return 0 if db is None else db.property_int_value("rocksdb.cur-size-active-mem-table") or 0

    def flush_soon(self) -> None:
        """Starts to write the buffers to a table and does not wait for it."""
        if not self._copying.acquire(blocking=False):
            return
        try:
            if self._db is not None:
                self._db.flush(wait=False)
        except Exception:
            # Whatever keeps it from flushing keeps it from writing: its own next commit says so to its owner.
            return
        finally:
            self._copying.release()

    def _has_room(self, batch: Batch) -> bool:
        return self._room is None or self._room - batch.bytes >= self._floor_bytes

    def free_bytes(self) -> int | None:
        try:
            return self._free_space(self._folder.path)
        except OSError:
            return None

    def reclaim(self) -> None:
        """Deletions free space only when they are in a table: then the files that they empty are merged away. A drained
        store is not written to any more, so its buffers would not be flushed by themselves."""
        self.flush()

    def copy(self, target: Path) -> Copy:
        self.flush()
        return _RocksCopy(self, self._folder, target)

    def flush(self) -> None:
        """Writes the buffers to a table. It lets the GIL go, which making a checkpoint does not."""
        with self._copying:
            try:
                self._opened().flush()
            except Exception as error:
                raise self._translated(error) from error

    def link_files(self, target: Path) -> None:
        """Makes `target`, which must be on the store's own disk, a database with what is written now. Where the buffers
        were flushed just before there are only links to make."""
        with self._copying:
            db = self._opened()
            try:
                checkpoint = Checkpoint(db)
                checkpoint.create_checkpoint(str(target))
            except Exception as error:
                raise self._translated(error) from error
            finally:
                checkpoint = None

    def close(self) -> None:
        with self._copying, self._writing, self._reading:
            db, self._db = self._db, None
            self._budget.leave(self)
            try:
                if db is not None:
                    db.close()
            except Exception as error:
                raise self._translated(error) from error
            finally:
                self._folder.release()

    def _opened(self) -> Any:
        if self._db is None:
            raise StoreFenced(f"{self.url} is closed")
        return self._db

    def _translated(self, error: Exception) -> StoreError:
        if isinstance(error, StoreError):
            return error
        text = f"{self.url}: {error}"
        return StoreCorrupt(text) if str(error).startswith("Corruption") else StoreError(text)


class _RocksCopy(Copy):
    """A copy by links next to the database, moved to where it belongs: on another disk there are no links, and making
    the copy there at once would hold up the whole process."""

    def __init__(self, store: RocksStore, folder: StoreFolder, target: Path) -> None:
        self._store = store
        self._folder = folder
        self._target = target

    def fix(self) -> None:
        self._folder.drop_copy()
        self._store.flush()
        self._store.link_files(self._folder.copy)

    def save(self) -> None:
        make_fresh_folder(self._target)
        try:
            shutil.move(self._folder.copy, self._target / self._folder.database.name)
        except OSError as error:
            raise StoreError(f"{self._target}: {error.strerror}") from error

    def close(self) -> None:
        self._folder.drop_copy()


def _write_batch(batch: Batch) -> Any:
    writes = WriteBatch(raw_mode=True)
    for start, end in batch.ranges:
        # A range that ends before it starts is empty for us, but breaks RocksDB's log for good.
        if start < end:
            writes.delete_range(start, end)
    put = writes.put
    delete = writes.delete
    # RocksDB finds the place of a key faster next to the one before: rows of many partitions cost a fifth less in order.
    for key, value in sorted(batch.ops, key=_key_of):
        if value is None:
            delete(key)
        else:
            put(key, value)
    return writes


def _is_end(iterator: Any, key: bytes) -> bool:
    """Whether nothing comes after this key. Where something does, it may be new: a scan is of one moment, and begins
    anew."""
    iterator.seek(key + b"\x00")
    if iterator.valid():
        return False
    iterator.status()
    return True


def _rows(iterator: Any, start: bytes, limit: int, max_bytes: int) -> list[Row]:
    rows: list[Row] = []
    valid, key_here, value_here, step = iterator.valid, iterator.key, iterator.value, iterator.next
    iterator.seek(start)
    while valid():
        key: bytes = key_here()
        value: bytes = value_here()
        max_bytes -= len(key) + len(value)
        if max_bytes < 0 and rows:
            return rows
        rows.append((key, value))
        if len(rows) >= limit:
            return rows
        step()
    # An iterator ends the same way at the end of its range and at a damaged block.
    iterator.status()
    return rows


def _many_rows(items: Any, limit: int, max_bytes: int, rows: list[Row]) -> bool:
    """Adds rows up to the limits; False where there were not so many. It reads a little further than it may, by a
    share of the bytes that are left, and leaves that out again."""
    left, stride = max_bytes, 1
    while len(rows) < limit:
        asked = min(stride, limit - len(rows))
        some = list(islice(items, asked))
        rows += some
        left -= _bytes(some)
        if left < 0:
            while left < 0 and len(rows) > 1:
                left += _bytes([rows.pop()])
            return True
        if len(some) < asked:
            return False
        average = (max_bytes - left) // len(rows) + 1
        stride = max(min(left // average // 2, ROCKS_STRIDE), 1)
    return True


def _bytes(rows: list[Row]) -> int:
    return sum(map(len, chain.from_iterable(rows)))
