"""Moves a store's blocking calls off the event loop and brings their results back onto it.

A disk can hang. Each call therefore has a deadline: when it passes, the caller hears a StoreError once, the
store counts as hung, and the call's late result is only counted. The bus goes on without that store; the thread
that is stuck in it stays stuck until the disk answers, for nothing can take a thread out of a system call.
Callers live on the loop and see callbacks only; no lock of theirs is ever held here.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from polybus.errors import StoreError, StoreFenced
from polybus.limits import (
    STORE_CLOSE_SECONDS,
    STORE_COMMIT_SECONDS,
    STORE_READ_SECONDS,
    STORE_READ_THREADS,
)
from polybus.promise import Loop, TimerHandle
from polybus.store.base import Batch, Get, Read, Store

CommitDone = Callable[[StoreError | None], None]
ReadDone = Callable[[list[Any], StoreError | None], None]


class ThreadsLoop(Loop, Protocol):
    """A loop that other threads may call into, as those of stores do."""

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> object: ...


class StoreDriver(Protocol):
    """What the bus calls instead of the store: one commit at a time, any number of reads, one close."""

    store: Store
    hung: bool
    """True once a call has passed its deadline; only opening the store again makes it good."""
    late: int
    """Calls that came back after their deadline."""
    last_error: StoreError | None

    def commit(self, batch: Batch, done: CommitDone) -> None: ...

    def read(self, read: Read, done: ReadDone) -> None:
        """Rows for a Scan, values for a Get. Where the store's reads do not block, `done` is called at once."""

    def close(self, done: CommitDone) -> None: ...


def perform(store: Store, read: Read) -> list[Any]:
    if isinstance(read, Get):
        return store.get(read.keys)
    return store.scan(read.start, read.end, read.limit, read.max_bytes)


def as_store_error(error: Exception) -> StoreError:
    """Whatever a store raises counts as its failure; what it promised not to raise is kept as the cause."""
    if isinstance(error, StoreError):
        return error
    unexpected = StoreError(f"{type(error).__name__}: {error}")
    unexpected.__cause__ = error
    return unexpected


class InlineDriver(StoreDriver):
    """Calls the store on the loop itself: for stores that never wait."""

    def __init__(self, store: Store, loop: ThreadsLoop) -> None:
        self.store = store
        self.hung = False
        self.late = 0
        self.last_error: StoreError | None = None
        self._loop = loop

    def commit(self, batch: Batch, done: CommitDone) -> None:
        error = self._attempt(lambda: self.store.commit(batch))
        self._loop.call_soon(done, error)

    def read(self, read: Read, done: ReadDone) -> None:
        read_inline(self, read, done)

    def close(self, done: CommitDone) -> None:
        self._loop.call_soon(done, self._attempt(self.store.close))

    def _attempt(self, action: Callable[[], None]) -> StoreError | None:
        try:
            action()
        except Exception as error:
            self.last_error = as_store_error(error)
            return self.last_error
        return None


def read_inline(driver: StoreDriver, read: Read, done: ReadDone) -> None:
    try:
        rows = perform(driver.store, read)
    except Exception as error:
        driver.last_error = as_store_error(error)
        done([], driver.last_error)
    else:
        done(rows, None)


class _StoreCall:
    """One call into the store. `done` hears of it exactly once: from the thread's result or the deadline."""

    __slots__ = ("action", "answered", "done", "optional", "timer")

    def __init__(self, action: Callable[[], list[Any]], done: ReadDone, *, optional: bool = True) -> None:
        self.action = action
        self.done = done
        self.optional = optional
        self.answered = False
        self.timer: TimerHandle | None = None


class ThreadDriver(StoreDriver):
    """One writer thread, and where the store's reads may wait a few reader threads."""

    def __init__(
        self,
        store: Store,
        loop: ThreadsLoop,
        *,
        commit_seconds: float = STORE_COMMIT_SECONDS,
        read_seconds: float = STORE_READ_SECONDS,
        close_seconds: float = STORE_CLOSE_SECONDS,
        read_threads: int = STORE_READ_THREADS,
    ) -> None:
        self.store = store
        self.hung = False
        self.late = 0
        self.last_error: StoreError | None = None
        self._loop = loop
        self._commit_seconds = commit_seconds
        self._read_seconds = read_seconds
        self._close_seconds = close_seconds
        self._closing = False
        self._writes: queue.SimpleQueue[_StoreCall | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[_StoreCall | None] = queue.SimpleQueue()
        self._read_threads = read_threads if store.reads_block else 0
        self._start_threads()

    def _start_threads(self) -> None:
        for calls, count in ((self._writes, 1), (self._reads, self._read_threads)):
            for _ in range(count):
                # A thread that hangs in a dead disk must not keep the process from ending.
                name = f"store {self.store.url}"
                threading.Thread(target=self._work, args=(calls,), name=name, daemon=True).start()

    def commit(self, batch: Batch, done: CommitDone) -> None:
        """Begins the commit here where the store can: the GIL would be held all the same, and the way to the thread
        and back costs as much as a small batch does. Only what waits for the disk is the thread's."""
        if self.hung or self._closing:
            # Its batch may still be under way: another one could overtake it or build on it.
            why = "hangs" if self.hung else "is closed"
            self._loop.call_soon(done, StoreFenced(f"{self.store.url} {why}"))
            return
        try:
            begun = self.store.begin(batch)
        except Exception as error:
            self.last_error = as_store_error(error)
            self._loop.call_soon(done, self.last_error)
            return
        rest = self.store.finish if begun else self.store.commit

        def write() -> list[Any]:
            rest(batch)
            return []

        call = _StoreCall(write, lambda _, error: done(error), optional=not begun)
        self._submit(self._writes, call, self._commit_seconds)

    def read(self, read: Read, done: ReadDone) -> None:
        if not self._read_threads:
            read_inline(self, read, done)
            return
        self._submit(self._reads, _StoreCall(lambda: perform(self.store, read), done), self._read_seconds)

    def close(self, done: CommitDone) -> None:
        """Closes the store after the commit under way. A hung store is closed when it comes back."""

        def shut() -> list[Any]:
            self.store.close()
            return []

        call = _StoreCall(shut, lambda _, error: done(error), optional=False)
        self._submit(self._writes, call, self._close_seconds)
        self._closing = True
        self._writes.put(None)
        for _ in range(self._read_threads):
            self._reads.put(None)

    def _submit(self, calls: queue.SimpleQueue[_StoreCall | None], call: _StoreCall, seconds: float) -> None:
        if self._closing:
            self._loop.call_soon(call.done, [], StoreFenced(f"{self.store.url} is closed"))
            return
        call.timer = self._loop.call_later(seconds, self._overdue, call, seconds)
        calls.put(call)

    def _work(self, calls: queue.SimpleQueue[_StoreCall | None]) -> None:
        while (call := calls.get()) is not None:
            if call.answered and call.optional:
                continue
            result: list[Any] = []
            failure: StoreError | None = None
            try:
                result = call.action()
            except Exception as error:
                failure = as_store_error(error)
            # A loop that has been closed raises: then nobody is left to tell.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._finished, call, result, failure)

    def _finished(self, call: _StoreCall, result: list[Any], failure: StoreError | None) -> None:
        if failure is not None:
            self.last_error = failure
        if call.answered:
            self.late += 1
            return
        call.answered = True
        if call.timer is not None:
            call.timer.cancel()
        call.done(result, failure)

    def _overdue(self, call: _StoreCall, seconds: float) -> None:
        if call.answered:
            return
        call.answered = True
        self.hung = True
        self.last_error = StoreError(f"{self.store.url}: no answer within {seconds:g} s")
        call.done([], self.last_error)
