"""A messaging store in one folder: a journal that is synced for each batch, and RocksDB below it.

A commit is one record in the journal and one sync; what it wrote is held in memory until its segment is retired, and only
what is still alive then goes into RocksDB (`retiring`). So a message that is settled soon costs RocksDB nothing. Whoever
reads is given the journal's rows over RocksDB's.

What an engine does not decide is decided here: a write that failed in any way fences the store, for nobody knows what the
disk holds then; space is checked before a write, so that running full is refused and not suffered; a damaged store is
reported, never repaired. How RocksDB is set up lives in `rocks_options`, how it is called in `rocks_database`, the
journal's records in `journal`, its files in `segments`, the folder in `folder`.

A disk that stops answering holds up nobody else as long as it is written or asked for single rows, but the whole process
while a scan waits for it: the binding has no scan that lets Python's lock go.
"""

from __future__ import annotations

import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rocksdict import ReadOptions

from polybus.errors import StoreCorrupt, StoreError, StoreFenced, StoreFull
from polybus.limits import (
    JOURNAL_LOOK_BYTES,
    JOURNAL_RANGES,
    JOURNAL_SEGMENT_BYTES,
    ROCKS_FLOOR_BYTES,
    ROCKS_LONG_SCAN,
    ROCKS_RELIEF_BYTES,
    ROCKS_STALL_SECONDS,
)
from polybus.rows import NO_LIMIT, Batch, Row
from polybus.store.base import Copy, Store
from polybus.store.folder import StoreFolder, make_fresh_folder
from polybus.store.format import StoreFormat, new_format
from polybus.store.journal import Mark, encode, replay, seal, segment_paths
from polybus.store.layers import Change, Layer, Range, changes_in, look_up, ranges_of
from polybus.store.logcheck import check_logs
from polybus.store.retiring import Retirer
from polybus.store.rocks_database import RocksDatabase
from polybus.store.rocks_options import Budget, shared_budget
from polybus.store.rocks_scan import BulkRows, SteppedRows, is_end, merged
from polybus.store.segments import Segment, Segments, Write

_SALT_BYTES = 8


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
        write: Write = os.pwrite,
    ) -> None:
        self.url = f"rocksdb:{path}"
        self._budget = budget or shared_budget()
        self._floor_bytes = floor_bytes
        self._free_space = free_space
        self._fenced: str | None = None
        self._closed = False
        self._unrelieved_bytes = 0
        self._unlooked_bytes = 0
        self._room: int | None = None
        """Free bytes when it was last looked; None where nobody can tell."""
        self._database: RocksDatabase | None = None
        # What a reader sees is of one moment: nothing goes from the journal into RocksDB meanwhile. And a handle that is
        # closed while another thread is inside it would be an error of the binding.
        self._reading = threading.Lock()
        self._writing = threading.Lock()
        self._copying = threading.Lock()
        self._looking = threading.Lock()
        """Held for the layers: by who writes into the youngest, adds or drops one, or walks over them."""
        self._commit: threading.Lock | None = None
        """Of the commit under way, locked until it is synced: readers see its rows before that."""
        self._record = bytearray()
        """Of the commit under way."""
        self._number = 0
        """Of the next record."""
        self._salt, self._seed = b"", 0
        self._layers: list[Layer] = [Layer()]
        """From the youngest to the oldest; replaced, never changed."""
        self._folder = StoreFolder(path)
        self._segments = Segments(self._folder.database, write)
        self._segment: Segment | None = None
        self._retirer = Retirer(self, self._segments)
        try:
            self._room = self.free_bytes()
            self.format = self._open(store_id)
        except BaseException:
            self._fenced = "it was not opened"
            self.close()
            raise
        self.store_id = self.format.store_id
        self._budget.join(self)

    # Opening

    def _open(self, store_id: bytes | None) -> StoreFormat:
        folder = self._folder.database
        if not folder.exists():
            record = new_format(time.time_ns() // 1_000_000, store_id)
            self._folder.make_database(lambda target: self._make(target, record))
        check_logs(folder)
        database = self._database = RocksDatabase(folder, self.url, self._budget)
        found = database.read_format()
        found.check(self.url, store_id)
        if found.is_older:
            found = found.raised()
            database.write_format(found)
        mark = database.read_mark() or self._first_mark()
        self._salt, self._seed = mark.salt, mark.seed
        self._bring_in(database, mark)
        return found

    def _make(self, target: Path, record: StoreFormat) -> None:
        database = RocksDatabase(target, self.url, self._budget, create=True)
        try:
            database.write_format(record)
        finally:
            database.close()

    def _first_mark(self) -> Mark:
        """Of a folder that never had a journal. One that has segments and no mark is damaged."""
        if segment_paths(self._folder.database):
            raise StoreCorrupt(f"{self.url}: its journal's mark is missing")
        return Mark(secrets.token_bytes(_SALT_BYTES), 1, clean=True)

    def _bring_in(self, database: RocksDatabase, mark: Mark) -> None:
        """What the journal holds goes into RocksDB at once. What a sync that failed left in the system's memory is so
        written again, and not taken for safe."""
        layer = Layer()
        following = replay(self._folder.database, mark, layer)
        # The number of a record that was cut off is not given again.
        self._number = following + 1
        self._retirer.move(layer, list, self)
        database.write([], [], Mark(mark.salt, self._number, clean=False))
        database.sync()
        try:
            self._segments.take_over()
            if not self._segments.ready:
                self._segments.make(JOURNAL_SEGMENT_BYTES, written=False)
        except OSError as error:
            raise StoreError(f"{self.url}: no segment for its journal: {error.strerror}") from error
        self._segment = self._segments.take(0)

    # Reading

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._reading:
            database = self._opened()
            with self._looking:
                layers = self._layers
                found = [look_up(layers, key) for key in keys]
            values = [value for _, value in found]
            unknown = [index for index, (known, _) in enumerate(found) if not known]
            if unknown:
                below = database.get([keys[index] for index in unknown])
                for index, value in zip(unknown, below, strict=True):
                    values[index] = value
        self._wait_until_synced()
        return values

    def scan(self, start: bytes, end: bytes, limit: int, max_bytes: int = NO_LIMIT) -> list[Row]:
        if start >= end or limit <= 0:
            return []
        rows = self._scan(start, end, limit, max_bytes)
        self._wait_until_synced()
        return rows

    def _scan(self, start: bytes, end: bytes, limit: int, max_bytes: int) -> list[Row]:
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(end)
        if limit >= ROCKS_LONG_SCAN:
            # What is read once would only push out of the cache what is asked for again.
            bounds.fill_cache(False)
            rows = self._scan_in_bulk(bounds, start, end, limit, max_bytes)
            if rows is not None:
                return rows
        with self._reading:
            iterator = self._opened().handle.iter(bounds)
            changes, ranges = self._changes(start, end, limit, max_bytes)
        try:
            return merged(SteppedRows(iterator, start, ranges), changes, limit, max_bytes)[0]
        except Exception as error:
            failure = self._translated(error)
        finally:
            del iterator
        # Raised out here, the error carries no frame that would keep the iterator, and so the database, alive.
        raise failure

    def _scan_in_bulk(self, bounds: Any, start: bytes, end: bytes, limit: int, max_bytes: int) -> list[Row] | None:
        """None where the scan is to be made row by row: ranges are to be leapt over, or it is not sure that what looked
        like the end was one."""
        with self._reading:
            items = self._opened().handle.items(from_key=start, read_opt=bounds)
            changes, ranges = self._changes(start, end, limit, max_bytes)
        below, iterator = BulkRows(items, start), None
        try:
            if ranges:
                return None
            rows, ended = merged(below, changes, limit, max_bytes)
            if ended:
                with self._reading:
                    iterator = self._opened().handle.iter(bounds)
                if not is_end(iterator, below.following):
                    return None
            return rows
        except Exception as error:
            failure = self._translated(error)
        finally:
            del items, below, iterator
        raise failure

    def _changes(self, start: bytes, end: bytes, limit: int, max_bytes: int) -> tuple[list[Change], list[Range]]:
        with self._looking:
            return changes_in(self._layers, start, end, limit, max_bytes), ranges_of(self._layers)

    def _wait_until_synced(self) -> None:
        """What was read may be of the commit under way: nobody may know of it before it is safe."""
        commit = self._commit
        if commit is not None:
            with commit:
                pass
        self.refuse_fenced()

    def refuse_fenced(self) -> None:
        if self._fenced is not None:
            raise StoreFenced(f"{self.url}: fenced after: {self._fenced}")

    # Writing

    def commit(self, batch: Batch) -> None:
        with self._writing:
            self._refuse_closed()
            self._room = self.free_bytes()
            if not self._has_room(batch):
                raise StoreFull(
                    f"{self.url}: {self._room} bytes free, {self._floor_bytes} are kept for the store's own work"
                )
            record = encode(batch.ranges, batch.ops, self._number)
            self._wait_for_room(len(record))
            with self._looking:
                self._take_in(batch, record)
            self._sync(batch)

    def begin(self, batch: Batch) -> bool:
        if batch.ranges or not self._writing.acquire(blocking=False):
            return False
        begun = False
        try:
            self._refuse_closed()
            begun = self._has_room(batch) and self._begin(batch)
            return begun
        finally:
            if not begun:
                self._writing.release()

    def _begin(self, batch: Batch) -> bool:
        if not self._looking.acquire(blocking=False):
            return False
        try:
            record = encode(batch.ranges, batch.ops, self._number)
            if not self._fits(len(record)) and not self._turn_over(len(record)):
                return False
            self._take_in(batch, record)
        finally:
            self._looking.release()
        return True

    def finish(self, batch: Batch) -> None:
        try:
            self._sync(batch)
        finally:
            self._writing.release()

    def _take_in(self, batch: Batch, record: bytearray) -> None:
        """Into memory; what reads it waits for the sync."""
        commit = threading.Lock()
        commit.acquire()
        self._commit = commit
        self._layers[0].apply(batch.ranges, batch.ops, batch.bytes)
        self._record = record
        self._number += 1

    def _fits(self, size: int) -> bool:
        layer, segment = self._layers[0], self._segment
        return (
            segment is not None
            and segment.fits(size)
            and layer.weight < JOURNAL_SEGMENT_BYTES
            and len(layer.ranges) < JOURNAL_RANGES
        )

    def _wait_for_room(self, size: int) -> None:
        """Returns when the youngest segment has room for a record of so many bytes."""
        while not self._has_segment(size):
            self._retirer.want(size)
            time.sleep(ROCKS_STALL_SECONDS)
            self._refuse_closed()
            problem = self._retirer.problem
            if problem is not None:
                self._retirer.problem = None
                self._make_do(size, problem)

    def _has_segment(self, size: int) -> bool:
        with self._looking:
            return self._fits(size) or self._turn_over(size)

    def _make_do(self, size: int, problem: str) -> None:
        """There is no space for another segment: the one that is there is used again at once."""
        self._retire_all()
        if not self._fits(size):
            raise StoreFull(f"{self.url}: no space for its journal: {problem}")

    def _turn_over(self, size: int = 0) -> bool:
        """Begins the next segment, where one is ready. Called by who holds `_writing` and `_looking`."""
        following = self._segments.take(size)
        if following is None:
            return False
        segment, self._segment = self._segment, following
        assert segment is not None
        full = self._layers[0]
        self._layers = [Layer(), *self._layers]
        self._retirer.add(full, segment, self._number)
        self._retirer.wake()
        return True

    def _sync(self, batch: Batch) -> None:
        segment = self._segment
        try:
            assert segment is not None
            seal(self._record, self._seed)
            self._segments.write(segment, self._record)
        except Exception as error:
            self._fenced = str(error)
            raise self._translated(error) from error
        finally:
            self._record = bytearray()
            self._let_readers_go()
        self._look_at_space(batch)
        self._unrelieved_bytes += batch.bytes
        if self._unrelieved_bytes > ROCKS_RELIEF_BYTES:
            self._unrelieved_bytes = 0
            self._budget.relieve()
        if segment.at * 2 > segment.size and not self._segments.ready:
            self._retirer.wake()

    def _look_at_space(self, batch: Batch) -> None:
        """Now and then: the journal has its space already. Where space is short, each time."""
        self._unlooked_bytes += batch.bytes
        room = self._room
        if self._unlooked_bytes > JOURNAL_LOOK_BYTES or room is None or room < 4 * self._floor_bytes:
            self._unlooked_bytes = 0
            self._room = self.free_bytes()

    def _let_readers_go(self) -> None:
        commit, self._commit = self._commit, None
        assert commit is not None, "a commit is under way"
        commit.release()

    # From the journal into RocksDB

    def younger_than(self, layer: Layer) -> list[Layer]:
        layers = self._layers
        return layers[: layers.index(layer)]

    def write(self, ranges: list[Range], changes: list[Change]) -> None:
        written = False
        while not written:
            with self._reading:
                written = self._opened().try_to_write(ranges, changes)
            if not written:
                time.sleep(ROCKS_STALL_SECONDS)

    def lacks(self, keys: list[bytes]) -> list[bool]:
        with self._reading:
            return [value is None for value in self._opened().get(keys)]

    def sync_below(self, following: int) -> None:
        """Notes that all records before this one are in RocksDB, when they are. What was left out because a younger
        record says better must be safe in that one."""
        self._wait_until_synced()
        database = self._opened()
        database.write([], [], Mark(self._salt, following, clean=False))
        database.sync()

    def drop(self, layer: Layer) -> None:
        """Its rows are in RocksDB."""
        with self._reading, self._looking:
            self._layers = [each for each in self._layers if each is not layer]

    def fence(self, error: Exception) -> None:
        if self._fenced is None and not self._closed:
            self._fenced = str(error)

    def journaled_bytes(self) -> int:
        return sum(layer.weight for layer in self._layers)

    def retire_soon(self) -> None:
        """Begins to bring everything into RocksDB and does not wait for it."""
        self._retirer.hurry()

    def turn_over_now(self) -> None:
        """Begins the next segment, where nothing is in the way of it."""
        if self._writing.acquire(blocking=False):
            try:
                with self._looking:
                    if self._layers[0].weight:
                        self._turn_over()
            finally:
                self._writing.release()

    def _retire_all(self) -> None:
        """Brings into RocksDB what the journal holds. Called by who holds `_writing`."""
        self._refuse_closed()
        self._retirer.drain()
        layer, segment = self._layers[0], self._segment
        if not layer.weight or segment is None:
            return
        try:
            self._retirer.move(layer, list, self)
            self.sync_below(self._number)
        except Exception as error:
            self.fence(error)
            raise
        with self._reading, self._looking:
            self._layers = [Layer()]
        segment.at = 0

    # RocksDB's own memory, space and copies

    def buffered_bytes(self) -> int:
        database = self._database
        return 0 if database is None else database.buffered_bytes()

    def flush_soon(self) -> None:
        """Starts to write the buffers to a table and does not wait for it."""
        if not self._copying.acquire(blocking=False):
            return
        try:
            if self._database is not None:
                self._database.flush(wait=False)
        except StoreError:
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
        store is not written to any more, so its buffers would not be flushed by themselves. Of the journal's files those
        go that are not in use."""
        self.flush()
        with self._copying, self._writing:
            self._refuse_closed()
            self._retirer.shrink()

    def copy(self, target: Path) -> Copy:
        self.flush()
        return _RocksCopy(self, self._folder, target)

    def flush(self) -> None:
        """Brings the journal into RocksDB and RocksDB's buffers into a table."""
        with self._copying:
            self._refuse_closed()
            self.turn_over_now()
            self._retirer.drain()
            with self._writing:
                self._retire_all()
            self._opened().flush()

    def link_files(self, target: Path) -> None:
        """Makes `target`, which must be on the store's own disk, a database with what is written now. Where the store was
        flushed just before there is little to write and nothing but links to make."""
        with self._copying, self._writing:
            self._retire_all()
            database = self._opened()
            database.flush()
            database.link_files(target)

    def close(self) -> None:
        with self._copying, self._writing:
            self._closed = True
            self._budget.leave(self)
            try:
                self._retirer.stop()
                self._empty_journal()
            finally:
                self._let_go()

    def _empty_journal(self) -> None:
        """So that the next start has nothing to replay. After a failure the journal stays as it is."""
        database = self._database
        if database is None or self._fenced is not None:
            return
        for layer in reversed(self._layers):
            self._retirer.move(layer, partial(self.younger_than, layer), self)
        database.write([], [], Mark(self._salt, self._number, clean=True))
        database.sync()

    def _let_go(self) -> None:
        with self._reading:
            database, self._database = self._database, None
            try:
                if database is not None:
                    database.close()
            finally:
                self._segments.close()
                self._folder.release()

    def _refuse_closed(self) -> None:
        self.refuse_fenced()
        self._opened()

    def _opened(self) -> RocksDatabase:
        if self._database is None:
            raise StoreFenced(f"{self.url} is closed")
        return self._database

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
        self._store.link_files(self._folder.copy)

    def save(self) -> None:
        make_fresh_folder(self._target)
        try:
            shutil.move(self._folder.copy, self._target / self._folder.database.name)
        except OSError as error:
            raise StoreError(f"{self._target}: {error.strerror}") from error

    def close(self) -> None:
        self._folder.drop_copy()
