"""Group commit without a timer: what arrives while a store syncs is its next batch.

Callers write into the open batch, add what shall happen once it is safe, and touch the group. At the end of the
loop's turn, or when the commit under way is done, the batch is sealed and handed to the driver. Replies leave
in order after the sync. A commit that fails is never tried again: its batch and the open one, which was built
on it, are given to `on_failed`, and the group refuses everything until it is reset with a reopened store.
Nothing here knows what the records mean, and nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polybus.errors import StoreError, StoreFenced, StoreFull
from polybus.limits import STORE_UNCOMMITTED_BYTES
from polybus.store.base import Batch
from polybus.store.driver import Loop, StoreDriver

Reply = tuple[Callable[[Any], object], Any]


class GroupBatch(Batch):
    """A batch with the replies that leave when it is safe."""

    __slots__ = ("in_doubt", "replies")

    def __init__(self) -> None:
        super().__init__()
        self.replies: list[Reply] = []
        """(callback, argument) pairs, called in order after the commit."""
        self.in_doubt = False
        """After a failure: whether the store may hold the batch all the same."""


OnSeal = Callable[[GroupBatch], object]
OnFailed = Callable[[StoreError, GroupBatch], object]


def _ignore(*_: object) -> None:
    return None


class GroupCommit:
    """The one writer of one store. `batch` is the open batch; it is another object after each seal."""

    def __init__(
        self,
        driver: StoreDriver,
        loop: Loop,
        monotonic: Callable[[], float],
        *,
        on_seal: OnSeal = _ignore,
        on_failed: OnFailed = _ignore,
        limit_bytes: int = STORE_UNCOMMITTED_BYTES,
    ) -> None:
        self.driver = driver
        self.batch = GroupBatch()
        self.fenced: StoreError | None = None
        self.on_seal = on_seal
        self.on_failed = on_failed
        self.commits = 0
        self.ops = 0
        self.bytes = 0
        self.last_commit_ms = 0.0
        self._loop = loop
        self._monotonic = monotonic
        self._limit_bytes = limit_bytes
        self._under_way: GroupBatch | None = None
        self._touched = False
        self._busy = False
        self._started_s = 0.0

    @property
    def uncommitted_bytes(self) -> int:
        under_way = self._under_way
        return self.batch.bytes + (under_way.bytes if under_way is not None else 0)

    @property
    def overloaded(self) -> bool:
        """True while more is uncommitted than is good for latency and memory: sends should be refused."""
        return self.uncommitted_bytes > self._limit_bytes

    @property
    def idle(self) -> bool:
        return self._under_way is None and not self.batch and not self.batch.replies

    def touch(self) -> None:
        """Says that there is something to commit; raises StoreFenced after a failure."""
        if self._touched:
            return
        if self.fenced is not None:
            raise StoreFenced(f"{self.driver.store.url}: fenced after: {self.fenced}")
        self._touched = True
        if not self._busy:
            self._loop.call_soon(self._seal)

    def reset(self, driver: StoreDriver) -> None:
        """Starts anew over a reopened store."""
        assert self._under_way is None, "a commit is under way"
        self.driver = driver
        self.batch = GroupBatch()
        self.fenced = None

    def _seal(self) -> None:
        batch = self.batch
        self.on_seal(batch)
        self.batch = GroupBatch()
        self._touched = False
        self._busy = True
        if batch:
            self._under_way = batch
            self._started_s = self._monotonic()
            self.driver.commit(batch, self._finished)
            return
        # Only replies, and all that they depend on is safe already.
        try:
            _release(batch)
        finally:
            self._busy = False
            if self._touched:
                self._loop.call_soon(self._seal)

    def _finished(self, error: StoreError | None) -> None:
        batch = self._under_way
        assert batch is not None, "the driver answered twice"
        self._under_way = None
        self.last_commit_ms = (self._monotonic() - self._started_s) * 1_000
        if error is not None:
            self._fail(error, batch)
            return
        self.commits += 1
        self.ops += len(batch.ops) + len(batch.ranges)
        self.bytes += batch.bytes
        try:
            _release(batch)
        finally:
            self._busy = False
            if self._touched:
                self._seal()

    def _fail(self, error: StoreError, batch: GroupBatch) -> None:
        waiting = self.batch
        self.fenced = error
        self.batch = GroupBatch()
        self._busy = self._touched = False
        batch.in_doubt = not isinstance(error, StoreFull)
        self.on_failed(error, batch)
        if waiting or waiting.replies:
            self.on_failed(StoreFenced(f"{self.driver.store.url}: fenced after: {error}"), waiting)


def _release(batch: GroupBatch) -> None:
    """Sends the replies in order. One that raises is one caller's fault: the others still get theirs."""
    bug: Exception | None = None
    for callback, argument in batch.replies:
        try:
            callback(argument)
        except Exception as error:
            bug = bug or error
    if bug is not None:
        raise bug
