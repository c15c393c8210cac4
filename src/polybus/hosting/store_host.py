"""One messaging store at work: its group commit, its health, and its way back after a failure.

Brokers of all entities on the store write into one open output. What arrives while a commit syncs is the next
batch; there is no timer. When a commit fails the store is fenced: brokers on it are dropped with their memory,
whoever waits hears of it, and the store is opened again later. Nothing of one store ever waits for another.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator
from functools import partial
from typing import Protocol, TypeVar

from polybus.errors import PartitionUnavailable, PolybusError, QuotaExceeded, StoreError, StoreFull
from polybus.hosting.send_ledger import NumberedSends, SendLedger
from polybus.limits import REOPEN_MS, REOPEN_MS_MAX, UNCOMMITTED_BYTES
from polybus.partition.output import Output, Sink
from polybus.partition.reading import has_rows, scan_rows
from polybus.partition.records import after
from polybus.promise import Loop, Promise, rejected
from polybus.rows import Read, Row
from polybus.store.driver import StoreDriver
from polybus.store.lease import Lease

T = TypeVar("T")
PROBE_KEY = b"~probe"
"""A key that no table has: deleting it changes nothing, and is a commit with a sync like any other."""


class StoreState(enum.Enum):
    OPEN = "open"
    FENCED = "fenced"
    OPENING = "opening"
    MISSING = "missing"


class InDoubt(PartitionUnavailable):
    """A commit failed or timed out: what it held may or may not be stored."""


class Tenant(Protocol):
    """A partition that lives on the store."""

    def fenced(self) -> None: ...

    def settled(self, batch: Output) -> None: ...


Opener = Callable[[], Promise[StoreDriver]]


class StoreHost(Sink):
    def __init__(self, url: str, loop: Loop, opener: Opener) -> None:
        self.url = url
        self.elsewhere = False
        """Whether another process owns it."""
        self.store_id = b""
        self.place: str | None = None
        """Where the catalogue notes that it lies; None where it lies nowhere that outlasts the process."""
        self.state = StoreState.MISSING
        self.last_error: str | None = None
        self.driver: StoreDriver | None = None
        self.ledger: SendLedger | None = None
        """Of a store that may have another owner later: what became of other members' sends."""
        self.outgoing: NumberedSends | None = None
        """Of a store elsewhere that may: this process's sends to it."""
        self.lease: Lease | None = None
        """Until when what lies here may be handed out; None where nobody else can own the store."""
        self.batch = Output()
        self.tenants: dict[tuple[int, int], Tenant] = {}
        self.on_fenced: Callable[[StoreHost], None] | None = None
        self.on_opened: Callable[[StoreHost], None] | None = None
        self.on_change: Callable[[StoreHost], None] | None = None
        """Called when the state is another: for those who speak of the store elsewhere."""
        self.openings = 0
        """How often the store was opened: what was read of an earlier opening must not be built on."""
        self.commits = 0
        self.committed_bytes = 0
        self.commit_failures = 0
        self.full = False
        """Below its reserve of free space: nothing may be sent, everything may be received (D8)."""
        self.free_bytes: int | None = None
        self._loop = loop
        self._opener = opener
        self._committing: Output | None = None
        self._scheduled = False
        self._held = False
        self._retry_ms = REOPEN_MS
        self._full_ms = 0
        self._kept: StoreDriver | None = None
        """The driver of a store that was full, until it serves again."""
        self._closing = False

    @property
    def available(self) -> bool:
        return self.state is StoreState.OPEN

    @property
    def may_hand_out(self) -> bool:
        """Whether this process still owns the store for sure. A commit that comes too late is refused by the store; a
        delivery, a lock or a session would leave from memory, and the next owner may be handing out the same."""
        lease = self.lease
        return lease is None or lease.holds

    @property
    def unsafe(self) -> bool:
        return self.driver is not None and self.driver.store.unsafe

    @property
    def overloaded(self) -> bool:
        """Whether so much waits for the disk that senders must slow down."""
        committing = self._committing
        return self.batch.bytes + (committing.bytes if committing is not None else 0) > UNCOMMITTED_BYTES

    # Group commit

    def touch(self) -> None:
        """Something was written to the open output."""
        if not self._scheduled and self._committing is None:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        batch, driver = self.batch, self.driver
        if self._committing is not None or driver is None or self.state is not StoreState.OPEN or self._held:
            return
        if not batch.brokers and not batch:
            return
        batch.seal()
        self.batch = Output()
        self._committing = batch
        driver.commit(batch, partial(self._committed, driver, batch))

    def _committed(self, driver: StoreDriver, batch: Output, error: StoreError | None) -> None:
        if driver is not self.driver or self._committing is not batch:
            return
        self._committing = None
        if error is not None:
            self.fence(error, batch)
            return
        self._full_ms = 0
        self.commits += 1
        self.committed_bytes += batch.bytes
        batch.release()
        for broker in batch.brokers:
            tenant = self.tenants.get((broker.entity_id, broker.index))
            if tenant is not None:
                tenant.settled(batch)
        if self.batch.brokers or self.batch:
            self.touch()  # after what else has ended in this turn: other stores' replies bring more for the batch

    def hold(self) -> Promise[None]:
        """Commits nothing until `let_go`; settled when the commit under way is over, so that what is written now is
        what was acknowledged. Whoever writes meanwhile waits."""
        self._held = True
        done: Promise[None] = Promise()
        if self._committing is None:
            done.resolve(None)
        else:
            self._committing.replies.append((done.reply, None, None))
        return done

    def let_go(self) -> None:
        self._held = False
        if self.batch.brokers or self.batch:
            self.touch()

    def synced(self) -> Promise[None]:
        """Settled when everything that is written so far is on disk; at once where it is."""
        done: Promise[None] = Promise()
        if self.batch.brokers or self.batch:
            self.batch.replies.append((done.reply, None, None))
        elif self._committing is not None:
            self._committing.replies.append((done.reply, None, None))
        else:
            done.resolve(None)
        return done

    def probe(self) -> Promise[None]:
        """Settled when a commit that changes nothing has come through: by it one knows that the store commits."""
        self.batch.delete(PROBE_KEY)
        self.touch()
        return self.synced()

    def delete_rows(self, prefix: bytes) -> Promise[None]:
        """Removes every row whose key begins so; settled when that is on disk."""
        self.batch.delete_range(prefix, after(prefix))
        self.touch()
        return self.synced()

    # Reads

    def has_rows(self, prefix: bytes) -> Promise[bool]:
        """Whether there is any row whose key begins so."""
        return self.run(has_rows(prefix))

    def recover(self) -> Promise[None]:
        """Of a store elsewhere: asks its owner to open it now, and to bring its partitions up."""
        raise NotImplementedError

    def marks_about(self, prefix: bytes) -> Promise[list[Row]]:
        """The rows whose keys begin so: marks that name what a doubtful store may hold."""
        return self.run(scan_rows(prefix))

    def remove_rows(self, keys: list[bytes]) -> Promise[None]:
        """Removes rows by key; settled when that is on disk."""
        if not self.available:
            return rejected(self.unavailable())
        for key in keys:
            self.batch.delete(key)
        self.touch()
        return self.synced()

    def run(self, steps: Generator[Read, list[object], T]) -> Promise[T]:
        """Drives a broker's verb, giving it the rows that it asks for."""
        promise: Promise[T] = Promise()
        self._step(steps, promise, None, None)
        return promise

    def _step(
        self,
        steps: Generator[Read, list[object], T],
        promise: Promise[T],
        answer: list[object] | None,
        error: PolybusError | None,
    ) -> None:
        try:
            while True:
                read = steps.throw(error) if error is not None else steps.send(answer)  # type: ignore[arg-type]
                error = None
                driver = self.driver
                if driver is None:
                    error = self.unavailable()
                    continue
                waiting = _Answer(self, steps, promise)
                driver.read(read, waiting.arrived)
                if not waiting.here:
                    waiting.late = True
                    return
                answer, error = waiting.rows, waiting.error
        except StopIteration as stop:
            promise.resolve(stop.value)
        except PolybusError as failure:
            promise.reject(failure)

    def read_failed(self, error: StoreError, opening: int) -> None:
        """A read that does not come back is no better than a commit that does not: the store is fenced, so that clients
        hear at once what they would wait for."""
        if self.driver is not None and self.driver.hung and self.openings == opening:
            self.fence(error, self._committing)

    # Failure and return

    def unavailable(self) -> PartitionUnavailable:
        """For clients: why the store is down is in `last_error`, for those who may know where it lies."""
        return PartitionUnavailable("A messaging store of this entity is not available. Try again.")

    def fence(self, error: StoreError, failed: Output | None) -> None:
        """The store can no longer be trusted: its brokers go, and it is opened again after a while."""
        self.commit_failures += 1
        self.last_error = str(error) or type(error).__name__
        full = isinstance(error, StoreFull)
        open_batch, self.batch = self.batch, Output()
        self.state = StoreState.FENCED
        self._committing = None
        driver, self.driver = self.driver, None
        for tenant in list(self.tenants.values()):
            tenant.fenced()
        if self.on_fenced is not None:
            self.on_fenced(self)
        if self.on_change is not None:
            self.on_change(self)
        if failed is not None:
            if full:
                failed.refuse(QuotaExceeded("A messaging store has no space left."))
            else:
                failed.refuse(InDoubt("A messaging store failed during a commit."))
        open_batch.refuse(self.unavailable())
        if driver is None:
            self._retry_later()
        elif full:
            # Nothing was written and the store is good; only the brokers' memory ran ahead of it. One that refuses
            # again before it has taken anything comes back more and more slowly.
            self.full = True
            self._kept = driver
            if self._full_ms:
                self._loop.call_later(self._full_ms / 1000, self._take_back, driver)
            else:
                self._loop.call_soon(self._take_back, driver)
            self._full_ms = min(max(self._full_ms * 2, REOPEN_MS), REOPEN_MS_MAX)
        else:
            driver.close(lambda _: self._retry_later())

    def _take_back(self, driver: StoreDriver) -> None:
        """A store that was full serves again with the driver that it had; it may have been asked to open meanwhile."""
        if self._kept is driver:
            self._kept = None
            self._take(driver, Promise())

    def _retry_later(self) -> None:
        if self._closing or self.state in (StoreState.OPEN, StoreState.OPENING):
            return
        self._loop.call_later(self._retry_ms / 1000, self.open)
        self._retry_ms = min(self._retry_ms * 2, REOPEN_MS_MAX)

    def open(self) -> Promise[bool]:
        """Opens the store; the promise says whether it worked. Failing, it tries again by itself."""
        done: Promise[bool] = Promise()
        if self._closing or self.state in (StoreState.OPEN, StoreState.OPENING):
            done.resolve(self.state is StoreState.OPEN)
            return done
        kept, self._kept = self._kept, None
        if kept is not None:
            self._take(kept, done)
            return done
        self.state = StoreState.OPENING

        def opened(promise: Promise[StoreDriver]) -> None:
            try:
                driver = promise.result()
            except (StoreError, OSError) as error:
                self.last_error = str(error)
                self.state = StoreState.FENCED if self.store_id else StoreState.MISSING
                if self.on_change is not None:
                    self.on_change(self)
                self._retry_later()
                done.resolve(False)
                return
            self._take(driver, done)

        self._opener().then(opened)
        return done

    def _take(self, driver: StoreDriver, done: Promise[bool]) -> None:
        found = driver.store.store_id
        if self._closing:
            driver.close(lambda _: done.resolve(False))
            return
        if self.store_id and found != self.store_id:
            self.last_error = f"{self.url} holds another messaging store than before; it is refused"
            self.state = StoreState.FENCED
            driver.close(lambda _: self._retry_later())
            done.resolve(False)
            return
        self.store_id = found
        self.driver = driver
        self.lease = driver.store.lease
        self.openings += 1
        leftover, self.batch = self.batch, Output()
        leftover.refuse(self.unavailable())
        self.state = StoreState.OPEN
        self.last_error = None
        if self.ledger is not None:
            self.ledger.opened()
        self._retry_ms = REOPEN_MS
        if self.on_opened is not None:
            self.on_opened(self)
        if self.on_change is not None:
            self.on_change(self)
        done.resolve(True)

    def close(self) -> Promise[None]:
        """Commits what is open, then closes the store for good."""
        done: Promise[None] = Promise()
        self._closing = True
        self._held = False
        self._close_when_idle(done)
        return done

    def _close_when_idle(self, done: Promise[None]) -> None:
        if self.state is StoreState.OPEN and (self._committing is not None or self.batch.brokers or self.batch):
            self._flush()
            self._loop.call_later(0.001, self._close_when_idle, done)
            return
        driver = self.driver if self.driver is not None else self._kept
        self.driver = self._kept = None
        self.state = StoreState.MISSING
        if driver is None:
            done.resolve(None)
        else:
            driver.close(lambda _: done.resolve(None))


class _Answer:
    """A read's answer, whether it comes at once or later."""

    __slots__ = ("_host", "_opening", "_promise", "_steps", "error", "here", "late", "rows")

    def __init__(self, host: StoreHost, steps: Generator[Read, list[object], T], promise: Promise[T]) -> None:
        self._host = host
        self._opening = host.openings
        self._steps = steps
        self._promise: Promise[T] = promise
        self.here = False
        self.late = False
        self.rows: list[object] = []
        self.error: PolybusError | None = None

    def arrived(self, rows: list[object], error: StoreError | None) -> None:
        self.here = True
        self.rows = rows
        if error is not None:
            self.error = PartitionUnavailable("A messaging store of this entity could not be read. Try again.")
            self.error.__cause__ = error
            self._host.read_failed(error, self._opening)
        elif self._host.driver is None or self._host.openings != self._opening:
            self.error = self._host.unavailable()  # fenced since: whoever asked works on memory that is gone
        if self.late:
            self._host._step(self._steps, self._promise, rows, self.error)
