"""A partition whose broker is in this process: each verb of its client is a direct call."""

from __future__ import annotations

from polybus.clock import Now
from polybus.errors import (
    BusError,
    MessageLockLost,
    PolybusError,
)
from polybus.hosting.local_pipelines import LocalPipelines
from polybus.hosting.local_sessions import session_of
from polybus.hosting.partition_client import Delivery, SessionLock, TransactionWork
from polybus.hosting.partition_host import LOCK_LOST, read_rows
from polybus.message.outcome import ABANDON, COMPLETE, DEFER
from polybus.message.peeked import Peeked
from polybus.partition import (
    events,
    purging,
    receiving,
    sending,
    session_verbs,
    settling,
    transactions,
    upkeep,
)
from polybus.partition.data import LogStatistics, Statistics
from polybus.partition.entry import Entry
from polybus.partition.kinds import KINDS
from polybus.partition.log import Log
from polybus.partition.tokens import read_token
from polybus.promise import C, Promise, Reply, rejected, resolved, spawn


class LocalPartition(LocalPipelines):
    """All verbs of a partition's client, beside its life and what `local_sessions` and the others have."""

    # Sending

    def reserve(self, count: int) -> Promise[list[int]]:
        return spawn(self._reserve(count))

    async def _reserve(self, count: int) -> list[int]:
        numbers: Promise[list[int]] = Promise()
        transactions.reserve(self.require(), count, numbers.reply, None)
        return await numbers

    def cancel_scheduled(self, numbers: list[int]) -> Promise[None]:
        return spawn(self._cancel_scheduled(numbers))

    async def _cancel_scheduled(self, numbers: list[int]) -> None:
        done: Promise[None] = Promise()
        await self.run(upkeep.cancel(self.require(), self._clock.now(), numbers, done.reply, None))
        await done

    # Receiving

    def take_deferred(
        self, log_id: int, numbers: list[int], lock: bool, session: SessionLock | None
    ) -> Promise[list[Delivery]]:
        return spawn(self._take_deferred(log_id, numbers, lock, session))

    async def _take_deferred(
        self, log_id: int, numbers: list[int], lock: bool, session: SessionLock | None
    ) -> list[Delivery]:
        broker, now = self.require(), self._clock.now()
        log = broker.log(log_id)
        if session is None:
            steps = receiving.take_deferred(broker, log, now, numbers, lock, None, None)
        else:
            held = session_of(self._check_held(session))
            steps = session_verbs.take_deferred(broker, log, held, now, numbers, lock)
        entries = await self.run(steps)
        if not self.store.may_hand_out:
            raise self.unavailable()
        deliveries = [self.delivery(broker, entry) for entry in entries]
        if not lock:
            await self.synced()
        for entry in entries:
            if entry.lock:
                self.locked_until(entry.locked_until_ms)
        return deliveries

    def peek(self, log_id: int, first: int, count: int, max_bytes: int, session: str | None) -> Promise[list[Peeked]]:
        broker = self.broker
        if broker is None:
            return rejected(self.unavailable())
        try:
            log = broker.log(log_id)
        except BusError as error:
            return rejected(error)
        return self.run(receiving.peek(broker, log, self._clock.now(), first, count, max_bytes, session))

    # Settling

    def settle(
        self,
        delivery: Delivery,
        now: Now,
        outcome: str,
        reason: str | None,
        description: str | None,
        properties: dict[str, object] | None,
        reply: Reply[C, None] | None,
        context: C,
    ) -> None:
        broker = self.require()
        log, lock = self.log_of(broker, delivery), delivery.lock
        if outcome == COMPLETE:
            settling.complete(broker, log, lock, now, reply, context)
        elif outcome == ABANDON:
            settling.abandon(broker, log, lock, now, properties, reply, context)
        elif outcome == DEFER:
            settling.defer(broker, log, lock, now, properties, reply, context)
        else:
            settling.dead_letter(broker, log, lock, now, reason, description, properties, reply, context)

    def release(self, delivery: Delivery, now: Now, reply: Reply[C, None] | None, context: C) -> None:
        broker = self.require()
        settling.release(broker, self.log_of(broker, delivery), delivery.lock, now)
        if reply is not None:
            reply(context, None, None)

    def give_back(self, delivery: Delivery) -> None:
        broker = self.broker
        if broker is None or delivery.head != broker.token_head:
            return
        entry = broker.locks.get(delivery.lock)
        if entry is not None:
            settling.release(broker, entry.log, delivery.lock, self._clock.now())

    def renew(self, delivery: Delivery) -> Promise[int]:
        try:
            broker = self.require()
            until_ms = settling.renew(broker, self.log_of(broker, delivery), delivery.lock, self._clock.now())
        except PolybusError as error:
            return rejected(error)
        self.locked_until(broker.locks[delivery.lock].locked_until_ms)
        return resolved(until_ms)

    def find_locked(self, log_id: int, token: bytes) -> Promise[Delivery]:
        broker = self.broker
        if broker is None:
            return rejected(self.unavailable())
        _, _, incarnation, lock = read_token(token)
        entry = broker.locks.get(lock)
        if broker.incarnation != incarnation or entry is None or entry.log.id != log_id:
            return rejected(MessageLockLost(LOCK_LOST))
        return resolved(self.delivery(broker, entry))

    def are_locked(self, deliveries: list[Delivery]) -> Promise[list[bool]]:
        broker = self.broker
        return resolved(
            [
                broker is not None and each.head == broker.token_head and each.lock in broker.locks
                for each in deliveries
            ]
        )

    # Transactions

    def hold_in_transaction(
        self,
        work: TransactionWork,
        delivery: Delivery,
        outcome: str,
        reason: str | None,
        description: str | None,
        properties: dict[str, object] | None,
    ) -> Promise[None]:
        try:
            broker = self.require()
            log, now = self.log_of(broker, delivery), self._clock.now()
            own = self._works.get(work.id)
            if own is None:
                own = self._works[work.id] = transactions.Work()
            transactions.hold(broker, own, log, delivery.lock, now, outcome, reason, description, properties)
            work.held += 1
        except PolybusError as error:
            return rejected(error)
        return resolved(None)

    def commit(self, work: TransactionWork) -> Promise[None]:
        return spawn(self._commit(work))

    async def _commit(self, work: TransactionWork) -> None:
        own = self._works.pop(work.id, None) or transactions.Work()
        own.sends, own.transfers, own.reserved, own.intent = work.sends, work.transfers, work.reserved, work.intent
        try:
            if len(own.settlements) != work.held:
                raise MessageLockLost("The lock of a message was lost before the transaction was committed.")
            if own.sends or own.transfers:
                self.check_open()
            keys = sending.rows_needed(self.require(), own.sends)
            rows = await self.run(read_rows(keys)) if keys else None
            done: Promise[None] = Promise()
            transactions.commit(self.require(), own, self._clock.now(), rows, done.reply, None)
            await done
        except PolybusError:
            transactions.roll_back(own)
            raise

    def roll_back(self, work: TransactionWork) -> None:
        own = self._works.pop(work.id, None)
        if own is not None:
            transactions.roll_back(own)

    def remove_intent(self) -> Promise[None]:
        try:
            transactions.remove_intent(self.require())
        except PolybusError as error:
            return rejected(error)
        return self.store.synced()

    # Management

    def statistics(self, numbers: list[int]) -> Promise[Statistics]:
        broker = self.broker
        if broker is None:
            return rejected(self.unavailable())
        found = Statistics()
        found.scheduled, found.transfers, found.size = broker.scheduled, broker.transfers, broker.size
        for number in numbers:
            for log_id in range(number * KINDS, number * KINDS + KINDS):
                log = broker.logs.get(log_id)
                if log is not None:
                    found.logs.append(_log_statistics(log))
        return resolved(found)

    def highest_subscription(self) -> Promise[int]:
        broker = self.broker
        return rejected(self.unavailable()) if broker is None else resolved(broker.highest_subscription)

    def forget_subscription(self, number: int) -> None:
        if self.broker is not None:
            purging.forget_subscription(self.broker, number)

    def purge_subscription(self, number: int) -> Promise[None]:
        return spawn(self._purge_subscription(number))

    async def _purge_subscription(self, number: int) -> None:
        # Rows that a first try has removed and nobody has synced would be found, and given back, once more.
        await self.synced()
        at, more = b"", True
        while more:
            at = await self.run(purging.purge(self.require(), number, at))
            more = bool(at)
            await self.synced()

    def lose_message_locks(self, log_id: int, number: int | None) -> Promise[int]:
        broker = self.broker
        if broker is None:
            return resolved(0)
        broker.wall(self._clock.now())
        meant = [each for each in broker.locks.values() if _is_meant(each, log_id, number)]
        for entry in meant:
            settling.count_delivery(broker, entry, events.LOCK_EXPIRED)
        return resolved(len(meant))

    def lose_session_locks(self, log_id: int, session_id: str | None) -> Promise[int]:
        broker = self.broker
        log = None if broker is None else broker.logs.get(log_id)
        if broker is None or log is None or log.sessions is None:
            return resolved(0)
        held = [session for session in log.sessions.held.values() if session_id in (None, session.id)]
        for session in held:
            session_verbs.release(broker, log, session, self._clock.now())
            self.session_lost(session)
        return resolved(len(held))


def _is_meant(entry: Entry, log_id: int, number: int | None) -> bool:
    """A message that is being settled in a transaction keeps its lock: the transaction ends it."""
    return entry.log.id == log_id and entry.transaction is None and number in (None, entry.sequence)


def _log_statistics(log: Log) -> LogStatistics:
    found = LogStatistics(log.id)
    found.active, found.deferred, found.locked = log.active, log.deferred, log.locked
    found.retained, found.retained_bytes = log.retained, log.retained_bytes
    if log.sessions is not None:
        found.sessions = len(log.sessions.held)
    heads = [log.ready[0]] if log.ready else []
    if log.returned:
        heads.append(log.returned[0][1])
    found.oldest_ms = min([entry.enqueued_ms for entry in heads], default=None)
    return found
