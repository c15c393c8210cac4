"""How a commit to RocksDB gives way to everybody else: the GIL, readers, and RocksDB's own work."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from polybus import limits
from polybus.errors import StoreError, StoreFenced, StoreFull
from polybus.store.base import Batch
from polybus.store.rocks import RocksStore

DEADLINE_SECONDS = 30.0


class Watched:
    """A database whose calls can be looked into; everything else is the real one's."""

    def __init__(self, db: Any) -> None:
        self._db = db
        self.sync: Callable[[], None] = self.real_sync
        self.after_get: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def real_sync(self) -> None:
        self._db.flush_wal(True)

    def flush_wal(self, sync: bool) -> None:
        assert sync
        self.sync()

    def get(self, keys: list[bytes]) -> Any:
        values = self._db.get(keys)
        self.after_get()
        return values


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksStore]:
    opened = RocksStore(tmp_path / "store")
    opened._db = Watched(opened._db)
    yield opened
    opened.close()


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
def test_others_run_while_a_commit_syncs(store: RocksStore) -> None:
    turns = 0
    ended = False

    def take_turns() -> None:
        nonlocal turns
        while not ended:
            turns += 1
            time.sleep(0)

    moved = False

    def sync() -> None:
        nonlocal moved
        before = turns
        store._db.real_sync()
        moved = moved or turns > before

    store._db.sync = sync
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


def test_nothing_is_read_before_it_is_synced(store: RocksStore) -> None:
    heard: list[object] = []
    written, read = threading.Event(), threading.Event()

    def read_it() -> None:
        written.wait(DEADLINE_SECONDS)
        heard.append(store.get([b"key"]))
        heard.append(store.scan(b"k", b"l", 10))

    def sync() -> None:
        written.set()
        assert read.wait(DEADLINE_SECONDS)
        reader.join(0.2)  # it would be through by then, if it did not wait
        store._db.real_sync()
        heard.append("synced")

    store._db.sync, store._db.after_get = sync, read.set
    reader = threading.Thread(target=read_it)
    reader.start()
    store.commit(one_row(b"key", b"value"))
    reader.join(DEADLINE_SECONDS)
    assert heard == ["synced", [b"value"], [(b"key", b"value")]]


def test_nothing_is_read_of_a_commit_whose_sync_failed(store: RocksStore) -> None:
    def sync() -> None:
        raise OSError("the disk is gone")

    store._db.sync = sync
    with pytest.raises(StoreError, match="the disk is gone"):
        store.commit(one_row(b"key", b"value"))
    with pytest.raises(StoreFenced):
        store.get([b"key"])
    with pytest.raises(StoreFenced):
        store.scan(b"k", b"l", 10)
    with pytest.raises(StoreFenced):
        store.commit(one_row(b"key", b"value"))


def test_a_commit_in_two_halves_is_read_only_after_the_second(store: RocksStore) -> None:
    heard: list[object] = []
    read = threading.Event()
    store._db.after_get = read.set
    reader = threading.Thread(target=lambda: heard.append(store.get([b"key"])))
    batch = one_row(b"key", b"value")
    assert store.begin(batch)
    reader.start()
    assert read.wait(DEADLINE_SECONDS)
    reader.join(0.2)
    assert heard == []
    store.finish(batch)
    reader.join(DEADLINE_SECONDS)
    assert heard == [[b"value"]]


def test_a_commit_begins_only_where_it_need_not_wait(tmp_path: Path) -> None:
    free = 1 << 30
    store = RocksStore(tmp_path / "store", free_space=lambda path: free)
    batch = one_row(b"key", b"value")
    assert store.begin(batch)
    assert not store.begin(batch)  # one at a time
    free = 1
    store.finish(batch)
    assert not store.begin(batch)
    with pytest.raises(StoreFull):
        store.commit(batch)
    free = 1 << 30
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


def test_a_first_half_that_fails_fences_the_store(store: RocksStore) -> None:
    def write(writes: object, options: object) -> None:
        raise OSError("the log cannot be written")

    store._db.write = write
    with pytest.raises(StoreError, match="the log cannot be written"):
        store.begin(one_row(b"key", b"value"))
    with pytest.raises(StoreFenced):
        store.begin(one_row(b"key", b"value"))
    with pytest.raises(StoreFenced):
        store.get([b"key"])


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
