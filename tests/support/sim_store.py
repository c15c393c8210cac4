"""Drives a store on a simulated loop: what the real drivers do with threads, with seeded delays and faults.

Commits complete in order, one at a time; reads go their own way and may overtake them. A batch reaches the
store in the instant in which its commit completes, so the store holds what is synced and nothing more. As with
the real drivers a commit has a deadline, after which its caller is told once and the driver counts as hung; its
batch may reach the store all the same, when the disk comes back.

After a failure, a crash or a close this driver is of no more use: a new one goes over the reopened store.
Nothing here knows what the rows mean.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from polybus.errors import StoreError, StoreFenced, StoreFull
from polybus.limits import STORE_CLOSE_SECONDS, STORE_COMMIT_SECONDS
from polybus.store.base import Batch, Read, Store
from polybus.store.driver import CommitDone, ReadDone, StoreDriver, as_store_error, perform
from polybus.store.failing import FailingStore, Kind
from tests.support.sim_loop import SimHandle, SimLoop


class Fault:
    """What can go wrong with a commit."""

    FAIL_BEFORE: Final = "fail_before"  # nothing is written; the store is fenced
    FAIL_AFTER: Final = "fail_after"  # written, but reported as failed, so in doubt; the store is fenced
    FULL: Final = "full"  # nothing is written; the store goes on
    HANG: Final = "hang"  # nothing happens until `release`
    CRASH: Final = "crash"  # the process dies: see `SimStoreDriver.crash`


@dataclass(frozen=True, slots=True)
class SimFaults:
    """How often what goes wrong, as probabilities for each commit (or read), and how long things take."""

    fail_before: float = 0.0
    fail_after: float = 0.0
    full: float = 0.0
    hang: float = 0.0
    crash: float = 0.0
    fail_read: float = 0.0
    commit_ms: tuple[float, float] = (0.2, 4.0)
    read_ms: tuple[float, float] = (0.0, 2.0)

    def choose(self, rng: Random) -> str | None:
        rates = (
            (Fault.FAIL_BEFORE, self.fail_before),
            (Fault.FAIL_AFTER, self.fail_after),
            (Fault.FULL, self.full),
            (Fault.HANG, self.hang),
            (Fault.CRASH, self.crash),
        )
        draw = rng.random()
        for fault, rate in rates:
            if draw < rate:
                return fault
            draw -= rate
        return None


class _Call:
    """A batch to commit, or None to close. `done` hears of it exactly once, or never after a crash."""

    __slots__ = ("answered", "batch", "deadline", "done")

    def __init__(self, batch: Batch | None, done: CommitDone) -> None:
        self.batch = batch
        self.done = done
        self.answered = False
        self.deadline: SimHandle | None = None


class SimStoreDriver(StoreDriver):
    """A store driver whose delays and faults come from `rng`.

    `planned` holds faults for the coming commits, to be used up before the seed chooses any.
    """

    def __init__(
        self,
        store: Store,
        loop: SimLoop,
        rng: Random,
        *,
        faults: SimFaults | None = None,
        on_crash: Callable[[SimStoreDriver], object] | None = None,
    ) -> None:
        self.store = store
        self.hung = False
        self.late = 0
        self.last_error: StoreError | None = None
        self.faults = faults or SimFaults()
        self.planned: list[str] = []
        self._loop = loop
        self._rng = rng
        self._on_crash = on_crash
        self._calls: deque[_Call] = deque()
        self._busy = False
        self._hanging = False
        self._fenced = False
        self._closing = False
        self._dead = False

    def commit(self, batch: Batch, done: CommitDone) -> None:
        if self._closing or self.hung:
            why = "is closed" if self._closing else "hangs"
            self._later((0.0, 0.0), done, StoreFenced(f"{self.store.url} {why}"))
            return
        self._submit(_Call(batch, done), STORE_COMMIT_SECONDS)

    def read(self, read: Read, done: ReadDone) -> None:
        self._later(self.faults.read_ms, self._read, read, done)

    def close(self, done: CommitDone) -> None:
        """Closes the store after what was handed over before."""
        self._submit(_Call(None, done), STORE_CLOSE_SECONDS)
        self._closing = True

    def release(self) -> None:
        """Lets a hanging commit go on; the switches of a failing store must be off by then."""
        if self._hanging:
            self._hanging = False
            self._later((0.0, 0.0), self._finish, None)

    def crash(self) -> None:
        """The process dies: what waits is forgotten and nobody is called back any more.

        The commit under way may have reached the store or not; the seed decides.
        """
        under_way = self._calls[0].batch if self._busy else None
        if under_way is not None and not self._fenced and self._rng.random() < 0.5:
            self._write(under_way)
        self._calls.clear()
        self._dead = True

    def _submit(self, call: _Call, seconds: float) -> None:
        call.deadline = self._loop.call_later(seconds, self._overdue, call, seconds)
        self._calls.append(call)
        if not self._busy:
            self._start()

    def _later(self, span_ms: tuple[float, float], callback: Callable[..., object], *args: Any) -> None:
        self._loop.call_later(self._rng.uniform(*span_ms) / 1000, self._unless_dead, callback, args)

    def _unless_dead(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        if not self._dead:
            callback(*args)

    def _start(self) -> None:
        while self._calls and self._calls[0].answered and self._calls[0].batch is not None:
            self._calls.popleft()  # its caller gave up before its turn came
        if not self._calls:
            return
        self._busy = True
        fault = None
        if self._calls[0].batch is not None and not self._fenced:
            fault = self.planned.pop(0) if self.planned else self.faults.choose(self._rng)
        self._later(self.faults.commit_ms, self._finish, fault)

    def _finish(self, fault: str | None) -> None:
        if fault == Fault.HANG or self._blocks("commit", "sync"):
            self._hanging = True
            return
        if fault == Fault.CRASH:
            self.crash()
            if self._on_crash is not None:
                self._on_crash(self)
            return
        call = self._calls.popleft()
        self._busy = False
        self._answer(call, self._perform(call.batch, fault))
        if not self._busy:
            self._start()

    def _perform(self, batch: Batch | None, fault: str | None) -> StoreError | None:
        if batch is None:
            self.store.close()
            return None
        if self._fenced:
            return StoreFenced(f"{self.store.url} is fenced")
        if fault == Fault.FULL:
            return StoreFull(f"{self.store.url} is full")
        error = None if fault == Fault.FAIL_BEFORE else self._write(batch)
        if error is None and fault is not None:
            error = StoreError(f"{self.store.url}: the {'write' if fault == Fault.FAIL_BEFORE else 'sync'} failed")
        self._fenced = error is not None and not isinstance(error, StoreFull)
        return error

    def _write(self, batch: Batch) -> StoreError | None:
        try:
            self.store.commit(batch)
        except Exception as error:
            return as_store_error(error)
        return None

    def _answer(self, call: _Call, error: StoreError | None) -> None:
        self.last_error = error or self.last_error
        if call.answered:
            self.late += 1
            return
        call.answered = True
        if call.deadline is not None:
            call.deadline.cancel()
        call.done(error)

    def _overdue(self, call: _Call, seconds: float) -> None:
        if self._dead or call.answered:
            return
        call.answered = True
        self.hung = True
        self.last_error = StoreError(f"{self.store.url}: no answer within {seconds:g} s")
        call.done(self.last_error)

    def _read(self, read: Read, done: ReadDone) -> None:
        rows: list[Any] = []
        failure: StoreError | None = None
        try:
            if self._rng.random() < self.faults.fail_read or self._blocks("get", "scan"):
                raise StoreError(f"{self.store.url}: the read failed")
            rows = perform(self.store, read)
        except Exception as error:
            failure = self.last_error = as_store_error(error)
        done(rows, failure)

    def _blocks(self, *kinds: Kind) -> bool:
        """Whether the store is a failing twin whose call would hang the simulation itself."""
        return isinstance(self.store, FailingStore) and any(map(self.store.faults.hangs, kinds))
