"""What the store on RocksDB does beyond the common behaviour: its folder, its damage, its limits."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from rocksdict import Rdict

from polybus import limits
from polybus.errors import StoreCorrupt, StoreError, StoreFenced, StoreFull, StoreVersionMismatch
from polybus.store.base import Batch
from polybus.store.format import FORMAT_NAME, StoreFormat
from polybus.store.rocks import RocksStore
from polybus.store.rocks_options import Budget, families, rocks_options

from .damage import BATCHES, LoggedStore, batch_key, held_batches


def put(store: RocksStore, key: bytes, value: bytes = b"v") -> None:
    batch = Batch()
    batch.put(key, value)
    store.commit(batch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_every_commit_is_one_synced_write(path: Path) -> None:
    written: list[int] = []

    def write(descriptor: int, data: memoryview, at: int) -> int:
        assert fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DSYNC
        written.append(at)
        return os.pwrite(descriptor, data, at)

    store = RocksStore(path, write=write)
    for number in range(5):
        put(store, b"%d" % number)
    assert written == [number * 4_096 for number in range(5)]
    store.close()


def test_a_second_handle_is_refused_in_this_process_and_in_another(path: Path) -> None:
    store = RocksStore(path)
    with pytest.raises(StoreFenced, match="another process or handle"):
        RocksStore(path)
    code = "import sys; from polybus.store.open import open_store; open_store(sys.argv[1])"
    other = subprocess.run([sys.executable, "-c", code, store.url], capture_output=True, text=True, check=False)
    assert "StoreFenced" in other.stderr
    put(store, b"a")
    store.close()
    RocksStore(path).close()


def test_a_folder_with_other_things_in_it_is_left_alone(path: Path) -> None:
    path.mkdir()
    (path / "thesis.txt").write_text("precious")
    with pytest.raises(StoreError, match=r"it holds 'thesis\.txt'"):
        RocksStore(path)
    assert [entry.name for entry in path.iterdir()] == ["thesis.txt"]


def test_a_file_in_the_way_is_an_error_of_the_store(path: Path) -> None:
    path.write_text("a file")
    with pytest.raises(StoreError, match="exists"):
        RocksStore(path)


def test_a_store_that_was_not_finished_is_made_anew(path: Path) -> None:
    (path / "db.new").mkdir(parents=True)
    (path / "db.new" / "CURRENT").write_text("half made")
    store = RocksStore(path)
    put(store, b"a")
    store.close()
    assert sorted(entry.name for entry in path.iterdir()) == ["db", "lock"]


def test_a_database_without_its_heart_is_not_made_anew(path: Path) -> None:
    store = RocksStore(path)
    put(store, b"a")
    store.close()
    (path / "db" / "CURRENT").unlink()
    with pytest.raises(StoreError, match="does not exist"):
        RocksStore(path)


def rewrite_format(path: Path, record: bytes | None) -> None:
    options = rocks_options(Budget(1 << 20, 1 << 20), create=False)
    db = Rdict(str(path / "db"), options, families(options))
    family = db.get_column_family(FORMAT_NAME)
    if record is None:
        family.delete(b"format")
    else:
        family.put(b"format", record)
    family.close()
    db.close()


def test_another_major_version_is_refused_and_left_as_it_is(path: Path) -> None:
    store = RocksStore(path)
    store_id = store.store_id
    store.close()
    rewrite_format(path, StoreFormat(store_id, 2, 0, 0).encode())
    for _ in range(2):
        with pytest.raises(StoreVersionMismatch, match=r"format 2\.0"):
            RocksStore(path)


def test_a_store_without_its_record_is_damaged(path: Path) -> None:
    RocksStore(path).close()
    rewrite_format(path, None)
    with pytest.raises(StoreCorrupt, match="format record is missing"):
        RocksStore(path)


def test_the_id_that_is_expected_must_be_there(path: Path) -> None:
    RocksStore(path).close()
    with pytest.raises(StoreVersionMismatch, match="is store"):
        RocksStore(path, store_id=bytes(16))


def test_rows_cannot_reach_the_format_record(path: Path) -> None:
    store = RocksStore(path)
    batch = Batch()
    batch.delete_range(b"", b"\xff" * 8)
    batch.delete(b"format")
    store.commit(batch)
    assert store.scan(b"", b"\xff" * 8, 10) == []
    store.close()
    RocksStore(path, store_id=store.store_id).close()


def test_the_shared_memory_is_shared_also_after_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        stores = [RocksStore(tmp_path / name) for name in ("one", "two")]
        capacities = [store._opened().handle.property_int_value("rocksdb.block-cache-capacity") for store in stores]
        assert capacities == [limits.ROCKS_CACHE_BYTES] * 2
        for store in stores:
            store.close()


def test_write_buffers_of_all_stores_keep_to_one_budget(tmp_path: Path) -> None:
    budget = Budget(cache_bytes=16 << 20, write_buffers_bytes=8 << 20)
    stores = [RocksStore(tmp_path / name, budget=budget) for name in ("one", "two", "three")]
    for number in range(40):
        for store in stores:
            put(store, b"%04d" % number, bytes(200_000))
    assert budget.write_buffers.get_usage() < 16 << 20
    for store in stores:
        assert len(store.scan(b"", b"\xff", 1_000)) == 40
        store.close()


def test_an_idle_store_gives_its_buffers_up_for_a_busy_one(tmp_path: Path) -> None:
    budget = Budget(cache_bytes=32 << 20, write_buffers_bytes=16 << 20)
    idle = RocksStore(tmp_path / "idle", budget=budget)
    busy = RocksStore(tmp_path / "busy", budget=budget)
    put(idle, b"large", bytes(9 << 20))
    into_rocksdb(idle)
    assert idle.buffered_bytes() > 9 << 20
    for number in range(8):
        put(busy, b"%d" % number, bytes(1 << 20))
        into_rocksdb(busy)
    assert idle.buffered_bytes() < 1 << 20
    assert len(idle.get([b"large"])[0] or b"") == 9 << 20
    idle.close()
    put(busy, b"after", bytes(6 << 20))
    busy.close()


def into_rocksdb(store: RocksStore) -> None:
    with store._writing:
        store._retire_all()


def test_below_the_floor_nothing_is_written_and_the_store_goes_on(path: Path) -> None:
    free = 1_000_000
    store = RocksStore(path, floor_bytes=900_000, free_space=lambda _: free)
    put(store, b"a", bytes(1_000))
    free = 900_500
    with pytest.raises(StoreFull, match="900500 bytes free"):
        put(store, b"b", bytes(1_000))
    put(store, b"c", b"small enough")
    free = 1_000_000
    put(store, b"d")
    assert [key for key, _ in store.scan(b"", b"z", 10)] == [b"a", b"c", b"d"]
    store.close()


def test_a_disk_that_does_not_tell_its_space_is_not_full(path: Path) -> None:
    def gone(_: Path) -> int:
        raise OSError("no such device")

    store = RocksStore(path, free_space=gone)
    assert store.free_bytes() is None
    put(store, b"a")
    store.close()


def test_free_space_is_that_of_the_disk(path: Path) -> None:
    store = RocksStore(path)
    assert (store.free_bytes() or 0) > limits.ROCKS_FLOOR_BYTES
    store.close()


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> LoggedStore:
    return LoggedStore(tmp_path_factory.mktemp("logged"))


def test_the_log_holds_what_the_damage_tests_need(logged: LoggedStore, path: Path) -> None:
    assert len(logged.records) >= BATCHES
    assert held_batches(logged.copy(path)) == BATCHES


def test_every_header_bit_of_a_log_is_guarded(logged: LoggedStore, path: Path) -> None:
    """All bits of three headers: the first, one in the middle, the last. None may be lost in silence."""
    for record in (logged.records[0], logged.records[len(logged.records) // 2], logged.records[-1]):
        for bit in range(7 * 8):
            damaged = logged.copy(path, flip=(record + bit // 8, bit % 8))
            with pytest.raises(StoreCorrupt):
                RocksStore(damaged)


def test_random_bits_of_a_log_are_guarded(logged: LoggedStore, path: Path) -> None:
    random = Random(7)
    for _ in range(60):
        place = random.randrange(len(logged.log)), random.randrange(8)
        with pytest.raises(StoreCorrupt):
            RocksStore(logged.copy(path, flip=place))


def test_a_log_cut_anywhere_recovers_whole_batches(logged: LoggedStore, path: Path) -> None:
    random = Random(8)
    for cut in [0, len(logged.log), *random.sample(range(len(logged.log)), 40)]:
        whole = logged.batches_before(cut)
        assert held_batches(logged.copy(path, cut=cut)) == whole


def test_zeros_where_the_crash_was_recover_whole_batches(logged: LoggedStore, path: Path) -> None:
    last = logged.records[-1]
    assert held_batches(logged.copy(path, cut=last, zeros=5_000)) == BATCHES - 1


def test_a_damaged_store_is_left_as_it_is(logged: LoggedStore, path: Path) -> None:
    damaged = logged.copy(path, flip=(logged.records[3] + 20, 1))
    for _ in range(2):
        with pytest.raises(StoreCorrupt):
            RocksStore(damaged)
    logged.repair(damaged)
    assert held_batches(damaged) == BATCHES


def test_a_damaged_table_is_found_by_whoever_reads_it(path: Path) -> None:
    store = RocksStore(path)
    for number in range(200):
        put(store, batch_key(number), Random(number).randbytes(1_000))
    store.close()
    (table,) = [each for each in (path / "db").glob("*.sst") if each.stat().st_size > 100_000]
    data = bytearray(table.read_bytes())
    data[len(data) // 2] ^= 1
    table.write_bytes(data)
    store = RocksStore(path)
    with pytest.raises(StoreCorrupt):
        store.scan(b"", b"\xff", 1_000)
    with pytest.raises(StoreCorrupt):
        store.get([batch_key(number) for number in range(200)])
    # The error holds nothing of the database: it closes, and opens again.
    store.close()
    RocksStore(path).close()


def test_a_damaged_list_of_tables_is_found(path: Path) -> None:
    store = RocksStore(path)
    put(store, b"a")
    store.close()
    (manifest,) = (path / "db").glob("MANIFEST-*")
    whole = manifest.read_bytes()
    # The last record of the list, which names the newest table, must not be dropped in silence.
    for bit in range(7 * 8):
        data = bytearray(whole)
        data[_last_record(whole) + bit // 8] ^= 1 << (bit % 8)
        manifest.write_bytes(data)
        with pytest.raises(StoreCorrupt):
            RocksStore(path)
    manifest.write_bytes(whole)
    store = RocksStore(path)
    assert store.get([b"a"]) == [b"v"]
    store.close()


def _last_record(log: bytes) -> int:
    at = 0
    while True:
        following = at + 7 + int.from_bytes(log[at + 4 : at + 6], "little")
        if following >= len(log):
            return at
        at = following
