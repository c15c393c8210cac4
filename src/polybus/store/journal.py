"""The journal's records: what one commit appends, and what is found again at the next start.

A segment is a file of a fixed size, made beforehand and used again and again, in pages of 4 KiB. Each commit is one
record, which begins on a page of its own, so that no sync ever writes again what an earlier one made safe:

    magic, CRC-32, payload's length, number of changes, number of ranges, 0, number of the record   (32 bytes)
    two lengths for each range (start, end) and for each change (key, value + 1, or 0 for a deletion)   (4 bytes each)
    the bytes themselves, then zeros up to the page's end

All numbers are little-endian. The checksum covers everything behind it and begins with the journal's salt: what a sender
writes into a message can never pass for a record. Records are numbered without a gap, over all segments. The database
notes the first number that is still needed (`Mark`); whatever has a lower one is left over from an earlier use.

A record that cannot be read is where a crash cut the last commit off, unless a later one can be read: then it is damage
and is said to be.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
import sys
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from polybus.errors import StoreCorrupt
from polybus.store.layers import Change, Layer, Range

Data = bytes | mmap.mmap
PAGE: Final = 4_096
NAME: Final = "journal-"
"""What the names of segments begin with, beside the database's own files."""
_MAGIC: Final = b"PbJ1"
_HEADER: Final = struct.Struct("<4sIIIIIQ")
_HEADER_BYTES: Final = 32
_CHECKED_FROM: Final = 8
_CRC: Final = struct.Struct("<I")
_ZEROS: Final = bytes(PAGE)
_BIG_ENDIAN: Final = sys.byteorder == "big"
_MARK: Final = struct.Struct(">8sQB")


class Mark:
    """What the database notes about its journal."""

    __slots__ = ("clean", "following", "salt")

    def __init__(self, salt: bytes, following: int, clean: bool) -> None:
        self.salt = salt
        self.following = following
        """The first record that is not yet in the database."""
        self.clean = clean
        """There is none."""

    def encode(self) -> bytes:
        return _MARK.pack(self.salt, self.following, int(self.clean))

    @staticmethod
    def decode(record: bytes, where: str) -> Mark:
        if len(record) != _MARK.size:
            raise StoreCorrupt(f"{where}: its journal's mark has {len(record)} bytes, not {_MARK.size}")
        salt, following, clean = _MARK.unpack(record)
        return Mark(salt, following, bool(clean))

    @property
    def seed(self) -> int:
        return zlib.crc32(self.salt)


def encode(ranges: list[Range], ops: list[Change], number: int) -> bytearray:
    """The record of a batch, whole pages, still without its checksum."""
    lengths: list[int] = []
    parts: list[bytes] = [b"", b""]
    size = 0
    for start, end in ranges:
        lengths.append(len(start))
        lengths.append(len(end))
        size += len(start) + len(end)
        parts.append(start)
        parts.append(end)
    for key, value in ops:
        lengths.append(len(key))
        size += len(key)
        parts.append(key)
        if value is None:
            lengths.append(0)
        else:
            lengths.append(len(value) + 1)
            size += len(value)
            parts.append(value)
    size += 4 * len(lengths)
    parts[0] = _HEADER.pack(_MAGIC, 0, size, len(ops), len(ranges), 0, number)
    parts[1] = _table(lengths)
    parts.append(_ZEROS[: -(size + _HEADER_BYTES) % PAGE])
    return bytearray().join(parts)


def _table(lengths: list[int]) -> bytes:
    table = array("I", lengths)
    if _BIG_ENDIAN:
        table.byteswap()
    return table.tobytes()


def seal(record: bytearray, seed: int) -> None:
    """Puts the checksum in."""
    _CRC.pack_into(record, 4, zlib.crc32(memoryview(record)[_CHECKED_FROM:], seed))


class Record:
    """One commit, read back."""

    __slots__ = ("number", "ops", "pages_end", "ranges", "size")

    def __init__(self, number: int, pages_end: int) -> None:
        self.number = number
        self.pages_end = pages_end
        """Where the next one begins."""
        self.ranges: list[Range] = []
        self.ops: list[Change] = []
        self.size = 0


def _header(data: Data, at: int) -> tuple[int, int, int, int]:
    """Number, end of the payload, number of changes and of ranges; number 0 where there is no header."""
    if len(data) - at < _HEADER_BYTES or data[at : at + 4] != _MAGIC:
        return 0, 0, 0, 0
    _, _, size, ops, ranges, _, number = _HEADER.unpack_from(data, at)
    end = at + _HEADER_BYTES + size
    return (number, end, ops, ranges) if 8 * (ops + ranges) <= size and end <= len(data) else (0, 0, 0, 0)


def _pages_end(end: int) -> int:
    return end + -end % PAGE


def _is_whole(data: Data, at: int, end: int, seed: int) -> bool:
    (found,) = _CRC.unpack_from(data, at + 4)
    return bool(found == zlib.crc32(memoryview(data)[at + _CHECKED_FROM : _pages_end(end)], seed))


def number_at(data: Data, at: int, seed: int, least: int) -> int:
    """The number of the whole record that begins here; 0 where there is none with that number or a higher one."""
    number, end, _, _ = _header(data, at)
    return number if number >= least and number and _is_whole(data, at, end, seed) else 0


def decode(data: Data, at: int, seed: int, number: int) -> Record | None:
    """The record with this number, where it begins here and is whole."""
    found, end, ops, ranges = _header(data, at)
    if found != number or not _is_whole(data, at, end, seed):
        return None
    record = Record(number, _pages_end(end))
    lengths = array("I", data[at + _HEADER_BYTES : at + _HEADER_BYTES + 8 * (ops + ranges)])
    if _BIG_ENDIAN:
        lengths.byteswap()
    place = at + _HEADER_BYTES + 8 * (ops + ranges)
    for index in range(0, 2 * (ops + ranges), 2):
        first, second = lengths[index], lengths[index + 1]
        key = data[place : place + first]
        place += first
        if index < 2 * ranges:
            record.ranges.append((key, data[place : place + second]))
            place += second
        elif second == 0:
            record.ops.append((key, None))
        else:
            record.ops.append((key, data[place : place + second - 1]))
            place += second - 1
    record.size = place - at
    return record


def replay(database: Path, mark: Mark, layer: Layer) -> int:
    """Brings into the layer what the segments in the database's folder hold beyond the mark; gives the number that the
    next record would have. StoreCorrupt where one is missing or damaged that must have been there."""
    if mark.clean:
        return mark.following
    number = mark.following
    for path in _in_order(database, mark):
        number = _replay_segment(path, mark, layer, number)
    return number


def _replay_segment(path: Path, mark: Mark, layer: Layer, number: int) -> int:
    seed = mark.seed
    at = 0
    with _Looked(path) as looked:
        data = looked.data
        while (record := decode(data, at, seed, number)) is not None:
            layer.apply(record.ranges, record.ops, record.size)
            number += 1
            at = record.pages_end
        if at == 0:
            raise StoreCorrupt(f"{path}: record {number} of the journal is missing")
        looked.refuse_later(at, seed, number)
    return number


def _in_order(database: Path, mark: Mark) -> list[Path]:
    """The segments that are still needed, by the numbers of their first records."""
    firsts: list[tuple[int, Path]] = []
    for path in segment_paths(database):
        with _Looked(path) as looked:
            first = number_at(looked.data, 0, mark.seed, mark.following)
            if first:
                firsts.append((first, path))
            else:
                looked.refuse_later(0, mark.seed, mark.following)
    return [path for _, path in sorted(firsts)]


class _Looked:
    """A segment that is only looked at, without a copy of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._size = os.fstat(self._descriptor).st_size
        self.data: Data = b"" if not self._size else mmap.mmap(self._descriptor, 0, prot=mmap.PROT_READ)

    def __enter__(self) -> _Looked:
        return self

    def __exit__(self, *_: object) -> None:
        if isinstance(self.data, mmap.mmap):
            self.data.close()
        os.close(self._descriptor)

    def refuse_later(self, at: int, seed: int, number: int) -> None:
        """Where one record cannot be read and a later one can, no crash has cut it off."""
        data = self.data
        for start, end in self._written(at):
            for page in range(start, end, PAGE):
                if data[page : page + 4] == _MAGIC and (later := number_at(data, page, seed, number)):
                    raise StoreCorrupt(
                        f"{self._path}: record {number} of the journal is damaged at byte {at}; record {later} follows it"
                    )

    def _written(self, at: int) -> Iterator[tuple[int, int]]:
        """Where the file was ever written to, in whole pages."""
        while at < self._size:
            try:
                start = os.lseek(self._descriptor, at, os.SEEK_DATA)
                at = os.lseek(self._descriptor, start, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but holes
                    return
                start, at = at, self._size
            yield start - start % PAGE, at


def segment_paths(database: Path) -> list[Path]:
    return sorted(path for path in database.iterdir() if path.name.startswith(NAME))
