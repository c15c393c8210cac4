"""The simulated driver: commits in order, reads beside them, faults from the seed or on demand."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from polybus.errors import StoreError, StoreFenced, StoreFull
from polybus.limits import STORE_CLOSE_SECONDS, STORE_COMMIT_SECONDS
from polybus.store.base import Batch, Get, Scan
from polybus.store.driver import StoreDriver
from polybus.store.failing import FailingStore
from polybus.store.memory import MemoryStore
from tests.support.sim_loop import SimLoop
from tests.support.sim_store import Fault, SimFaults, SimStoreDriver


def put(key: bytes, value: bytes = b"v") -> Batch:
    batch = Batch()
    batch.put(key, value)
    return batch


class Bench:
    """A driver over a memory store, and what it answered, in order."""

    def __init__(self, seed: int = 1, **options: Any) -> None:
        self.loop = SimLoop(seed)
        self.disk = MemoryStore(store_id=bytes(16))
        self.answers: list[tuple[str, Any]] = []
        self.crashes: list[SimStoreDriver] = []
        self.driver = SimStoreDriver(self.disk, self.loop, Random(seed), on_crash=self.crashes.append, **options)
        self.as_contract: StoreDriver = self.driver

    def commit(self, key: str) -> None:
        self.driver.commit(put(key.encode()), lambda error: self.answers.append((key, _kind(error))))

    def read(self) -> None:
        scan = Scan(b"", b"\xff", 100)
        self.driver.read(
            scan, lambda rows, error: self.answers.append(("read", [r[0] for r in rows] or _kind(error)))
        )

    def close(self) -> None:
        self.driver.close(lambda error: self.answers.append(("close", _kind(error))))

    def stored(self) -> list[str]:
        return [key.decode() for key, _ in self.disk.reopen().scan(b"", b"\xff", 100)]


def _kind(error: StoreError | None) -> type[StoreError] | None:
    return None if error is None else type(error)


def test_commits_complete_later_and_in_order() -> None:
    bench = Bench()
    for key in "abc":
        bench.commit(key)
    assert bench.answers == []
    bench.loop.run_until_idle()
    assert bench.answers == [("a", None), ("b", None), ("c", None)]
    assert bench.loop.time() > 0
    assert bench.stored() == ["a", "b", "c"]


def test_a_batch_is_in_the_store_when_its_commit_is_answered_and_not_before() -> None:
    bench = Bench()
    seen: list[list[bytes | None]] = []
    bench.driver.commit(put(b"a"), lambda _: seen.append(bench.disk.get([b"a", b"b"])))
    bench.driver.commit(put(b"b"), lambda _: seen.append(bench.disk.get([b"a", b"b"])))
    bench.loop.run_until_idle()
    assert seen == [[b"v", None], [b"v", b"v"]]


def test_reads_may_overtake_commits_and_may_not() -> None:
    def order(seed: int) -> list[str]:
        bench = Bench(seed)
        bench.commit("a")
        bench.read()
        bench.loop.run_until_idle()
        return [name for name, _ in bench.answers]

    assert {tuple(order(seed)) for seed in range(30)} == {("a", "read"), ("read", "a")}


def test_a_get_answers_for_each_key() -> None:
    bench = Bench()
    bench.disk.commit(put(b"a"))
    answers: list[Any] = []
    bench.driver.read(Get([b"a", b"x"]), lambda rows, error: answers.append((rows, error)))
    bench.loop.run_until_idle()
    assert answers == [([b"v", None], None)]


def test_the_same_seed_completes_in_the_same_way() -> None:
    def run(seed: int) -> list[Any]:
        bench = Bench(seed, faults=SimFaults(full=0.3, fail_read=0.3))
        for key in "abcdef":
            bench.commit(key)
            bench.read()
        bench.loop.run_until_idle()
        return [*bench.answers, bench.loop.time()]

    assert run(5) == run(5)
    assert run(5) != run(6)


@pytest.mark.parametrize(("fault", "stored"), [(Fault.FAIL_BEFORE, ["a"]), (Fault.FAIL_AFTER, ["a", "b"])])
def test_a_failure_fences_with_or_without_the_batch(fault: str, stored: list[str]) -> None:
    bench = Bench()
    bench.commit("a")
    bench.loop.run_until_idle()
    bench.driver.planned.append(fault)
    bench.commit("b")
    bench.commit("c")
    bench.loop.run_until_idle()
    bench.commit("d")
    bench.loop.run_until_idle()
    assert bench.answers == [("a", None), ("b", StoreError), ("c", StoreFenced), ("d", StoreFenced)]
    assert isinstance(bench.driver.last_error, StoreFenced)
    assert bench.stored() == stored


def test_a_full_store_goes_on() -> None:
    bench = Bench()
    bench.driver.planned.append(Fault.FULL)
    bench.commit("a")
    bench.commit("b")
    bench.loop.run_until_idle()
    assert bench.answers == [("a", StoreFull), ("b", None)]
    assert bench.stored() == ["b"]


def test_a_hanging_commit_holds_up_those_behind_it_but_no_reads() -> None:
    bench = Bench()
    bench.driver.planned.append(Fault.HANG)
    bench.commit("a")
    bench.commit("b")
    bench.read()
    bench.loop.run_for(STORE_COMMIT_SECONDS / 2)
    assert bench.answers == [("read", None)]
    bench.driver.release()
    bench.loop.run_until_idle()
    assert bench.answers[1:] == [("a", None), ("b", None)]
    assert not bench.driver.hung


def test_past_the_deadline_the_caller_is_told_once_and_the_batch_may_still_come() -> None:
    bench = Bench()
    bench.driver.planned.append(Fault.HANG)
    bench.commit("a")
    bench.loop.run_for(0.1)
    bench.commit("b")
    bench.loop.run_until_idle()
    bench.commit("c")
    bench.loop.run_until_idle()
    assert bench.answers == [("a", StoreError), ("b", StoreError), ("c", StoreFenced)]
    assert bench.driver.hung
    bench.driver.release()
    bench.loop.run_until_idle()
    assert (bench.driver.late, len(bench.answers), bench.stored()) == (1, 3, ["a"])


def test_a_failing_store_that_hangs_does_not_hang_the_simulation() -> None:
    bench = Bench()
    twin = FailingStore(bench.disk)
    bench.driver.store = twin
    twin.faults.hang("sync")
    bench.commit("a")
    bench.loop.run_for(1.0)
    assert bench.answers == []
    twin.faults.release()
    bench.driver.release()
    bench.loop.run_until_idle()
    assert bench.answers == [("a", None)]


def test_a_crash_answers_nobody_and_keeps_what_was_synced() -> None:
    kept = set()
    for seed in range(20):
        bench = Bench(seed)
        bench.commit("a")
        bench.loop.run_until_idle()
        bench.commit("b")
        bench.commit("c")
        bench.read()
        bench.driver.crash()
        bench.loop.run_until_idle()
        assert bench.answers == [("a", None)]
        kept.add("".join(bench.stored()))
    assert kept == {"a", "ab"}


def test_a_crash_can_come_from_the_seed() -> None:
    bench = Bench(faults=SimFaults(crash=1.0))
    bench.commit("a")
    bench.loop.run_until_idle()
    assert bench.crashes == [bench.driver]
    assert bench.answers == []


def test_faults_come_as_often_as_they_are_set() -> None:
    faults = SimFaults(fail_before=0.1, fail_after=0.2, full=0.3, hang=0.1, crash=0.1)
    rng = Random(1)
    drawn = [faults.choose(rng) for _ in range(5_000)]
    shares = {fault: round(drawn.count(fault) / 5_000, 1) for fault in (*set(drawn) - {None}, None)}
    assert shares == {
        Fault.FAIL_BEFORE: 0.1,
        Fault.FAIL_AFTER: 0.2,
        Fault.FULL: 0.3,
        Fault.HANG: 0.1,
        Fault.CRASH: 0.1,
        None: 0.2,
    }


def test_closing_waits_for_what_was_handed_over_and_ends_it() -> None:
    bench = Bench()
    bench.commit("a")
    bench.close()
    bench.commit("b")
    bench.loop.run_until_idle()
    assert sorted(bench.answers, key=str) == [("a", None), ("b", StoreFenced), ("close", None)]
    assert bench.answers.index(("a", None)) < bench.answers.index(("close", None))
    with pytest.raises(StoreFenced):
        bench.disk.get([b"a"])


def test_closing_a_store_that_hangs_is_told_after_its_deadline() -> None:
    bench = Bench()
    bench.driver.planned.append(Fault.HANG)
    bench.commit("a")
    bench.close()
    bench.loop.run_until_idle()
    assert bench.answers == [("a", StoreError), ("close", StoreError)]
    assert bench.loop.time() == pytest.approx(max(STORE_COMMIT_SECONDS, STORE_CLOSE_SECONDS))
    bench.driver.release()
    bench.loop.run_until_idle()
    assert bench.driver.late == 2
