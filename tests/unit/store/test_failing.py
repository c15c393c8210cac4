from __future__ import annotations

import pytest

from polybus.errors import StoreError, StoreFenced, StoreFull
from polybus.store.base import Batch
from polybus.store.failing import FailingStore, Faults
from polybus.store.memory import MemoryStore


def put(store: FailingStore, key: bytes) -> None:
    batch = Batch()
    batch.put(key, b"v")
    store.commit(batch)


def contents(store: FailingStore) -> list[bytes]:
    return [key for key, _ in store.scan(b"", b"\xff", 100)]


@pytest.fixture
def store() -> FailingStore:
    return FailingStore(MemoryStore())


def test_without_a_fault_it_is_its_inner_store(store: FailingStore) -> None:
    put(store, b"a")
    assert contents(store) == [b"a"]
    assert store.get([b"a", b"b"]) == [b"v", None]
    assert store.store_id == store.inner.store_id
    assert (store.unsafe, store.volatile, store.reads_block) == (True, True, False)
    assert store.free_bytes() is None


def test_the_nth_read_fails_and_the_next_does_not(store: FailingStore) -> None:
    store.faults.fail_nth("get", 2)
    store.get([b"a"])
    with pytest.raises(StoreError, match="get fails"):
        store.get([b"a"])
    assert store.get([b"a"]) == [None]


def test_reads_fail_from_now_on_until_healed(store: FailingStore) -> None:
    put(store, b"a")
    store.faults.fail_from_now("scan")
    for _ in range(3):
        with pytest.raises(StoreError, match="scan fails"):
            contents(store)
    store.faults.heal()
    assert contents(store) == [b"a"]


@pytest.mark.parametrize("kind", ["commit", "sync"])
def test_a_failed_commit_fences_until_reopened(store: FailingStore, kind: str) -> None:
    store.faults.fail_nth(kind)  # type: ignore[arg-type]
    with pytest.raises(StoreError, match=f"{kind} fails"):
        put(store, b"a")
    with pytest.raises(StoreFenced):
        put(store, b"b")
    again = store.reopen()
    put(again, b"c")
    assert contents(again) == [b"c"]


def test_every_call_can_be_the_one_that_fails() -> None:
    for n in range(1, 4):
        store = FailingStore(MemoryStore())
        store.faults.fail_nth("sync", n)
        done = []
        for key in (b"1", b"2", b"3"):
            try:
                put(store, key)
            except StoreError:
                break
            done.append(key)
        assert len(done) == n - 1
        assert contents(store.reopen()) == done


@pytest.mark.parametrize(("in_flight", "left"), [("lost", [b"a"]), ("kept", [b"a", b"b"])])
def test_a_batch_in_flight_is_there_whole_or_not_at_all(
    store: FailingStore, in_flight: str, left: list[bytes]
) -> None:
    put(store, b"a")
    store.faults.fail_nth("sync")
    with pytest.raises(StoreError):
        put(store, b"b")
    store.crash(in_flight)  # type: ignore[arg-type]
    assert contents(store.reopen()) == left


def test_a_crash_keeps_what_was_synced(store: FailingStore) -> None:
    put(store, b"a")
    store.crash("kept")
    assert contents(store.reopen()) == [b"a"]


def test_a_lying_disk_loses_what_it_did_not_sync(store: FailingStore) -> None:
    put(store, b"a")
    store.lose_unsynced()
    put(store, b"b")
    batch = Batch()
    batch.delete(b"a")
    store.commit(batch)
    assert contents(store) == [b"b"]
    assert store.get([b"a", b"b"]) == [None, b"v"]
    store.crash()
    assert contents(store.reopen()) == [b"a"]


def test_a_sync_makes_it_safe(store: FailingStore) -> None:
    store.lose_unsynced()
    put(store, b"a")
    store.sync()
    put(store, b"b")
    store.crash()
    assert contents(store.reopen()) == [b"a", b"b"]


def test_an_in_flight_batch_brings_the_unsynced_ones_before_it(store: FailingStore) -> None:
    store.lose_unsynced()
    put(store, b"a")
    store.faults.fail_nth("sync")
    with pytest.raises(StoreError):
        put(store, b"b")
    store.crash("kept")
    assert contents(store.reopen()) == [b"a", b"b"]


def test_a_full_disk_refuses_and_goes_on(store: FailingStore) -> None:
    store.faults.disk_full()
    with pytest.raises(StoreFull):
        put(store, b"a")
    assert store.free_bytes() == 0
    store.faults.disk_full(False)
    put(store, b"a")
    assert contents(store) == [b"a"]


def test_a_slow_disk_sleeps_by_the_sleeper_it_was_given() -> None:
    slept: list[float] = []
    store = FailingStore(MemoryStore(), faults=Faults(sleep=slept.append))
    store.faults.slow("sync", 2.0)
    put(store, b"a")
    assert slept == [2.0]


def test_an_old_handle_cannot_write_after_a_reopening(store: FailingStore) -> None:
    again = store.reopen()
    with pytest.raises(StoreFenced):
        put(store, b"old")
    assert contents(again) == []


def test_faults_outlive_a_reopening(store: FailingStore) -> None:
    store.faults.fail_from_now("commit")
    again = store.reopen()
    with pytest.raises(StoreError, match="commit fails"):
        put(again, b"a")


def test_the_switches_can_be_read(store: FailingStore) -> None:
    store.faults.hang("commit")
    store.faults.slow("get", 1.5)
    store.faults.fail_from_now("scan")
    store.faults.disk_full()
    assert store.faults.hangs("commit")
    assert store.faults.state() == {
        "full": True,
        "low": False,
        "hangs": ["commit"],
        "slow": {"get": 1.5},
        "fails": ["scan"],
    }
    store.faults.heal()
    assert store.faults.state() == {"full": False, "low": False, "hangs": [], "slow": {}, "fails": []}


def test_a_store_that_is_down_answers_nothing_until_healed(store: FailingStore) -> None:
    put(store, b"a")
    store.faults.take_down()
    with pytest.raises(StoreError, match="open fails"):
        store.faults.meet("open")
    for call in (lambda: store.get([b"a"]), lambda: contents(store), lambda: put(store, b"b")):
        with pytest.raises(StoreError, match="on demand"):
            call()
    store.faults.heal()
    store.faults.meet("open")
    assert contents(store.reopen()) == [b"a"]


def test_a_store_without_a_way_back_says_so() -> None:
    outer = FailingStore(FailingStore(MemoryStore()))
    with pytest.raises(StoreError, match="no way to open it again"):
        outer.reopen()
