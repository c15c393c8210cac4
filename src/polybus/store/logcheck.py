"""Looks over RocksDB's logs before RocksDB reads them, for damage that it would not report.

RocksDB checks the checksum of every record that it reads, but three kinds of damage keep it from reading at
all. A wrong length in a log's last block looks like a record that was cut off by a crash: everything behind it
is dropped without a word. A zeroed header in the middle looks like the end of the log. A type that belongs to
recycled logs, which we never make, sends it into an endless loop. One flipped bit is enough for each. So the
chain of headers is walked here first; payloads are left to RocksDB. Nothing is ever changed here.

The format: blocks of 32 KiB; in a block records of a header (checksum, length, type) and a payload; a record
never crosses a block. The checksum is CRC-32C over type and payload, masked. The log of commits (`*.log`) and
the log of table files (`MANIFEST-*`) share it.
"""

from __future__ import annotations

import struct
from pathlib import Path

from polybus.errors import StoreCorrupt

_BLOCK = 32 * 1024
_HEADER = struct.Struct("<IHB")
_RECYCLED_TYPES = range(5, 9)
_MASK_DELTA = 0xA282EAD8


def check_logs(folder: Path) -> None:
    """Raises StoreCorrupt where a log in this folder is damaged in a way that RocksDB would pass over."""
    for path in sorted([*folder.glob("*.log"), *folder.glob("MANIFEST-*")]):
        check_log(path)


def check_log(path: Path) -> None:
    size = path.stat().st_size
    base = 0
    ended = False
    with path.open("rb") as log:
        while block := log.read(_BLOCK):
            end = 0 if ended else _check_block(path, block, base, last=base + len(block) >= size)
            if end < len(block):
                ended = True
                if block[end:].strip(b"\0"):
                    raise StoreCorrupt(f"{path}: more records after an empty one, near byte {base + end}")
            base += len(block)


def _check_block(path: Path, block: bytes, base: int, *, last: bool) -> int:
    """Walks one block; gives where its records end, which is before its length only at an empty header."""
    at = 0
    while len(block) - at >= _HEADER.size:
        checksum, length, kind = _HEADER.unpack_from(block, at)
        if checksum == 0 and length == 0 and kind == 0:
            return at
        if kind in _RECYCLED_TYPES:
            raise StoreCorrupt(f"{path}: a record of impossible type {kind} at byte {base + at}")
        start = at + _HEADER.size
        if start + length > len(block) and (not last or _is_whole(checksum, block, start)):
            raise StoreCorrupt(f"{path}: a record of impossible length {length} at byte {base + at}")
        at = start + length
    return len(block)


def _is_whole(checksum: int, block: bytes, start: int) -> bool:
    """Whether the record that claims to go on past the end of the log is in truth complete.

    A record that a crash cut off fits its checksum at no length; one whose length is wrong fits at the true one.
    """
    rotated = (checksum - _MASK_DELTA) & 0xFFFFFFFF
    wanted = ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF
    crc = 0xFFFFFFFF
    for byte in block[start - 1 :]:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
        if crc ^ 0xFFFFFFFF == wanted:
            return True
    return False


def _table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _table()
