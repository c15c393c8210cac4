"""Where receivers accept sessions: a queue or subscription with sessions, over all its partitions.

A session lives wholly in the partition that its id selects. Whoever asks for the next available session waits
in line until one of the partitions has one, or until its time is up.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from polybus.errors import OperationTimeout, PolybusError
from polybus.hashing import partition_for
from polybus.hosting.partition_client import LogListener, PartitionClient, SessionListener, SessionLock
from polybus.hosting.store_host import StoreHost
from polybus.limits import RECOVER_MS, SESSION_SEEK_MS
from polybus.namespace.delivery.source import Delivery, deliver_removed
from polybus.promise import Loop, Promise, TimerHandle, settles_within, spawn


class SessionReceiver(Protocol):
    """A receiving link that holds a session, as the namespace sees it."""

    credit: int
    deletes: bool

    def deliver(self, delivery: Delivery) -> None: ...

    def failed(self, error: PolybusError) -> None: ...

    def lock_lost(self) -> None:
        """The session's lock has run out, or its partition is gone."""


class HeldSession(SessionListener):
    """A session that a receiver holds; it pumps the session's messages to it."""

    def __init__(self, source: SessionSource, partition: PartitionClient, lock: SessionLock) -> None:
        self._source = source
        self.partition = partition
        self.lock = lock
        self.receiver: SessionReceiver | None = None
        self._searching = False
        self._pumping = False
        self._again = False
        """Something has become available while messages were handed over."""
        self._drains: list[Promise[None]] = []
        lock.listener = self

    @property
    def id(self) -> str:
        return self.lock.id

    @property
    def locked_until_wall_ms(self) -> int:
        return self.lock.locked_until_ms

    def pump(self) -> None:
        """Hands over messages in order while the receiver has credit."""
        receiver = self.receiver
        self._again = True
        if receiver is None or self._pumping:
            return
        self._pumping = True
        try:
            while receiver.credit > 0 and not self.lock.lost and self._again:
                self._again = False
                while receiver.credit > 0 and self._hand_over(receiver):
                    pass
        finally:
            self._pumping = False

    def _hand_over(self, receiver: SessionReceiver) -> bool:
        if receiver.deletes:
            if not self.partition.take_away_in_session(self.lock, receiver.credit, deliver_removed, receiver):
                return False
            receiver.credit -= 1
            return True
        delivery = self.partition.take_in_session(self.lock, receiver.credit)
        if delivery is None:
            return False
        receiver.credit -= 1
        receiver.deliver(delivery)
        return True

    def available(self) -> None:
        self.pump()

    def searching(self) -> None:
        self._searching = True

    def searched(self) -> None:
        self._searching = False
        drains, self._drains = self._drains, []
        for waiting in drains:
            waiting.resolve(None)

    def lost(self) -> None:
        self._source.lost(self)

    def drained(self) -> Promise[None]:
        """Settled when everything that was there has been handed over."""
        promise: Promise[None] = Promise()
        self.pump()
        if self._searching:
            self._drains.append(promise)
        else:
            promise.resolve(None)
        return promise

    def renew(self) -> Promise[int]:
        """Extends the lock; gives its new end in wall time."""
        return self.partition.renew_session(self.lock)

    def release(self) -> None:
        """The receiver is done: the session is free at once, and so are its unsettled messages (C2)."""
        self._source.let_go(self)


class _Waiter:
    def __init__(self, holder: str) -> None:
        self.holder = holder
        self.promise: Promise[HeldSession] = Promise()
        self.timer: TimerHandle | None = None


class SessionSource(LogListener):
    def __init__(self, name: str, log_id: int, partitions: list[PartitionClient], loop: Loop) -> None:
        self.name = name
        self.log_id = log_id
        self.partitions = partitions
        self._loop = loop
        self._held: dict[str, HeldSession] = {}
        """By session id: those that receivers of this process hold."""
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
            partition.watch(log_id, self)

    # Partitions

    def available(self, partition: PartitionClient) -> None:
        """A session may wait for a receiver."""
        del partition
        self.seek()

    def unavailable(self, partition: PartitionClient) -> None:
        """Those who held sessions there hear of it one by one."""

    def searching(self, partition: PartitionClient) -> None:
        """Sessions are looked for only when somebody waits for one."""

    def searched(self, partition: PartitionClient) -> None:
        """See `searching`."""

    def lost(self, held: HeldSession) -> None:
        self._forget(held)
        if held.receiver is not None:
            held.receiver.lock_lost()

    def _forget(self, held: HeldSession) -> None:
        if self._held.get(held.id) is held:
            del self._held[held.id]

    # Accepting

    async def accept(self, session_id: str, holder: str) -> HeldSession:
        """Locks the named session; SessionCannotBeLocked where somebody holds it."""
        partition = self.partitions[partition_for(session_id, len(self.partitions))]
        return self._hold(partition, await partition.accept_session(self.log_id, session_id, holder))

    def accept_next(self, holder: str, timeout_ms: int) -> Promise[HeldSession]:
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
            spawn(self._look_once_more(waiter, timeout_ms)).then(Promise.result)

    async def _look_once_more(self, waiter: _Waiter, timeout_ms: int) -> None:
        """A lock that ends when the wait does has ended, whichever of the two timers rings first."""
        partitions = [partition for partition in self.partitions if partition.available]
        for partition in partitions:
            partition.clock_moved()
        for store in dict.fromkeys(partition.store for partition in partitions):
            await settles_within(store.synced(), self._loop, SESSION_SEEK_MS)
        if waiter in self._waiters and not self._seeking:
            self._sought = False
            self._seeking = True
            await self._seek()
        self._give_up(waiter, timeout_ms)

    def _give_up(self, waiter: _Waiter, timeout_ms: int) -> None:
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

    async def _has_given(self, partition: PartitionClient) -> bool:
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

    async def _seek_in(self, partition: PartitionClient) -> bool:
        """Gives the partition's next session to the one who has waited longest."""
        if not partition.may_have_session(self.log_id):
            return False
        waiter = self._waiters[0]
        try:
            lock = await partition.accept_next_session(self.log_id, waiter.holder)
        except PolybusError:
            self._seek_again(partition)
            return False  # the others may still have a session
        if lock is None:
            return False
        held = self._hold(partition, lock)
        if waiter not in self._waiters:
            held.release()  # the one who waited has gone or given up meanwhile
            return True
        self._remove(waiter)
        waiter.promise.resolve(held)
        return True

    def _seek_again(self, partition: PartitionClient) -> None:
        """Soon, and once however many partitions ask for it: each round asks them all."""
        if not self._again and partition.available:
            self._again = True
            self._loop.call_later(RECOVER_MS / 1000, self._look_again)

    def _look_again(self) -> None:
        self._again = False
        self.seek()

    def _hold(self, partition: PartitionClient, lock: SessionLock) -> HeldSession:
        held = HeldSession(self, partition, lock)
        self._held[lock.id] = held
        return held

    def let_go(self, held: HeldSession) -> None:
        self._forget(held)
        held.partition.release_session(held.lock)

    def find(self, session_id: str) -> HeldSession | None:
        """The session, where a receiver of this process holds it."""
        return self._held.get(session_id)
