"""Group commit, fencing and return of one messaging store, with every completion decided by the test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from polybus.errors import PartitionUnavailable, PolybusError, QuotaExceeded, StoreError, StoreFull
from polybus.hosting.store_host import InDoubt, StoreHost, StoreState
from polybus.limits import UNCOMMITTED_BYTES
from polybus.promise import Promise
from polybus.rows import Batch, Get, Read
from polybus.store.memory import MemoryStore

Reply = tuple[object, object, PolybusError | None]


class HandDriver:
    """A driver whose commits finish when the test says so."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.hung = False
        self.late = 0
        self.last_error: StoreError | None = None
        self.pending: list[tuple[Batch, Callable[[StoreError | None], None]]] = []
        self.closed = False

    def commit(self, batch: Batch, done: Callable[[StoreError | None], None]) -> None:
        assert not self.pending, "one commit at a time"
        self.pending.append((batch, done))

    def finish(self, error: StoreError | None = None) -> Batch:
        batch, done = self.pending.pop()
        if error is None:
            self.store.commit(batch)
        done(error)
        return batch

    def read(self, read: Read, done: Callable[[list[object], StoreError | None], None]) -> None:
        assert isinstance(read, Get)
        done(list(self.store.get(read.keys)), None)

    def close(self, done: Callable[[StoreError | None], None]) -> None:
        self.closed = True
        done(None)


class HandLoop:
    """Runs what is due when the test says so; timers are kept for it to ring."""

    def __init__(self) -> None:
        self.soon: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        self.timers: list[tuple[float, Callable[..., object], tuple[object, ...]]] = []

    def call_soon(self, callback: Callable[..., object], *args: object) -> object:
        self.soon.append((callback, args))
        return None

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> HandLoop:
        self.timers.append((delay, callback, args))
        return self

    def cancel(self) -> None:
        raise AssertionError("nothing is cancelled here")

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for callback, args in soon:
            callback(*args)


class Scene:
    def __init__(self) -> None:
        self.loop = HandLoop()
        self.memory = MemoryStore()
        self.drivers: list[HandDriver] = []
        self.replies: list[Reply] = []
        self.host = StoreHost("memory:", self.loop, self.open)  # type: ignore[arg-type]
        self.host.open()

    def open(self) -> Promise[HandDriver]:
        promise: Promise[HandDriver] = Promise()
        self.drivers.append(HandDriver(self.memory))
        promise.resolve(self.drivers[-1])
        return promise

    @property
    def driver(self) -> HandDriver:
        return self.drivers[-1]

    def reply(self, context: object, result: object, error: PolybusError | None) -> None:
        self.replies.append((context, result, error))

    def write(self, name: str) -> None:
        self.host.batch.put(name.encode(), b"v")
        self.host.batch.replies.append((self.reply, name, None))
        self.host.touch()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_is_written_in_one_turn_is_one_batch_and_nobody_hears_before_the_sync(scene: Scene) -> None:
    scene.write("a")
    scene.write("b")
    assert scene.driver.pending == []
    scene.loop.turn()
    assert scene.replies == []
    batch = scene.driver.finish()
    assert [key for key, _ in batch.ops] == [b"a", b"b"]
    assert scene.replies == [("a", None, None), ("b", None, None)]


def test_what_arrives_while_a_commit_syncs_is_the_next_batch(scene: Scene) -> None:
    scene.write("a")
    scene.loop.turn()
    scene.write("b")
    scene.write("c")
    scene.loop.turn()
    assert [key for key, _ in scene.driver.finish().ops] == [b"a"]
    scene.write("d")  # what comes in the turn in which the commit ends is still taken along
    scene.loop.turn()
    assert [key for key, _ in scene.driver.finish().ops] == [b"b", b"c", b"d"]
    assert scene.host.commits == 2


def test_a_failed_commit_is_in_doubt_and_what_waited_behind_it_is_not(scene: Scene) -> None:
    scene.write("failed")
    scene.loop.turn()
    scene.write("waited")
    first = scene.driver
    first.finish(StoreError("the disk is gone"))
    assert scene.host.state is StoreState.FENCED
    assert first.closed
    (failed, _, doubt), (waited, _, unavailable) = scene.replies
    assert (failed, waited) == ("failed", "waited")
    assert isinstance(doubt, InDoubt)
    assert isinstance(unavailable, PartitionUnavailable)
    assert not isinstance(unavailable, InDoubt)


def test_a_fenced_store_is_opened_again_with_growing_pauses(scene: Scene) -> None:
    pauses = []
    for _ in range(3):
        scene.write("x")
        scene.loop.turn()
        scene.host.fence(StoreError("again"), None)
        delay, callback, args = scene.loop.timers.pop()
        pauses.append(delay)
        scene.drivers.append(HandDriver(scene.memory))
        callback(*args)
        assert scene.host.available
        scene.loop.turn()
    assert pauses == [pauses[0]] * 3, "a store that came back starts with the short pause again"


def test_a_late_answer_of_a_fenced_store_changes_nothing(scene: Scene) -> None:
    scene.write("a")
    scene.loop.turn()
    _, done = scene.driver.pending[0]
    scene.host.fence(StoreError("overdue"), None)
    done(None)
    assert scene.replies == []
    assert scene.host.commits == 0


def test_a_full_store_refuses_with_the_quota_error_and_goes_on(scene: Scene) -> None:
    scene.write("a")
    scene.loop.turn()
    scene.driver.finish(StoreFull("no space"))
    assert isinstance(scene.replies[0][2], QuotaExceeded)
    assert scene.host.full
    scene.loop.turn()
    assert scene.host.available
    scene.write("b")
    scene.loop.turn()
    scene.driver.finish()
    assert scene.replies[1] == ("b", None, None)


def test_a_store_that_stays_full_comes_back_more_and_more_slowly(scene: Scene) -> None:
    for _ in range(3):
        scene.write("a")
        scene.loop.turn()
        scene.driver.finish(StoreFull("no space"))
        scene.loop.turn()
        if scene.loop.timers:
            assert not scene.host.available
            _, callback, args = scene.loop.timers[-1]
            callback(*args)
        assert scene.host.available
    pauses = [delay for delay, _, _ in scene.loop.timers]
    assert len(pauses) == 2
    assert pauses[1] == 2 * pauses[0]
    scene.write("b")
    scene.loop.turn()
    scene.driver.finish()
    scene.write("c")
    scene.loop.turn()
    scene.driver.finish(StoreFull("no space"))
    scene.loop.turn()
    assert scene.host.available, "it took something: the first refusal after that is nothing to wait for"


def test_a_full_store_that_is_asked_to_open_serves_at_once_with_the_driver_that_it_had(scene: Scene) -> None:
    for _ in range(2):
        scene.write("a")
        scene.loop.turn()
        scene.driver.finish(StoreFull("no space"))
        scene.loop.turn()
    assert scene.host.state is StoreState.FENCED
    assert scene.host.open().result() is True
    assert len(scene.drivers) == 1, "no second one was opened"
    openings = scene.host.openings
    for _, callback, args in scene.loop.timers:
        callback(*args)
    assert scene.host.openings == openings, "the pause that was meant for it is over, and nothing happens"


def test_another_store_in_its_place_is_refused(scene: Scene) -> None:
    scene.host.fence(StoreError("gone"), None)
    scene.memory = MemoryStore()
    _, callback, args = scene.loop.timers.pop()
    callback(*args)
    assert not scene.host.available
    assert "another messaging store" in str(scene.host.last_error)


def test_too_much_that_waits_for_the_disk_is_said(scene: Scene) -> None:
    assert not scene.host.overloaded
    scene.host.batch.put(b"k", bytes(UNCOMMITTED_BYTES + 1))
    assert scene.host.overloaded


def test_closing_commits_what_is_open(scene: Scene) -> None:
    scene.write("last")
    closed = scene.host.close()
    scene.driver.finish()
    _, callback, args = scene.loop.timers.pop()
    callback(*args)
    assert closed.settled
    assert scene.replies == [("last", None, None)]
    assert scene.driver.closed
