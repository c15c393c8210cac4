"""The files of a journal: made beforehand, written page by page, and used again when their rows are in the database.

A file that has its size and its blocks costs a sync nothing but the data; one that grows, or whose blocks were never
written, makes the file system write its own records, too. So segments are filled with zeros when they are made and are
never cut. They are opened for synced writes: a commit is one call into the system, during which Python's lock is free.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from polybus.limits import JOURNAL_SEGMENT_BYTES
from polybus.store.folder import sync_folder
from polybus.store.journal import NAME, segment_paths

Write = Callable[[int, memoryview, int], int]
"""Writes these bytes at this place, returns when they are safe, and says how many they were, as `os.pwrite` does with a
descriptor for synced writes."""
_ZEROS = bytes(1024 * 1024)


class Segment:
    """One file, and how far it is written."""

    __slots__ = ("at", "descriptor", "path", "size")

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.size = size
        self.at = 0

    def fits(self, size: int) -> bool:
        return self.at + size <= self.size


class Segments:
    """All files of one journal. Only one thread at a time makes and takes; `ready` may be looked at by any."""

    def __init__(self, database: Path, write: Write) -> None:
        self._database = database
        self._write = write
        self.ready: list[Segment] = []
        """Made, open, and not in use."""
        self._all: list[Segment] = []
        self._last = 0

    @property
    def count(self) -> int:
        return len(self._all)

    def take_over(self) -> None:
        """Opens the files that are there, none of whose records is needed any more; those of another size go."""
        for path in segment_paths(self._database):
            self._last = max(self._last, _number(path))
            if path.stat().st_size == JOURNAL_SEGMENT_BYTES:
                self._add(path, os.open(path, _FLAGS), JOURNAL_SEGMENT_BYTES)
            else:
                path.unlink()

    def make(self, size: int, *, written: bool = True) -> None:
        """Makes one more. Without `written` it has its size and no contents: quicker to have, slower to use at first."""
        self._last += 1
        path = self._database / f"{NAME}{self._last:06d}"
        descriptor = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
            if written:
                _fill(path, size)
            os.fsync(descriptor)
            sync_folder(self._database)
        except OSError:
            os.close(descriptor)
            with suppress(OSError):
                path.unlink()
            raise
        self._add(path, descriptor, size)

    def _add(self, path: Path, descriptor: int, size: int) -> None:
        segment = Segment(path, descriptor, size)
        self._all.append(segment)
        self.ready.append(segment)

    def take(self, size: int) -> Segment | None:
        """One that is ready and has room for so many bytes."""
        for segment in self.ready:
            if segment.size >= size:
                self.ready.remove(segment)
                segment.at = 0
                return segment
        return None

    def give_back(self, segment: Segment) -> None:
        """Its rows are in the database. One that was made for a single large record is not kept."""
        if segment.size == JOURNAL_SEGMENT_BYTES:
            self.ready.append(segment)
        else:
            self._remove(segment)

    def shrink(self) -> None:
        """Removes what is ready."""
        while self.ready:
            self._remove(self.ready.pop())

    def _remove(self, segment: Segment) -> None:
        self._all.remove(segment)
        os.close(segment.descriptor)
        segment.path.unlink()

    def write(self, segment: Segment, record: bytearray) -> None:
        """Appends whole pages and returns when they are on the disk."""
        left = memoryview(record)
        at = segment.at
        while left:
            written = self._write(segment.descriptor, left, at)
            if written <= 0:
                raise OSError(f"{segment.path}: nothing was written")
            left = left[written:]
            at += written
        segment.at = at

    def close(self) -> None:
        for segment in self._all:
            os.close(segment.descriptor)
        self._all.clear()
        self.ready.clear()


_FLAGS = os.O_RDWR | os.O_DSYNC | os.O_CLOEXEC


def _number(path: Path) -> int:
    rest = path.name.removeprefix(NAME)
    return int(rest) if rest.isdecimal() else 0


def _fill(path: Path, size: int) -> None:
    """Through a descriptor that does not sync each piece."""
    with path.open("r+b", buffering=0) as file:
        for at in range(0, size, len(_ZEROS)):
            file.write(_ZEROS[: size - at])
