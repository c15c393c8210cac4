"""A store whose rows are all still in RocksDB's log, or all in its journal; copies of it with that cut or damaged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from polybus.store.base import Batch
from polybus.store.journal import PAGE, segment_paths
from polybus.store.rocks import RocksStore
from polybus.store.rocks_database import RocksDatabase
from polybus.store.rocks_options import shared_budget

BATCHES = 30
ROWS = 3


def batch_key(number: int) -> bytes:
    return number.to_bytes(4, "big")


class DeadStore:
    """The store of a process that died after its last commit, with everything in one file."""

    def __init__(self, folder: Path, how: str) -> None:
        self.path = folder / "store"
        # A process of its own, not a fork: RocksDB's threads do not come along into a fork.
        subprocess.run([sys.executable, __file__, str(self.path), how], check=True)
        self._log_path = self._find()
        self.log = self._log_path.read_bytes()
        self.records = self._records()
        """Where each begins."""

    def _find(self) -> Path:
        raise NotImplementedError

    def _records(self) -> list[int]:
        raise NotImplementedError

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


class LoggedStore(DeadStore):
    """What RocksDB holds, in its log: nothing was flushed to a table."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "log")

    def _find(self) -> Path:
        (found,) = [each for each in (self.path / "db").glob("*.log") if each.stat().st_size > 1_000]
        return found

    def _records(self) -> list[int]:
        starts, at = [], 0
        while at < len(self.log):
            starts.append(at)
            at += 7 + int.from_bytes(self.log[at + 4 : at + 6], "little")
        return starts


class JournaledStore(DeadStore):
    """Every batch is a record in the first segment of the journal."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "journal")

    def _find(self) -> Path:
        (found,) = segment_paths(self.path / "db")
        return found

    def _records(self) -> list[int]:
        return [at * PAGE for at in range(BATCHES)]

    def batches_before(self, cut: int) -> int:
        return min(cut // PAGE, BATCHES)


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


def batch_of(number: int) -> Batch:
    batch = Batch()
    for row in range(ROWS):
        batch.put(batch_key(number) + bytes([row]), bytes([number, row]) * 20)
    return batch


def write_and_die(path: Path, how: str) -> None:
    store = RocksStore(path)
    if how == "journal":
        for number in range(BATCHES):
            store.commit(batch_of(number))
    else:
        store.close()
        database = RocksDatabase(path / "db", "a store", shared_budget())
        for number in range(BATCHES):
            database.write([], list(batch_of(number).ops))
            database.sync()
    os._exit(0)


if __name__ == "__main__":
    write_and_die(Path(sys.argv[1]), sys.argv[2])
