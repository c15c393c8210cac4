"""How a commit to RocksDB gives way to everybody else: the GIL, readers, and RocksDB's own work."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from polybus import limits
from polybus.errors import StoreError, StoreFenced, StoreFull
from polybus.store.base import Batch
from polybus.store.rocks import RocksStore

DEADLINE_SECONDS = 30.0


class Disk:
    """Under the journal: what it does to a write can be told."""

    def __init__(self) -> None:
        self.write: Callable[[int, memoryview, int], int] = os.pwrite

    def __call__(self, descriptor: int, data: memoryview, at: int) -> int:
        return self.write(descriptor, data, at)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def store(tmp_path: Path, disk: Disk) -> Iterator[RocksStore]:
    opened = RocksStore(tmp_path / "store", write=disk)
    yield opened
    opened.close()


def waits_for_the_sync(store: RocksStore, reader: threading.Thread) -> bool:
    """Whether a reader that has begun is still not through."""
    reader.join(0.2)
    return reader.is_alive()


def one_row(key: bytes, value: bytes) -> Batch:
    batch = Batch()
    batch.put(key, value)
    return batch


@pytest.fixture
def unforced_switches() -> Iterator[None]:
    """The GIL changes hands only where somebody lets it go."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(DEADLINE_SECONDS)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("unforced_switches")
def test_others_run_while_a_commit_syncs(store: RocksStore, disk: Disk) -> None:
    turns = 0
    ended = False

    def take_turns() -> None:
        nonlocal turns
        while not ended:
            turns += 1
            time.sleep(0)

    moved = False

    def write(descriptor: int, data: memoryview, at: int) -> int:
        nonlocal moved
        before = turns
        written = os.pwrite(descriptor, data, at)
        moved = moved or turns > before
        return written

    disk.write = write
    other = threading.Thread(target=take_turns)
    other.start()
    try:
        end = time.monotonic() + DEADLINE_SECONDS
        while not moved and time.monotonic() < end:
            store.commit(one_row(b"key", b"value"))
    finally:
        ended = True
        other.join()
    assert moved


def test_nothing_is_read_before_it_is_synced(store: RocksStore, disk: Disk) -> None:
    heard: list[object] = []
    readers = [
        threading.Thread(target=lambda: heard.append(store.get([b"key"]))),
        threading.Thread(target=lambda: heard.append(store.scan(b"k", b"l", 10))),
    ]

    def write(descriptor: int, data: memoryview, at: int) -> int:
        for reader in readers:
            reader.start()
        assert all(waits_for_the_sync(store, reader) for reader in readers)
        written = os.pwrite(descriptor, data, at)
        heard.append("synced")
        return written

    disk.write = write
    store.commit(one_row(b"key", b"value"))
    for reader in readers:
        reader.join(DEADLINE_SECONDS)
    assert heard[0] == "synced"
    assert [b"value"] in heard
    assert [(b"key", b"value")] in heard


def test_nothing_is_read_of_a_commit_whose_sync_failed(store: RocksStore, disk: Disk) -> None:
    def write(descriptor: int, data: memoryview, at: int) -> int:
        raise OSError("the disk is gone")

    disk.write = write
    with pytest.raises(StoreError, match="the disk is gone"):
        store.commit(one_row(b"key", b"value"))
    with pytest.raises(StoreFenced):
        store.get([b"key"])
    with pytest.raises(StoreFenced):
        store.scan(b"k", b"l", 10)
    with pytest.raises(StoreFenced):
        store.commit(one_row(b"key", b"value"))


def test_a_write_in_pieces_is_one_commit(store: RocksStore, disk: Disk, tmp_path: Path) -> None:
    disk.write = lambda descriptor, data, at: os.pwrite(descriptor, data[:1000], at)
    store.commit(one_row(b"key", b"value" * 2_000))
    disk.write = lambda descriptor, data, at: 0
    with pytest.raises(StoreError, match="nothing was written"):
        store.commit(one_row(b"other", b"value"))
    store.close()
    with closing(RocksStore(tmp_path / "store")) as again:
        assert again.get([b"key", b"other"]) == [b"value" * 2_000, None]


def test_a_commit_in_two_halves_is_read_only_after_the_second(store: RocksStore) -> None:
    heard: list[object] = []
    reader = threading.Thread(target=lambda: heard.append(store.get([b"key"])))
    batch = one_row(b"key", b"value")
    assert store.begin(batch)
    reader.start()
    assert waits_for_the_sync(store, reader)
    assert heard == []
    store.finish(batch)
    reader.join(DEADLINE_SECONDS)
    assert heard == [[b"value"]]


def test_a_commit_begins_only_where_it_need_not_wait(tmp_path: Path) -> None:
    free = plenty = 2 * limits.ROCKS_FLOOR_BYTES
    store = RocksStore(tmp_path / "store", free_space=lambda path: free)
    batch = one_row(b"key", b"value")
    assert store.begin(batch)
    assert not store.begin(batch)  # one at a time
    free = 1
    store.finish(batch)
    assert not store.begin(batch)
    with pytest.raises(StoreFull):
        store.commit(batch)
    free = plenty
    assert not store.begin(batch)  # nobody has looked since
    store.commit(batch)
    assert store.begin(batch)
    store.finish(batch)
    store.close()
    with pytest.raises(StoreFenced):
        store.begin(batch)


def test_a_store_is_closed_after_the_second_half(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "store")
    batch = one_row(b"key", b"value")
    assert store.begin(batch)
    closer = threading.Thread(target=store.close)
    closer.start()
    store.finish(batch)
    closer.join(DEADLINE_SECONDS)
    again = RocksStore(tmp_path / "store")
    assert again.get([b"key"]) == [b"value"]
    again.close()


def test_a_commit_waits_for_rocksdb_without_holding_anybody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With buffers and triggers this small RocksDB is soon behind; it says so instead of keeping the GIL."""
    monkeypatch.setattr(limits, "ROCKS_WRITE_BUFFER_BYTES", 64 * 1024)
    monkeypatch.setattr(limits, "ROCKS_FRESH_FILES", 2)
    monkeypatch.setattr(limits, "ROCKS_FRESH_FILES_SLOW", 2)
    monkeypatch.setattr(limits, "ROCKS_FRESH_FILES_MOST", 3)
    waits = 0
    really = time.sleep

    def sleep(seconds: float) -> None:
        nonlocal waits
        waits += 1
        really(seconds)

    monkeypatch.setattr("polybus.store.rocks.time.sleep", sleep)
    store = RocksStore(tmp_path / "store")
    end = time.monotonic() + DEADLINE_SECONDS
    rows = 0
    refused = False
    while not (waits and refused) and time.monotonic() < end:
        batch = Batch()
        for _ in range(100):
            batch.put(b"%08d" % rows, b"v" * 1100)
            rows += 1
        if store.begin(batch):
            store.finish(batch)
        else:
            refused = True
            store.commit(batch)
    assert waits
    assert refused
    assert len(store.scan(b"0", b":", rows + 1)) == rows
    store.close()
