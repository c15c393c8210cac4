from __future__ import annotations

from collections.abc import Callable

import pytest

from polybus.errors import StoreError, StoreFenced, StoreFull
from polybus.store.base import Batch, Read, Store
from polybus.store.driver import InlineDriver
from polybus.store.group import GroupBatch, GroupCommit
from polybus.store.memory import MemoryStore

from .fake_loop import FakeLoop


class HeldDriver:
    """Keeps each commit until the test finishes it."""

    def __init__(self) -> None:
        self.store: Store = MemoryStore()
        self.hung = False
        self.late = 0
        self.last_error: StoreError | None = None
        self.held: list[tuple[Batch, Callable[[StoreError | None], None]]] = []

    def commit(self, batch: Batch, done: Callable[[StoreError | None], None]) -> None:
        self.held.append((batch, done))

    def finish(self, error: StoreError | None = None) -> None:
        batch, done = self.held.pop(0)
        if error is None:
            self.store.commit(batch)
        done(error)

    def read(self, read: Read, done: object) -> None:
        raise AssertionError("the group never reads")

    def close(self, done: object) -> None:
        raise AssertionError("the group never closes")


class Kit:
    def __init__(self, limit_bytes: int = 1_000) -> None:
        self.loop = FakeLoop()
        self.driver = HeldDriver()
        self.said: list[object] = []
        self.failed: list[tuple[StoreError, GroupBatch]] = []
        self.sealed: list[GroupBatch] = []
        self.group = GroupCommit(
            self.driver,
            self.loop,
            self.loop.time,
            on_seal=self.sealed.append,
            on_failed=lambda error, batch: self.failed.append((error, batch)),
            limit_bytes=limit_bytes,
        )

    def write(self, key: bytes, reply: object = None) -> None:
        self.group.batch.put(key, b"v")
        if reply is not None:
            self.group.batch.replies.append((self.said.append, reply))
        self.group.touch()


@pytest.fixture
def kit() -> Kit:
    return Kit()


def keys(batch: Batch) -> list[bytes]:
    return [key for key, _ in batch.ops]


def test_a_turn_of_the_loop_is_one_batch(kit: Kit) -> None:
    kit.write(b"a")
    kit.write(b"b")
    assert kit.driver.held == []
    kit.loop.run()
    assert [keys(batch) for batch, _ in kit.driver.held] == [[b"a", b"b"]]


def test_replies_leave_in_order_and_only_after_the_commit(kit: Kit) -> None:
    kit.write(b"a", 1)
    kit.write(b"b", 2)
    kit.loop.run()
    assert kit.said == []
    kit.driver.finish()
    assert kit.said == [1, 2]


def test_what_arrives_during_a_commit_is_the_next_batch(kit: Kit) -> None:
    kit.write(b"a", 1)
    kit.loop.run()
    kit.write(b"b", 2)
    kit.write(b"c", 3)
    kit.loop.run()
    assert len(kit.driver.held) == 1
    kit.driver.finish()
    assert [keys(batch) for batch, _ in kit.driver.held] == [[b"b", b"c"]]
    assert kit.said == [1]
    kit.driver.finish()
    assert kit.said == [1, 2, 3]
    assert kit.group.idle


def test_what_a_reply_writes_is_in_the_next_batch(kit: Kit) -> None:
    kit.group.batch.replies.append((lambda key: kit.write(key), b"from a reply"))
    kit.write(b"a")
    kit.loop.run()
    kit.driver.finish()
    assert [keys(batch) for batch, _ in kit.driver.held] == [[b"from a reply"]]
    kit.driver.finish()
    kit.loop.run()
    assert kit.driver.held == []


def test_the_seal_hook_can_add_records(kit: Kit) -> None:
    kit.group.on_seal = lambda batch: batch.put(b"meta", b"1")
    kit.write(b"a")
    kit.loop.run()
    assert keys(kit.driver.held[0][0]) == [b"a", b"meta"]


def test_a_touch_without_records_still_asks_the_seal_hook(kit: Kit) -> None:
    kit.write(b"a")
    kit.loop.run()
    kit.group.on_seal = lambda batch: batch.put(b"meta", b"1")
    kit.group.touch()
    kit.driver.finish()
    assert [keys(batch) for batch, _ in kit.driver.held] == [[b"meta"]]


def test_replies_without_records_need_no_commit(kit: Kit) -> None:
    kit.group.batch.replies.append((kit.said.append, "at once"))
    kit.group.touch()
    kit.loop.run()
    assert kit.said == ["at once"]
    assert kit.driver.held == []


def test_replies_without_records_wait_for_the_commit_they_depend_on(kit: Kit) -> None:
    kit.write(b"a", "first")
    kit.loop.run()
    kit.group.batch.replies.append((kit.said.append, "second"))
    kit.group.touch()
    kit.loop.run()
    assert kit.said == []
    kit.driver.finish()
    assert kit.said == ["first", "second"]


def test_a_reply_that_keeps_replying_does_not_starve_the_loop(kit: Kit) -> None:
    def again(left: int) -> None:
        kit.said.append(left)
        if left:
            kit.group.batch.replies.append((again, left - 1))
            kit.group.touch()

    kit.group.batch.replies.append((again, 5_000))
    kit.group.touch()
    kit.loop.run()
    assert len(kit.said) == 5_001


def test_a_reply_that_raises_keeps_nobody_from_theirs(kit: Kit) -> None:
    def bug(_: object) -> None:
        raise ValueError("a bug")

    kit.group.batch.replies.append((bug, None))
    kit.write(b"a", 1)
    kit.loop.run()
    kit.write(b"b", 2)
    with pytest.raises(ValueError, match="a bug"):
        kit.driver.finish()
    assert kit.said == [1]
    kit.driver.finish()
    assert kit.said == [1, 2]


def test_a_failure_reports_both_batches_and_fences(kit: Kit) -> None:
    kit.write(b"a", 1)
    kit.loop.run()
    kit.write(b"b", 2)
    broken = StoreError("the disk broke")
    kit.driver.finish(broken)
    (first, under_way), (second, waiting) = kit.failed
    assert first is broken
    assert keys(under_way) == [b"a"]
    assert under_way.in_doubt
    assert isinstance(second, StoreFenced)
    assert keys(waiting) == [b"b"]
    assert not waiting.in_doubt
    assert kit.said == []
    with pytest.raises(StoreFenced, match="the disk broke"):
        kit.write(b"c", 3)
    kit.loop.run()
    assert kit.driver.held == []


def test_a_full_store_leaves_no_doubt(kit: Kit) -> None:
    kit.write(b"a", 1)
    kit.loop.run()
    kit.driver.finish(StoreFull("no room"))
    assert not kit.failed[0][1].in_doubt


def test_a_reset_group_works_again_without_what_was_left(kit: Kit) -> None:
    kit.write(b"a", 1)
    kit.loop.run()
    kit.driver.finish(StoreError("the disk broke"))
    fresh = HeldDriver()
    kit.group.reset(fresh)
    kit.write(b"b", 2)
    kit.loop.run()
    assert [keys(batch) for batch, _ in fresh.held] == [[b"b"]]
    fresh.finish()
    assert kit.said == [2]


def test_a_group_can_be_reset_from_within_its_failure(kit: Kit) -> None:
    fresh = HeldDriver()
    kit.group.on_failed = lambda error, batch: kit.group.reset(fresh)
    kit.write(b"a")
    kit.loop.run()
    kit.driver.finish(StoreFull("no room"))
    kit.write(b"b")
    kit.loop.run()
    assert [keys(batch) for batch, _ in fresh.held] == [[b"b"]]


def test_a_commit_under_way_forbids_a_reset(kit: Kit) -> None:
    kit.write(b"a")
    kit.loop.run()
    with pytest.raises(AssertionError, match="under way"):
        kit.group.reset(HeldDriver())


def test_a_driver_that_answers_twice_is_caught(kit: Kit) -> None:
    kit.write(b"a")
    kit.loop.run()
    _, done = kit.driver.held[0]
    kit.driver.finish()
    with pytest.raises(AssertionError, match="twice"):
        done(None)


def test_counters(kit: Kit) -> None:
    kit.group.batch.delete(b"old")
    kit.group.batch.delete_range(b"a", b"b")
    kit.write(b"key")
    kit.loop.run()
    assert kit.group.uncommitted_bytes == len(b"old" + b"key" + b"v")
    kit.loop.now_s += 0.25
    kit.driver.finish()
    group = kit.group
    assert (group.commits, group.ops, group.bytes, group.uncommitted_bytes) == (1, 3, 7, 0)
    assert group.last_commit_ms == pytest.approx(250.0)


def test_overload_counts_the_open_batch_and_the_one_under_way() -> None:
    kit = Kit(limit_bytes=10)
    kit.group.batch.put(b"key", b"1234567")
    kit.group.touch()
    assert not kit.group.overloaded
    kit.loop.run()
    kit.write(b"k")
    assert kit.group.overloaded
    kit.driver.finish()
    assert not kit.group.overloaded


def test_over_an_inline_driver() -> None:
    loop = FakeLoop()
    store = MemoryStore()
    group = GroupCommit(InlineDriver(store, loop), loop, loop.time)
    said: list[int] = []
    for number in range(3):
        group.batch.put(b"%d" % number, b"v")
        group.batch.replies.append((said.append, number))
        group.touch()
        loop.run()
    assert said == [0, 1, 2]
    assert len(store.scan(b"", b"\xff", 10)) == 3
