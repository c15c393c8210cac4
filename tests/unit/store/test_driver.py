from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from polybus.errors import StoreError, StoreFenced
from polybus.store.base import Batch, Get, Scan
from polybus.store.driver import InlineDriver, StoreDriver, ThreadDriver
from polybus.store.failing import FailingStore
from polybus.store.memory import MemoryStore

from .fake_loop import FakeLoop


class Kit:
    def __init__(self, *, reads_block: bool = False, threads: bool = True, url: str = "memory:") -> None:
        self.loop = FakeLoop()
        self.store = FailingStore(MemoryStore(url), reads_block=reads_block)
        self.driver: StoreDriver
        if threads:
            self.driver = ThreadDriver(self.store, self.loop, commit_seconds=6, read_seconds=10)
        else:
            self.driver = InlineDriver(self.store, self.loop)
        self.heard: list[StoreError | None] = []
        self.read_heard: list[tuple[list[Any], StoreError | None]] = []

    def commit(self, key: bytes) -> None:
        batch = Batch()
        batch.put(key, b"v")
        self.driver.commit(batch, self.heard.append)

    def read(self, read: Get | Scan) -> None:
        self.driver.read(read, lambda rows, error: self.read_heard.append((rows, error)))

    def wait_heard(self, count: int) -> None:
        self.loop.run_until(lambda: len(self.heard) >= count)

    def end(self) -> None:
        self.store.faults.heal()
        closed: list[StoreError | None] = []
        self.driver.close(closed.append)
        self.loop.run_until(lambda: bool(closed))


@pytest.fixture(params=["threads", "inline"])
def kit(request: pytest.FixtureRequest) -> Iterator[Kit]:
    kit = Kit(threads=request.param == "threads")
    yield kit
    kit.end()


@pytest.fixture
def threaded() -> Iterator[Kit]:
    kit = Kit(reads_block=True)
    yield kit
    kit.end()


def test_a_commit_is_answered_on_the_loop_and_not_at_once(kit: Kit) -> None:
    kit.commit(b"a")
    assert kit.heard == []
    kit.wait_heard(1)
    assert kit.heard == [None]
    assert kit.store.get([b"a"]) == [b"v"]


def test_a_failed_commit_is_answered_with_its_error(kit: Kit) -> None:
    kit.store.faults.fail_nth("commit")
    kit.commit(b"a")
    kit.wait_heard(1)
    assert isinstance(kit.heard[0], StoreError)
    assert kit.driver.last_error is kit.heard[0]


def test_what_a_store_should_not_raise_counts_as_its_failure(kit: Kit) -> None:
    batch = Batch()
    batch.ops.append(None)  # type: ignore[arg-type]
    kit.driver.commit(batch, kit.heard.append)
    kit.wait_heard(1)
    assert isinstance(kit.heard[0], StoreError)
    assert isinstance(kit.heard[0].__cause__, TypeError)


def test_reads_that_do_not_block_are_answered_at_once(kit: Kit) -> None:
    kit.commit(b"a")
    kit.wait_heard(1)
    kit.read(Get([b"a", b"b"]))
    kit.read(Scan(b"", b"z", 10))
    assert kit.read_heard == [([b"v", None], None), ([(b"a", b"v")], None)]


def test_a_failed_read_is_answered_with_its_error(kit: Kit) -> None:
    kit.store.faults.fail_nth("get")
    kit.read(Get([b"a"]))
    rows, error = kit.read_heard[0]
    assert rows == []
    assert isinstance(error, StoreError)
    assert kit.driver.last_error is error


def test_reads_that_block_are_answered_on_the_loop(threaded: Kit) -> None:
    threaded.commit(b"a")
    threaded.wait_heard(1)
    threaded.read(Get([b"a"]))
    assert threaded.read_heard == []
    threaded.loop.run_until(lambda: bool(threaded.read_heard))
    assert threaded.read_heard == [([b"v"], None)]


def test_a_read_does_not_wait_for_a_hung_commit(threaded: Kit) -> None:
    threaded.store.faults.hang("commit")
    threaded.commit(b"a")
    threaded.read(Get([b"a"]))
    threaded.loop.run_until(lambda: bool(threaded.read_heard))
    assert threaded.read_heard == [([None], None)]
    assert threaded.heard == []


def test_a_hung_commit_is_reported_once_at_its_deadline(threaded: Kit) -> None:
    threaded.store.faults.hang("commit")
    threaded.commit(b"a")
    assert threaded.store.faults.wait_until_hanging("commit")
    threaded.loop.advance(5.9)
    assert threaded.heard == []
    threaded.loop.advance(0.1)
    assert "no answer within 6 s" in str(threaded.heard[0])
    assert threaded.driver.hung
    threaded.store.faults.release()
    threaded.loop.run_until(lambda: threaded.driver.late == 1)
    assert len(threaded.heard) == 1


def test_a_hung_store_takes_no_further_commit(threaded: Kit) -> None:
    threaded.store.faults.hang("commit")
    threaded.commit(b"a")
    assert threaded.store.faults.wait_until_hanging("commit")
    threaded.loop.advance(6)
    threaded.commit(b"b")
    threaded.wait_heard(2)
    assert isinstance(threaded.heard[1], StoreFenced)
    threaded.store.faults.release()
    threaded.loop.run_until(lambda: threaded.driver.late == 1)
    assert threaded.store.get([b"b"]) == [None]


def test_a_hung_read_is_reported_at_its_deadline_and_others_go_on(threaded: Kit) -> None:
    threaded.store.faults.hang("scan")
    threaded.read(Scan(b"", b"z", 1))
    threaded.read(Get([b"a"]))
    threaded.loop.run_until(lambda: bool(threaded.read_heard))
    assert threaded.read_heard == [([None], None)]
    threaded.loop.advance(10)
    rows, error = threaded.read_heard[1]
    assert rows == []
    assert "no answer within 10 s" in str(error)


def test_reads_that_waited_too_long_for_a_thread_are_not_done_in_vain(threaded: Kit) -> None:
    driver = ThreadDriver(threaded.store, threaded.loop, read_threads=1, read_seconds=10)
    threaded.driver, first = driver, threaded.driver
    threaded.store.faults.hang("get")
    for _ in range(3):
        threaded.read(Get([b"a"]))
    assert threaded.store.faults.wait_until_hanging("get")
    threaded.loop.advance(10)
    assert len(threaded.read_heard) == 3
    threaded.store.faults.release()
    threaded.loop.run_until(lambda: driver.late == 1)
    threaded.end()
    assert threaded.store.faults.calls["get"] == 1
    threaded.driver = first


def test_an_answer_in_time_leaves_no_timer(threaded: Kit) -> None:
    threaded.commit(b"a")
    threaded.wait_heard(1)
    threaded.loop.advance(100)
    assert threaded.heard == [None]
    assert not threaded.driver.hung


def test_close_comes_after_the_commits_before_it() -> None:
    kit = Kit()
    kit.commit(b"a")
    kit.driver.close(kit.heard.append)
    kit.wait_heard(2)
    assert kit.heard == [None, None]
    with pytest.raises(StoreFenced):
        kit.store.get([b"a"])
    kit.commit(b"b")
    kit.wait_heard(3)
    assert isinstance(kit.heard[2], StoreFenced)


def test_a_hung_store_is_closed_when_it_comes_back() -> None:
    kit = Kit()
    kit.store.faults.hang("commit")
    kit.commit(b"a")
    assert kit.store.faults.wait_until_hanging("commit")
    kit.loop.advance(6)
    kit.driver.close(kit.heard.append)
    kit.loop.advance(10)
    assert "no answer" in str(kit.heard[1])
    kit.store.faults.release()
    kit.loop.run_until(lambda: kit.driver.late == 2)
    with pytest.raises(StoreFenced):
        kit.store.inner.get([b"a"])


class HalvedStore(MemoryStore):
    """A store whose commits have two halves; the second waits until it is let go."""

    def __init__(self) -> None:
        super().__init__("memory:halved")
        self.begun_by: list[str] = []
        self.finished_by: list[str] = []
        self.refuses = False
        self.failure: StoreError | None = None
        self.let_go = threading.Event()
        self.let_go.set()

    def begin(self, batch: Batch) -> bool:
        if self.failure is not None:
            raise self.failure
        if not self.refuses:
            self.begun_by.append(threading.current_thread().name)
        return not self.refuses

    def finish(self, batch: Batch) -> None:
        assert self.let_go.wait(30)
        self.finished_by.append(threading.current_thread().name)
        self.commit(batch)


@pytest.fixture
def halved() -> Iterator[Kit]:
    kit = Kit()
    kit.end()
    kit.store = HalvedStore()  # type: ignore[assignment]
    kit.driver = ThreadDriver(kit.store, kit.loop, commit_seconds=6)
    yield kit
    closed: list[StoreError | None] = []
    kit.driver.close(closed.append)
    kit.loop.run_until(lambda: bool(closed))


def test_a_commit_with_two_halves_begins_at_once_and_ends_on_the_thread(halved: Kit) -> None:
    halved.commit(b"a")
    assert halved.store.begun_by == [threading.current_thread().name]  # type: ignore[attr-defined]
    halved.wait_heard(1)
    assert halved.heard == [None]
    assert halved.store.finished_by == ["store memory:halved"]  # type: ignore[attr-defined]
    assert halved.store.get([b"a"]) == [b"v"]


def test_a_commit_that_cannot_begin_at_once_is_the_thread_s(halved: Kit) -> None:
    halved.store.refuses = True  # type: ignore[attr-defined]
    halved.commit(b"a")
    halved.wait_heard(1)
    assert halved.heard == [None]
    assert halved.store.finished_by == []  # type: ignore[attr-defined]
    assert halved.store.get([b"a"]) == [b"v"]


def test_a_first_half_that_fails_is_answered_later_with_its_error(halved: Kit) -> None:
    halved.store.failure = StoreFenced("fenced")  # type: ignore[attr-defined]
    halved.commit(b"a")
    assert halved.heard == []
    halved.wait_heard(1)
    assert halved.heard == [halved.store.failure]  # type: ignore[attr-defined]
    assert halved.driver.last_error is halved.heard[0]


def test_what_was_begun_is_ended_however_late(halved: Kit) -> None:
    """Else whoever closes the store would wait for its second half for ever."""
    store: Any = halved.store
    store.let_go.clear()
    halved.commit(b"a")
    halved.commit(b"b")
    halved.loop.advance(6)
    assert len(halved.heard) == 2
    assert all("no answer" in str(error) for error in halved.heard)
    store.let_go.set()
    halved.loop.run_until(lambda: halved.driver.late == 2)
    assert len(store.finished_by) == 2


def test_threads_end_with_the_driver() -> None:
    kit = Kit(reads_block=True, url="memory:ending")
    mine = [thread for thread in threading.enumerate() if thread.name == f"store {kit.store.url}"]
    assert len(mine) == 5
    kit.end()
    for thread in mine:
        thread.join(timeout=30)
        assert not thread.is_alive()


def test_on_asyncio() -> None:
    async def commit_and_close() -> list[StoreError | None]:
        loop = asyncio.get_running_loop()
        driver = ThreadDriver(MemoryStore(), loop)
        batch = Batch()
        batch.put(b"a", b"v")
        committed: asyncio.Future[StoreError | None] = loop.create_future()
        closed: asyncio.Future[StoreError | None] = loop.create_future()
        driver.commit(batch, committed.set_result)
        driver.close(closed.set_result)
        return [await committed, await closed]

    assert asyncio.run(commit_and_close()) == [None, None]


def test_a_loop_that_was_closed_is_not_told() -> None:
    loop = asyncio.new_event_loop()
    store = FailingStore(MemoryStore("memory:loop-closed"))
    store.faults.hang("commit")
    driver = ThreadDriver(store, loop)
    writer = next(thread for thread in threading.enumerate() if thread.name == f"store {store.url}")
    driver.commit(Batch(), lambda error: None)
    assert store.faults.wait_until_hanging("commit")
    driver.close(lambda error: None)
    loop.close()
    store.faults.release()
    writer.join(timeout=30)
    assert not writer.is_alive()
    with pytest.raises(StoreFenced):
        store.inner.get([b"a"])
