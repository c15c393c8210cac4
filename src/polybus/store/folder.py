"""The folder of a store that is files: who holds it, and how it comes into being whole or not at all.

A folder holds a lock file and the database in `db`. A new database is made in `db.new` and renamed when it is
complete and synced, so a crash while it is made leaves nothing that could be taken for an empty store. What is
not ours is never touched: a folder with other things in it is refused.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from polybus.errors import StoreError, StoreFenced
from polybus.store.permissions import close_folder, make_folder

_LOCK = "lock"
_DATABASE = "db"
_UNFINISHED = "db.new"
_COPY = "copy"
_OURS = frozenset({_LOCK, _DATABASE, _UNFINISHED, _COPY, "lost+found"})


class StoreFolder:
    """A folder held by this handle alone, in this process and among all others, until `release`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = path / _DATABASE
        self.copy = path / _COPY
        """Where a copy is made that then goes elsewhere; what a crash left of one is removed at the next opening."""
        try:
            make_folder(path)
            self._refuse_foreign()
            self._lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from error
        self._take_lock()
        self.drop_copy()
        self._close_to_others()

    def _close_to_others(self) -> None:
        try:
            close_folder(self.path)
        except StoreError:
            self.release()
            raise

    def drop_copy(self) -> None:
        shutil.rmtree(self.copy, ignore_errors=True)

    def make_database(self, make: Callable[[Path], None]) -> None:
        """Lets `make` fill a fresh folder and puts it in place as the database."""
        unfinished = self.path / _UNFINISHED
        shutil.rmtree(unfinished, ignore_errors=True)
        make(unfinished)
        sync_folder(unfinished)
        unfinished.rename(self.database)
        sync_folder(self.path)

    def release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _refuse_foreign(self) -> None:
        foreign = sorted(entry.name for entry in self.path.iterdir() if entry.name not in _OURS)
        if foreign:
            raise StoreError(f"{self.path}: not a messaging store, it holds {foreign[0]!r}; give an empty folder")

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            raise StoreFenced(f"{self.path}: another process or handle has this store open") from error


def make_fresh_folder(path: Path) -> None:
    """Makes a folder that must not exist yet."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error


def sync_folder(path: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
