"""Where receivers accept sessions: a queue or subscription with sessions, over all its partitions.

A session lives wholly in the partition that its id selects. Whoever asks for the next available session waits
in line until one of the partitions has one, or until its time is up.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from polybus.clock import Clock
from polybus.errors import OperationTimeout, PolybusError, SessionLockLost
from polybus.hosting.partition_host import PartitionHost
from polybus.hosting.store_host import StoreHost
from polybus.limits import SESSION_SEEK_MS
from polybus.namespace.delivery.routing import partition_for
from polybus.namespace.delivery.source import Delivery, deliver_removed
from polybus.partition import holding
from polybus.partition.log import Log
from polybus.partition.sessions import Session
from polybus.promise import Handle, Loop, Promise, settles_within, spawn


class SessionReceiver(Protocol):
    """A receiving link that holds a session, as the namespace sees it."""

    credit: int
    deletes: bool

    def deliver(self, delivery: Delivery) -> None: ...

    def failed(self, error: PolybusError) -> None: ...

    def lock_lost(self) -> None:
        """The session's lock has run out, or its partition is gone."""


class HeldSession:
    """A session that a receiver holds; it pumps the session's messages to it."""

    def __init__(
        self, source: SessionSource, partition: PartitionHost, log: Log, session: Session, clock: Clock
    ) -> None:
        self._source = source
        self.partition = partition
        self.log = log
        self.session = session
        self.receiver: SessionReceiver | None = None
        self._clock = clock
        self._reading = False
        self._pumping = False
        self._drains: list[Promise[None]] = []

    @property
    def id(self) -> str:
        return self.session.id

    @property
    def locked_until_wall_ms(self) -> int:
        return self.session.until_wall_ms

    def pump(self) -> None:
        """Hands over messages in order while the receiver has credit."""
        receiver, broker = self.receiver, self.partition.broker
        if receiver is None or broker is None or self._pumping:
            return
        self._pumping = True
        try:
            while receiver.credit > 0 and not self.session.lost:
                now = self._clock.now()
                entry = holding.take(broker, self.session, now, not receiver.deletes)
                if entry is None:
                    break
                receiver.credit -= 1
                delivery = Delivery(self.partition, self.log, entry, entry.lock)
                if receiver.deletes:
                    broker.out().replies.append((deliver_removed, (receiver, delivery), None))
                else:
                    receiver.deliver(delivery)
        finally:
            self._pumping = False
        self._read_more()

    def _read_more(self) -> None:
        broker = self.partition.broker
        if broker is None or self._reading or self.session.lost or not self.session.wants_page():
            return
        self._reading = True

        def loaded(promise: Promise[None]) -> None:
            self._reading = False
            try:
                promise.result()
            except PolybusError:
                self.partition.try_again(self.pump)
            else:
                if self.session.has_ready() or not self.session.whole:
                    self.pump()
            drains, self._drains = self._drains, []
            for waiting in drains:
                waiting.resolve(None)

        self.partition.run(holding.load_page(broker, self.log, self.session)).then(loaded)

    def drained(self) -> Promise[None]:
        """Settled when everything that was there has been handed over."""
        promise: Promise[None] = Promise()
        self.pump()
        if self._reading:
            self._drains.append(promise)
        else:
            promise.resolve(None)
        return promise

    def check(self) -> None:
        """SessionLockLost where the session is no longer held: its time is over, or its broker is gone."""
        if self.session.lost:
            raise SessionLockLost(f"The session lock has expired on the session '{self.id}'.")
        holding.holding(self.log, self.id, self._clock.now(), self.session.holder)

    def renew(self) -> int:
        """Extends the lock; gives its new end in wall time."""
        self.check()
        now = self._clock.now()
        until_ms = holding.renew(self.log, self.session, now)
        self.partition.locked_until(self.session.until_ms)
        return until_ms

    def release(self) -> None:
        """The receiver is done: the session is free at once, and so are its unsettled messages (C2)."""
        self._source.let_go(self)


class _Waiter:
    def __init__(self, holder: object) -> None:
        self.holder = holder
        self.promise: Promise[HeldSession] = Promise()
        self.timer: Handle | None = None


class SessionSource:
    def __init__(self, name: str, log_id: int, partitions: list[PartitionHost], clock: Clock, loop: Loop) -> None:
        self.name = name
        self.log_id = log_id
        self.partitions = partitions
        self._clock = clock
        self._loop = loop
        self._held: dict[Session, HeldSession] = {}
        self._waiters: deque[_Waiter] = deque()
        self._turn = 0
        self._seeking = False
        self._again = False
        """Whether another look is due after a failure."""
        self._asked: dict[StoreHost, None] = {}
        """Stores whose answer is waited for, or no longer is."""
        self._sought = False
        """Whether everything that was there when somebody last asked has been looked at."""
        for partition in partitions:
            partition.session_sources[log_id] = self
            if partition.available:
                self.partition_opened(partition)

    # Partitions

    def partition_opened(self, partition: PartitionHost) -> None:
        log = partition.require().log(self.log_id)
        log.watcher = _SessionWatch(self, partition)
        self.seek()

    def session_lost(self, session: Session) -> None:
        held = self._held.pop(session, None)
        if held is not None and held.receiver is not None:
            held.receiver.lock_lost()

    def arrived(self, partition: PartitionHost) -> None:
        """Messages arrived in sessions: those who hold one may get it, those who wait may get a session."""
        if partition.broker is None:
            return  # deleted while the commit was under way, which others share: they must hear of it all the same
        book = holding.book(partition.broker.log(self.log_id))
        touched, book.touched = book.touched, {}
        for session in touched.values():
            held = self._held.get(session)
            if held is not None:
                held.pump()
        self.seek()

    # Accepting

    async def accept(self, session_id: str, holder: object) -> HeldSession:
        """Locks the named session; SessionCannotBeLocked where somebody holds it."""
        partition = self.partitions[partition_for(session_id, len(self.partitions))]
        broker = partition.require()
        log = broker.log(self.log_id)
        session = await partition.run(holding.accept(broker, log, session_id, self._clock.now(), holder))
        return await self._hold(partition, log, session)

    def accept_next(self, holder: object, timeout_ms: int) -> Promise[HeldSession]:
        """Locks the next available session, waiting for one; OperationTimeout when the time is up."""
        waiter = _Waiter(holder)
        self._waiters.append(waiter)
        waiter.timer = self._loop.call_later(timeout_ms / 1000, self._timed_out, waiter, timeout_ms)
        self.seek()
        return waiter.promise

    def cancel(self, promise: Promise[HeldSession]) -> None:
        """The one who waited is gone."""
        for waiter in self._waiters:
            if waiter.promise is promise:
                self._remove(waiter)
                return

    def _remove(self, waiter: _Waiter) -> None:
        self._waiters.remove(waiter)
        if waiter.timer is not None:
            waiter.timer.cancel()

    def _timed_out(self, waiter: _Waiter, timeout_ms: int) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
            seconds = timeout_ms // 1000
            waiter.promise.reject(
                OperationTimeout(
                    "The operation did not complete within the allotted timeout of"
                    f" {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{timeout_ms % 1000:03}."
                )
            )

    def seek(self) -> None:
        """Looks for sessions for those who wait, one partition after the other."""
        self._sought = False
        if self._waiters and not self._seeking:
            self._seeking = True
            spawn(self._seek()).then(Promise.result)

    async def _seek(self) -> None:
        """Goes round until nobody waits, or every partition has had nothing since the last of them was asked."""
        try:
            while self._waiters and not self._sought:
                self._sought = True
                for _ in self.partitions:
                    partition = self.partitions[self._turn]
                    self._turn = (self._turn + 1) % len(self.partitions)
                    if self._waiters and await self._has_given(partition):
                        self._sought = False
        finally:
            self._seeking = False

    async def _has_given(self, partition: PartitionHost) -> bool:
        """Whether the partition had a session for somebody. A store that takes long is not waited for."""
        store = partition.store
        if store in self._asked:
            return False
        asked = spawn(self._seek_in(partition))
        if asked.settled:
            return asked.result()
        self._asked[store] = None
        in_time = await settles_within(asked, self._loop, SESSION_SEEK_MS)
        if in_time:
            del self._asked[store]
            return asked.result()
        asked.then(lambda _: self._answered_late(store))
        return False

    def _answered_late(self, store: StoreHost) -> None:
        """Whoever came while the store was asked may find something in it now."""
        del self._asked[store]
        self.seek()

    async def _seek_in(self, partition: PartitionHost) -> bool:
        """Gives the partition's next session to the one who has waited longest."""
        broker = partition.broker
        if broker is None or not holding.book(broker.log(self.log_id)).has_waiting():
            return False
        log = broker.log(self.log_id)
        waiter = self._waiters[0]
        try:
            session = await partition.run(holding.accept_next(broker, log, self._clock.now(), waiter.holder))
            if session is None:
                if not holding.book(log).has_more():
                    return False
                await partition.turn()
                return True
            held = await self._hold(partition, log, session)
        except PolybusError:
            self._seek_again(partition)
            return False  # the others may still have a session
        if waiter not in self._waiters:
            held.release()  # the one who waited has gone or given up meanwhile
            return True
        self._remove(waiter)
        waiter.promise.resolve(held)
        return True

    def _seek_again(self, partition: PartitionHost) -> None:
        """Soon, and once however many partitions ask for it: each round asks them all."""
        if not self._again and partition.broker is not None:
            self._again = True
            partition.try_again(self._look_again)

    def _look_again(self) -> None:
        self._again = False
        self.seek()

    async def _hold(self, partition: PartitionHost, log: Log, session: Session) -> HeldSession:
        """Waits until what the last holder did is on disk: what comes next in the session depends on it."""
        held = HeldSession(self, partition, log, session, self._clock)
        self._held[session] = held
        partition.locked_until(session.until_ms)
        await partition.store.synced()
        held.check()
        return held

    def let_go(self, held: HeldSession) -> None:
        broker = held.partition.broker
        self._held.pop(held.session, None)
        if broker is not None and not held.session.lost:
            holding.release(broker, held.log, held.session, self._clock.now())

    def find(self, session_id: str) -> HeldSession | None:
        """The session, where somebody holds it."""
        partition = self.partitions[partition_for(session_id, len(self.partitions))]
        if partition.broker is None:
            return None
        session = holding.book(partition.broker.log(self.log_id)).held.get(session_id)
        return None if session is None else self._held.get(session)


class _SessionWatch:
    def __init__(self, source: SessionSource, partition: PartitionHost) -> None:
        self._source = source
        self._partition = partition

    def available(self) -> None:
        self._source.arrived(self._partition)
