"""A store that fails on demand: the twin of a real one for tests, the simulator and the fault endpoint.

Every fault that the contract of `base.Store` speaks of has a switch: calls that fail, hang or are slow, a full
disk, a failed sync, and power loss that takes whatever was not synced. The twin keeps the contract while it
fails: a failed commit fences it, and only `reopen` makes it good. It never half-applies a batch: engines with
atomic batches recover one in flight either whole or not at all, and `crash` can choose either.

What was not synced is kept aside in a view in memory, so that a crash can drop it from any inner store.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from polybus.errors import StoreError, StoreFenced, StoreFull
from polybus.store.base import NO_LIMIT, Batch, Copy, Row, Store
from polybus.store.copying import copy_rows
from polybus.store.memory import MemoryStore

Kind = Literal["open", "get", "scan", "commit", "sync"]
KINDS: tuple[Kind, ...] = ("open", "get", "scan", "commit", "sync")
"""`open` is met by whoever opens the store. `commit` fails before anything is written, `sync` after: then nobody
knows what the disk holds."""


class _Gate:
    """Holds up calls. `reached` says that one has come to it, `opened` lets them go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def pass_through(self) -> None:
        self.reached.set()
        self.opened.wait()


class Faults:
    """The switches. They outlive a reopening, as a bad disk outlives a process."""

    def __init__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        self.calls: dict[Kind, int] = dict.fromkeys(KINDS, 0)
        self.full = False
        self.low = False
        """The disk shows no free space, and still takes what is written."""
        self._sleep = sleep
        self._fail_at: dict[Kind, int] = {}
        self._fail_from: dict[Kind, int] = {}
        self._slow: dict[Kind, float] = {}
        self._gates: dict[Kind, _Gate] = {}

    def fail_nth(self, kind: Kind, n: int = 1) -> None:
        """The n-th call of this kind from now fails, the others do not."""
        self._fail_at[kind] = self.calls[kind] + n

    def fail_from_now(self, kind: Kind) -> None:
        self._fail_from[kind] = self.calls[kind] + 1

    def take_down(self) -> None:
        """The store is gone: every call fails, and so does opening it again, until `heal`."""
        for kind in KINDS:
            self.fail_from_now(kind)

    def hang(self, kind: Kind) -> None:
        """Calls of this kind block until `release`."""
        self._gates.setdefault(kind, _Gate())

    def release(self, kind: Kind | None = None) -> None:
        for each in KINDS if kind is None else (kind,):
            gate = self._gates.pop(each, None)
            if gate is not None:
                gate.opened.set()

    def hangs(self, kind: Kind) -> bool:
        """For those who must not block, like the simulator: ask before the call."""
        return kind in self._gates

    def wait_until_hanging(self, kind: Kind, timeout_s: float = 30.0) -> bool:
        """For tests with threads: returns when a call of this kind is stuck; False when none came in time."""
        return self._gates[kind].reached.wait(timeout_s)

    def slow(self, kind: Kind, seconds: float) -> None:
        self._slow[kind] = seconds

    def disk_full(self, full: bool = True) -> None:
        self.full = full

    def disk_low(self, low: bool = True) -> None:
        """Free space is below any reserve; commits go on."""
        self.low = low

    def heal(self) -> None:
        """Turns every switch off; a fence stays until the store is reopened."""
        self.full = False
        self.low = False
        self._fail_at.clear()
        self._fail_from.clear()
        self._slow.clear()
        self.release()

    def state(self) -> dict[str, object]:
        """The switches that are on, for people to read."""
        return {
            "full": self.full,
            "low": self.low,
            "hangs": sorted(self._gates),
            "slow": dict(sorted(self._slow.items())),
            "fails": sorted({*self._fail_at, *self._fail_from}),
        }

    def meet(self, kind: Kind) -> None:
        """Goes through what is in the way of one call; raises where it fails."""
        self.calls[kind] += 1
        number = self.calls[kind]
        if kind in self._slow:
            self._sleep(self._slow[kind])
        gate = self._gates.get(kind)
        if gate is not None:
            gate.pass_through()
        if self._fail_at.get(kind) == number:
            del self._fail_at[kind]
            raise StoreError(f"{kind} fails on demand")
        if number >= self._fail_from.get(kind, number + 1):
            raise StoreError(f"{kind} fails on demand")


class FailingStore(Store):
    """Stands before `inner` and fails as its `faults` say.

    `reopen_inner` opens the inner store again after a crash; a MemoryStore needs none.
    """

    def __init__(
        self,
        inner: Store,
        *,
        faults: Faults | None = None,
        reopen_inner: Callable[[], Store] | None = None,
        reads_block: bool | None = None,
    ) -> None:
        if reopen_inner is None and isinstance(inner, MemoryStore):
            reopen_inner = inner.reopen
        self.inner = inner
        self.faults = faults or Faults()
        self.url = inner.url
        self.store_id = inner.store_id
        self.reads_block = inner.reads_block if reads_block is None else reads_block
        self.unsafe = inner.unsafe
        self.lease = inner.lease
        self.epoch = inner.epoch
        self.volatile = bool(getattr(inner, "volatile", False))
        self._reopen_inner = reopen_inner
        self._fenced: StoreError | None = None
        self._unsynced: list[Batch] = []
        self._in_flight: Batch | None = None
        self._view: MemoryStore | None = None

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.faults.meet("get")
        return (self._view or self.inner).get(keys)

    def scan(self, start: bytes, end: bytes, limit: int, max_bytes: int = NO_LIMIT) -> list[Row]:
        self.faults.meet("scan")
        return (self._view or self.inner).scan(start, end, limit, max_bytes)

    def commit(self, batch: Batch) -> None:
        if self._fenced is not None:
            raise StoreFenced(f"{self.url}: fenced after: {self._fenced}")
        if self.faults.full:
            raise StoreFull(f"{self.url}: full on demand")
        try:
            self.faults.meet("commit")
            self._in_flight = batch
            self.faults.meet("sync")
        except StoreError as error:
            self._fenced = error
            raise
        self._write(batch)
        self._in_flight = None

    def _write(self, batch: Batch) -> None:
        if self._fenced is not None:
            # It hung, and the power went or somebody else opened the store before it came back.
            raise StoreFenced(f"{self.url}: fenced after: {self._fenced}")
        if self._view is not None:
            self._view.commit(batch)
            self._unsynced.append(batch)
            return
        try:
            self.inner.commit(batch)
        except StoreFull:
            raise
        except StoreError as error:
            self._fenced = error
            raise

    def lose_unsynced(self) -> None:
        """From now on commits return before they are synced, as if a disk lied; `crash` loses them."""
        if self._view is None:
            self._view = MemoryStore(self.url, self.store_id)
            copy_rows(self.inner.scan, self._view)

    def sync(self) -> None:
        """Makes safe what `lose_unsynced` left unsafe, and ends it."""
        for batch in self._unsynced:
            self.inner.commit(batch)
        self._unsynced.clear()
        self._view = None

    def crash(self, in_flight: Literal["lost", "kept"] = "lost") -> None:
        """The power goes: what was not synced is gone, a batch in flight is there whole or not at all."""
        if in_flight == "kept" and self._in_flight is not None:
            for batch in (*self._unsynced, self._in_flight):
                self.inner.commit(batch)
        self._fenced = StoreError("the power went")
        self._in_flight = None
        self._unsynced.clear()
        self._view = None
        self.inner.close()

    def reopen(self) -> FailingStore:
        """The store as the next process finds it, with the same faults; this handle is fenced for good."""
        if self._reopen_inner is None:
            raise StoreError(f"{self.url}: no way to open it again was given")
        if self._fenced is None:
            self._fenced = StoreError("it was opened again")
        self.inner.close()
        inner = self._reopen_inner()
        reopen_inner = None if isinstance(inner, MemoryStore) else self._reopen_inner
        return FailingStore(inner, faults=self.faults, reopen_inner=reopen_inner, reads_block=self.reads_block)

    def free_bytes(self) -> int | None:
        return 0 if self.faults.full or self.faults.low else self.inner.free_bytes()

    def reclaim(self) -> None:
        self.inner.reclaim()

    def copy(self, target: Path) -> Copy:
        return self.inner.copy(target)

    def close(self) -> None:
        self.inner.close()
