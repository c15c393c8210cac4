"""Stores that are only looked at: nothing is written, nothing is repaired, no owner is displaced.

A folder that a bus has open is refused, for what is read there would be of several moments. How databases are
looked at is in `reading_postgres`.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from polybus.errors import ConfigError, StoreCorrupt, StoreError, StoreFenced
from polybus.limits import CHECK_CACHE_BYTES, STORE_COPY_BYTES, STORE_COPY_ROWS
from polybus.rows import Row
from polybus.store.base import Store
from polybus.store.format import StoreFormat
from polybus.store.journal import Mark, replay, segment_paths
from polybus.store.layers import Layer, changes_in, look_up, ranges_of
from polybus.store.logcheck import check_logs
from polybus.store.rocks_database import MARK_KEY, RECORD_KEY, read_own
from polybus.store.rocks_options import Budget, families, rocks_options
from polybus.store.rocks_scan import SteppedRows, merged

DATABASE: Final = "db"
LOCK: Final = "lock"
"""What a store's folder holds (see `store.folder`)."""
_BINDINGS_OWN: Final = "rocksdict-config.json"


class StoreReader(ABC):
    """The rows of one store as they were when it was opened."""

    url: str
    store_id: bytes

    @abstractmethod
    def page(self, start: bytes, end: bytes) -> list[Row]:
        """The first rows with start <= key < end, so many that they can be held; none where there is none."""

    def rows(self, start: bytes, end: bytes) -> Iterator[Row]:
        """Rows with start <= key < end in key order, however many there are."""
        while page := self.page(start, end):
            yield from page
            start = page[-1][0] + b"\0"

    @abstractmethod
    def get(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    @abstractmethod
    def close(self) -> None: ...


class OpenStoreReader(StoreReader):
    """An open store, looked at by the one who has it open."""

    def __init__(self, store: Store) -> None:
        self.url = store.url
        self.store_id = store.store_id
        self._store = store

    def page(self, start: bytes, end: bytes) -> list[Row]:
        return self._store.scan(start, end, STORE_COPY_ROWS, STORE_COPY_BYTES)

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._store.get(keys)

    def close(self) -> None:
        """Whoever opened the store closes it."""


def open_reader(url: str) -> StoreReader:
    """The store at this address, as users write it after `--store`."""
    scheme, colon, rest = url.partition(":")
    if colon and scheme == "rocksdb" and rest:
        return RocksReader(Path(rest))
    if colon and scheme in ("postgresql", "postgres"):
        try:
            from polybus.operations.store_reader_postgres import PostgresReader
        except ImportError as error:
            raise ConfigError("a PostgreSQL store needs: pip install 'polybus[postgres]'") from error
        return PostgresReader(url)
    raise ConfigError("a store that can be looked at is rocksdb:PATH or postgresql://HOST/DATABASE?schema=NAME")


class RocksReader(StoreReader):
    """A store in a folder. The binding writes a file of its own even to read, so it is given a folder of links."""

    def __init__(self, folder: Path) -> None:
        self.url = f"rocksdb:{folder}"
        self._database = folder / DATABASE
        self._db: Any = None
        self._layer = Layer()
        self._lock = -1
        if not self._database.is_dir():
            raise StoreError(f"{folder}: there is no messaging store")
        self._links = tempfile.TemporaryDirectory(prefix="polybus-")
        try:
            self._share_lock(folder / LOCK)
            check_logs(self._database)
            self._link_files(Path(self._links.name))
            self.store_id = self._open().store_id
        except BaseException:
            self.close()
            raise

    def _share_lock(self, path: Path) -> None:
        try:
            self._lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return  # a copy that no bus has opened yet
        except OSError as error:
            raise StoreFenced(f"{self.url}: a bus has this store open; stop it first") from error

    def _link_files(self, links: Path) -> None:
        for file in self._database.iterdir():
            if file.name == _BINDINGS_OWN:
                (links / file.name).write_bytes(file.read_bytes())
            else:
                (links / file.name).symlink_to(file.resolve())

    def _open(self) -> StoreFormat:
        from rocksdict import AccessType, Rdict

        budget = Budget(CHECK_CACHE_BYTES, CHECK_CACHE_BYTES // 2)
        options = rocks_options(budget, create=False)
        try:
            self._db = Rdict(self._links.name, options, families(options), access_type=AccessType.read_only())
        except Exception as error:
            raise self._translated(error) from error
        record = read_own(self._db, RECORD_KEY, self._translated)
        if record is None:
            raise StoreCorrupt(f"{self.url}: its format record is missing")
        found = StoreFormat.decode(record, self.url)
        found.check(self.url)
        self._replay()
        return found

    def _replay(self) -> None:
        """What a bus that was killed left in its journal."""
        mark = read_own(self._db, MARK_KEY, self._translated)
        if mark is not None:
            replay(self._database, Mark.decode(mark, self.url), self._layer)
        elif segment_paths(self._database):
            raise StoreCorrupt(f"{self.url}: its journal's mark is missing")

    def page(self, start: bytes, end: bytes) -> list[Row]:
        from rocksdict import ReadOptions

        bounds = ReadOptions()
        # RocksDB keeps a bare pointer to the bound; `end` lives as long as this call does.
        bounds.set_iterate_upper_bound(end)
        iterator = self._db.iter(bounds)
        layers = [self._layer]
        changes = changes_in(layers, start, end, STORE_COPY_ROWS, STORE_COPY_BYTES)
        try:
            below = SteppedRows(iterator, start, ranges_of(layers))
            return merged(below, changes, STORE_COPY_ROWS, STORE_COPY_BYTES)[0]
        except Exception as error:
            raise self._translated(error) from error

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found = [look_up([self._layer], key) for key in keys]
        below = self._get_below([key for key, (known, _) in zip(keys, found, strict=True) if not known])
        return [value if known else below.pop(0) for known, value in found]

    def _get_below(self, keys: list[bytes]) -> list[bytes | None]:
        try:
            values: list[bytes | None] = self._db.get(keys)
        except Exception as error:
            raise self._translated(error) from error
        return values

    def _translated(self, error: Exception) -> StoreError:
        text = f"{self.url}: {error}".replace(self._links.name, str(self._database))
        return StoreCorrupt(text) if str(error).startswith("Corruption") else StoreError(text)

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        self._links.cleanup()
