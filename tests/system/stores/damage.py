"""A RocksDB store whose rows are all still in its log, and copies of it with that log cut or damaged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from polybus.store.base import Batch
from polybus.store.rocks import RocksStore

BATCHES = 30
ROWS = 3


def batch_key(number: int) -> bytes:
    return number.to_bytes(4, "big")


class LoggedStore:
    """The store of a process that died after its last commit: nothing was flushed to a table."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store"
        # A process of its own, not a fork: RocksDB's threads do not come along into a fork.
        subprocess.run([sys.executable, __file__, str(self.path)], check=True)
        (self._log_path,) = [each for each in (self.path / "db").glob("*.log") if each.stat().st_size > 1_000]
        self.log = self._log_path.read_bytes()
        self.records = _records(self.log)

    def copy(
        self, target: Path, *, cut: int | None = None, zeros: int = 0, flip: tuple[int, int] | None = None
    ) -> Path:
        """A fresh copy with the log ending at `cut`, then zeros, or with one bit flipped."""
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.path, target)
        log = bytearray(self.log[:cut]) + bytes(zeros)
        if flip is not None:
            log[flip[0]] ^= 1 << flip[1]
        (target / "db" / self._log_path.name).write_bytes(log)
        return target

    def repair(self, target: Path) -> None:
        (target / "db" / self._log_path.name).write_bytes(self.log)

    def batches_before(self, cut: int) -> int:
        ends = [*self.records[1:], len(self.log)]
        return sum(end <= cut for end in ends)


def held_batches(path: Path) -> int:
    """How many batches, counted from the first, the store holds; it may hold no others and none in part."""
    store = RocksStore(path)
    try:
        rows = store.scan(b"", b"\xff", 10_000)
    finally:
        store.close()
    count = len(rows) // ROWS
    expected = [
        (batch_key(number) + bytes([row]), bytes([number, row]) * 20)
        for number in range(count)
        for row in range(ROWS)
    ]
    assert rows == expected
    return count


def write_and_die(path: Path) -> None:
    store = RocksStore(path)
    for number in range(BATCHES):
        batch = Batch()
        for row in range(ROWS):
            batch.put(batch_key(number) + bytes([row]), bytes([number, row]) * 20)
        store.commit(batch)
    os._exit(0)


def _records(log: bytes) -> list[int]:
    starts, at = [], 0
    while at < len(log):
        starts.append(at)
        at += 7 + int.from_bytes(log[at + 4 : at + 6], "little")
    return starts


if __name__ == "__main__":
    write_and_die(Path(sys.argv[1]))
