"""The journal under a store on RocksDB: damage, death at every step, a full disk, and what never reaches RocksDB."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from polybus.errors import StoreCorrupt, StoreError, StoreFenced, StoreFull, StoreVersionMismatch
from polybus.limits import JOURNAL_SEGMENTS
from polybus.operations.store_reader import open_reader
from polybus.rows import Batch, Row
from polybus.store import format as store_format
from polybus.store import retiring, rocks, segments
from polybus.store.journal import PAGE, segment_paths
from polybus.store.rocks import RocksStore
from polybus.store.rocks_database import MARK_KEY, RocksDatabase
from polybus.store.rocks_options import Budget

from .damage import BATCHES, JournaledStore, held_batches

DYING = Path(__file__).with_name("dying_in_steps.py")
SMALL = 16 * PAGE
DEADLINE_SECONDS = 30.0
END = b"\xff"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (rocks, retiring, segments):
        monkeypatch.setattr(module, "JOURNAL_SEGMENT_BYTES", SMALL)


def commit(store: RocksStore, *ops: tuple[bytes, bytes | None]) -> None:
    batch = Batch()
    for key, value in ops:
        if value is None:
            batch.delete(key)
        else:
            batch.put(key, value)
    store.commit(batch)


def rows_below(store: RocksStore) -> list[Row]:
    """What RocksDB itself holds."""
    return list(store._opened().handle.items())


def until(condition: Callable[[], bool]) -> None:
    """Waits for the thread that retires."""
    waiting = threading.Event()
    for _ in range(int(DEADLINE_SECONDS * 1000)):
        if condition():
            return
        waiting.wait(0.001)
    raise AssertionError("it did not happen in time")


def test_a_process_that_dies_at_any_step_loses_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(DYING), str(tmp_path), "10"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) > 50


# Damage


@pytest.fixture(scope="module")
def journaled(tmp_path_factory: pytest.TempPathFactory) -> JournaledStore:
    return JournaledStore(tmp_path_factory.mktemp("journaled"))


def test_what_a_dead_process_left_in_its_journal_is_there(journaled: JournaledStore, path: Path) -> None:
    assert held_batches(journaled.copy(path)) == BATCHES


def test_any_bit_of_a_record_that_another_follows_is_guarded(journaled: JournaledStore, path: Path) -> None:
    random = Random(7)
    for _ in range(10):
        place = random.randrange((BATCHES - 1) * PAGE), random.randrange(8)
        damaged = journaled.copy(path, flip=place)
        with pytest.raises(StoreCorrupt, match="of the journal"):
            RocksStore(damaged)
        with pytest.raises(StoreCorrupt, match="of the journal"):
            open_reader(f"rocksdb:{damaged}")


def test_a_damaged_journal_is_left_as_it_is(journaled: JournaledStore, path: Path) -> None:
    damaged = journaled.copy(path, flip=(3 * PAGE + 40, 1))
    for _ in range(2):
        with pytest.raises(StoreCorrupt):
            RocksStore(damaged)
    journaled.repair(damaged)
    assert held_batches(damaged) == BATCHES


def test_a_journal_cut_anywhere_recovers_whole_batches(journaled: JournaledStore, path: Path) -> None:
    random = Random(8)
    for cut in [0, *random.sample(range(BATCHES * PAGE), 8)]:
        missing = len(journaled.log) - cut
        whole = journaled.batches_before(cut)
        if any(journaled.log[cut : cut + -cut % PAGE]):
            assert held_batches(journaled.copy(path, cut=cut, zeros=missing)) == whole
        else:  # nothing but the zeros at the end of a page was cut
            assert held_batches(journaled.copy(path, cut=cut, zeros=missing)) == whole + (cut % PAGE > 0)


def test_a_journal_without_its_mark_is_damaged(path: Path) -> None:
    with closing(RocksStore(path)) as store:
        commit(store, (b"a", b"1"))
    database = RocksDatabase(path / "db", "a store", Budget(1 << 20, 1 << 20))
    family = database.handle.get_column_family("polybus.store")
    family.delete(MARK_KEY)
    family.close()
    database.close()
    with pytest.raises(StoreCorrupt, match="mark is missing"):
        RocksStore(path)
    with pytest.raises(StoreCorrupt, match="mark is missing"):
        open_reader(f"rocksdb:{path}")


# What goes into RocksDB


@pytest.mark.usefixtures("small_segments")
def test_what_is_settled_soon_never_reaches_rocksdb(path: Path) -> None:
    store = RocksStore(path)
    before = store._opened().handle.latest_sequence_number()
    for number in range(200):
        gone = [(b"row%06d" % (number - 5), None)] if number >= 5 else []
        commit(store, (b"row%06d" % number, b"v" * 1_000), *gone)
    store.flush()
    assert store.scan(b"", END, 10) == [(b"row%06d" % number, b"v" * 1_000) for number in range(195, 200)]
    # Each retirement notes its mark; of the rows only those that lived when their segment was retired.
    assert store._opened().handle.latest_sequence_number() - before < 100
    store.close()


@pytest.mark.usefixtures("small_segments")
def test_a_row_that_rocksdb_has_is_deleted_there(path: Path) -> None:
    store = RocksStore(path)
    commit(store, *((b"row%06d" % number, b"v") for number in range(2_000)))
    store.flush()
    assert len(rows_below(store)) == 2_000
    for number in range(0, 2_000, 50):
        commit(store, *((b"row%06d" % each, None) for each in range(number, number + 49)))
    left = store.scan(b"", END, 3_000)
    assert [key for key, _ in left] == [b"row%06d" % number for number in range(49, 2_000, 50)]
    store.flush()
    assert rows_below(store) == left
    store.close()


@pytest.mark.usefixtures("small_segments")
def test_reads_are_of_one_moment_while_segments_are_retired(path: Path) -> None:
    """Every row has the number of the last commit; whoever reads finds one number everywhere."""
    store = RocksStore(path)
    keys = [b"row%03d" % each for each in range(40)]
    commit(store, *((key, b"0") for key in keys))
    ended = threading.Event()

    def write() -> None:
        for number in range(1, 400):
            commit(store, *((key, b"%d" % number * 20) for key in keys), (b"a%06d" % number, b"v" * 2_000))
            commit(store, (b"a%06d" % number, None))
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not ended.is_set():
        assert len(set(store.get(keys))) == 1
        for limit in (100, 1_000):
            rows = store.scan(b"row", b"rox", limit)
            assert [key for key, _ in rows] == keys
            assert len({value for _, value in rows}) == 1
    writer.join()
    store.close()


@pytest.mark.usefixtures("small_segments")
def test_a_batch_larger_than_a_segment_has_one_of_its_own(path: Path) -> None:
    store = RocksStore(path)
    large = Random(1).randbytes(5 * SMALL)
    commit(store, (b"before", b"1"))
    commit(store, (b"large", large))
    commit(store, (b"after", b"2"))
    assert store.get([b"before", b"large", b"after"]) == [b"1", large, b"2"]
    assert max(each.stat().st_size for each in segment_paths(path / "db")) > 5 * SMALL
    store.flush()
    assert {each.stat().st_size for each in segment_paths(path / "db")} == {SMALL}
    store.close()
    with closing(RocksStore(path)) as again:
        assert again.get([b"before", b"large", b"after"]) == [b"1", large, b"2"]


@pytest.mark.usefixtures("small_segments")
def test_segments_are_used_again_and_stay_few(path: Path) -> None:
    store = RocksStore(path)
    for number in range(300):
        commit(store, (b"row%06d" % number, b"v" * 3_000))
    files = segment_paths(path / "db")
    assert 2 <= len(files) <= JOURNAL_SEGMENTS
    assert {each.stat().st_size for each in files} == {SMALL}
    assert store.journaled_bytes() < (JOURNAL_SEGMENTS + 1) * SMALL
    store.close()
    store = RocksStore(path)
    assert len(store.scan(b"", END, 1_000)) == 300
    assert store.journaled_bytes() == 0
    store.close()


@pytest.mark.usefixtures("small_segments")
def test_where_space_is_short_only_the_segment_in_use_stays(path: Path) -> None:
    store = RocksStore(path)
    for number in range(100):
        commit(store, (b"row%06d" % number, b"v" * 3_000))
    assert len(segment_paths(path / "db")) > 1
    store.reclaim()
    assert len(segment_paths(path / "db")) == 1
    assert sum(file.stat().st_size for file in (path / "db").glob("*.log")) < 10_000
    for number in range(100):
        commit(store, (b"more%06d" % number, b"v" * 3_000))
    assert len(store.scan(b"", END, 1_000)) == 200
    store.close()


def test_the_greatest_journal_gives_its_memory_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polybus.limits.JOURNALS_BYTES", 4 << 20)
    budget = Budget(cache_bytes=32 << 20, write_buffers_bytes=16 << 20)
    idle, busy = (RocksStore(tmp_path / name, budget=budget) for name in ("idle", "busy"))
    commit(idle, (b"large", bytes(3 << 20)))
    for number in range(3):
        commit(busy, (b"%d" % number, bytes(1 << 20)))
    until(lambda: idle.journaled_bytes() == 0)
    assert len(rows_below(idle)) == 1
    for store in (idle, busy):
        store.close()


# Failures


@pytest.mark.usefixtures("small_segments")
def test_without_space_for_a_segment_a_commit_is_refused_and_the_store_goes_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = RocksStore(path)
    commit(store, (b"first", b"1"))
    with monkeypatch.context() as full:
        full.setattr(os, "posix_fallocate", no_space)
        with pytest.raises(StoreFull, match="No space left"):
            commit(store, (b"large", bytes(5 * SMALL)))
        # With the one segment that it has it goes on: what is in it goes into RocksDB first.
        for number in range(50):
            commit(store, (b"row%06d" % number, b"v" * 3_000))
    assert len(store.scan(b"row", b"rox", 100)) == 50
    assert store.get([b"first", b"large"]) == [b"1", None]
    commit(store, (b"large", bytes(5 * SMALL)))
    store.close()
    with closing(RocksStore(path)) as again:
        assert again.get([b"first", b"large"]) == [b"1", bytes(5 * SMALL)]


@pytest.mark.usefixtures("small_segments")
def test_a_segment_that_cannot_be_retired_fences_the_store(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: RocksDatabase) -> None:
        raise StoreError("the disk is gone")

    store = RocksStore(path)
    last = -1
    with monkeypatch.context() as failing:
        failing.setattr(RocksDatabase, "sync", broken)
        with pytest.raises(StoreFenced, match="the disk is gone"):
            for number in range(500):
                commit(store, (b"row%06d" % number, b"v" * 3_000))
                last = number
        with pytest.raises(StoreFenced):
            store.get([b"row000000"])
        store.close()
    with closing(RocksStore(path)) as again:
        kept = [key for key, _ in again.scan(b"", END, 1_000)]
        assert kept == [b"row%06d" % number for number in range(last + 1)]


@pytest.mark.usefixtures("small_segments")
def test_a_commit_that_failed_is_not_in_the_way_of_the_next_process(path: Path) -> None:
    """Its record is cut off in the middle, and stays in the segment."""
    pieces: Iterator[int] = iter([])

    def write(descriptor: int, data: memoryview, at: int) -> int:
        size = next(pieces, len(data))
        if not size:
            raise OSError(errno.EIO, "a bad block")
        return os.pwrite(descriptor, data[:size], at)

    store = RocksStore(path, write=write)
    commit(store, (b"a", b"1"))
    pieces = iter([PAGE, 0])
    with pytest.raises(StoreError, match="a bad block"):
        commit(store, (b"b", Random(2).randbytes(3 * PAGE)))
    store.close()
    for round_number in range(3):
        with closing(RocksStore(path)) as again:
            assert again.get([b"a", b"b"]) == [b"1", None]
            commit(again, (b"round", b"%d" % round_number))


# Who looks at it


def test_a_reader_sees_what_a_dead_process_left_and_writes_nothing(journaled: JournaledStore, path: Path) -> None:
    copy = journaled.copy(path)
    before = {each.name: (each.stat().st_mtime_ns, each.read_bytes()) for each in (copy / "db").iterdir()}
    reader = open_reader(f"rocksdb:{copy}")
    rows = list(reader.rows(b"", END))
    assert len(rows) == BATCHES * 3
    assert reader.get([rows[5][0], b"nothing"]) == [rows[5][1], None]
    reader.close()
    assert {each.name: (each.stat().st_mtime_ns, each.read_bytes()) for each in (copy / "db").iterdir()} == before
    assert held_batches(copy) == BATCHES


def test_a_program_without_a_journal_refuses_the_folder(
    journaled: JournaledStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = journaled.copy(path)
    with monkeypatch.context() as older:
        older.setattr(store_format, "FORMAT_MINOR", 0)
        with pytest.raises(StoreVersionMismatch, match="start a later Polybus"):
            RocksStore(copy)
        with pytest.raises(StoreVersionMismatch, match="start a later Polybus"):
            open_reader(f"rocksdb:{copy}")
    assert held_batches(copy) == BATCHES


@pytest.mark.usefixtures("small_segments")
def test_the_next_layer_is_not_begun_while_another_is_dropped(path: Path) -> None:
    """Else one of both would be done to a list of layers that the other has replaced, and undo it."""
    with closing(RocksStore(path)) as store:
        until_full = Batch()
        until_full.put(b"k", b"v" * (SMALL - PAGE))
        store.commit(until_full)
        until(lambda: bool(store._segments.ready))
        layers, batch = store._layers, Batch()
        batch.put(b"k", b"w" * PAGE)
        with store._looking:
            assert not store.begin(batch)
            assert store._layers is layers
        assert store.begin(batch)
        store.finish(batch)
        assert store._layers[1:] == layers
