"""Bugs planted in the reference bus, each a few lines, each with the kind of finding that must convict it.

They are mistakes that message brokers have really made. They stay here for ever: the verifier is worth
something only as long as it finds every one of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from polybus.clock import Now
from polybus.errors import BusError, MessageLockLost, PartitionUnavailable
from polybus.testing.history import OK, Op
from polybus.testing.reference import Delivery, Message, ReferenceBus, ReferencePartition, SessionLock, Ticket
from polybus.testing.reference.parts import Batch, Command, MessageLock
from polybus.testing.verifier import Kind
from polybus.testing.verifier.contents import ACTIVE, SCHEDULED

PLANTED: dict[str, tuple[type[ReferenceBus], str]] = {}

Planted = TypeVar("Planted", bound=type)


def plant(kind: str) -> Callable[[Planted], Planted]:
    """Enters a broken bus, or a bus with this broken partition, under the name of its class."""

    def enter(cls: Planted) -> Planted:
        bus = cls
        if issubclass(cls, ReferencePartition):
            bus = type(cls.__name__, (ReferenceBus,), {"partition_class": cls})
        PLANTED[cls.__name__] = (bus, kind)
        return cls

    return enter


class Sometimes(ReferencePartition):
    """A partition whose bug shows only now and then."""

    turns = 0

    def every(self, n: int) -> bool:
        self.turns += 1
        return self.turns % n == 0


class ManyLocks(Sometimes):
    """A partition that can have several locks of one message without falling over."""

    def drop(self, number: int) -> None:
        for token in [token for token, lock in self.locks.items() if lock.number == number]:
            self.unlock(token)
        super().drop(number)


# Durability


@plant(Kind.LOST)
class AcknowledgesBeforeWriting(ReferencePartition):
    def submit(self, command: Command, ticket: Ticket) -> None:
        super().submit(command, ticket)
        if isinstance(command, partial) and command.func == self.send:
            ticket.resolve(OK, [None] * len(command.args[0]))


@plant(Kind.LOST)
class SkipsSync(Sometimes):
    def write(self, batch: Batch) -> None:
        if not batch or not self.every(6):
            super().write(batch)


@plant(Kind.LOST)
class AnswersWaitingSendsOkWhenFenced(ReferencePartition):
    def crash(self, written: int) -> None:
        for command, ticket in self.waiting:
            if isinstance(command, partial) and command.func == self.send:
                ticket.resolve(OK)
        super().crash(written)


@plant(Kind.LOST)
class ForgetsSchedulesAtRestart(ReferencePartition):
    def load(self) -> None:
        super().load()
        for message in list(self.messages.values()):
            if message.state == SCHEDULED:
                self.drop(message.number)


@plant(Kind.LOST)
class LosesAbandoned(Sometimes):
    def settle(self, token: str, how: str) -> None:
        super().settle(token, Op.COMPLETE if how == Op.ABANDON and self.every(2) else how)


@plant(Kind.LOST)
class LosesDeadLettered(ReferencePartition):
    def settle(self, token: str, how: str) -> None:
        super().settle(token, Op.COMPLETE if how == Op.DEAD_LETTER else how)


@plant(Kind.LOST)
class LosesDeferred(ReferencePartition):
    def settle(self, token: str, how: str) -> None:
        super().settle(token, Op.COMPLETE if how == Op.DEFER else how)


# Copies


@plant(Kind.INVENTED)
class KeepsReroutedCopies(ReferenceBus):
    def remove_copies(self, partition: ReferencePartition, origin: int) -> None:
        pass


@plant(Kind.INVENTED)
class StoresRefusedSends(ReferenceBus):
    def at(self, queue: str, index: int) -> ReferencePartition:
        return self.partitions[queue][index]

    def send(self, queue: str, messages: Sequence[Message]) -> Ticket:
        ticket = super().send(queue, messages)
        if any(not partition.up and partition.waiting for partition in self.partitions[queue]):
            raise PartitionUnavailable(queue)
        return ticket


@plant(Kind.INVENTED)
class LeavesScheduledCopyBehind(ReferencePartition):
    def tick(self) -> None:
        before = {n: m for n, m in self.messages.items() if m.state == SCHEDULED}
        super().tick()
        for number, message in before.items():
            if number not in self.messages:
                self.put(replace(message, due_ms=message.due_ms + 60_000))


@plant(Kind.DUPLICATED)
class AcknowledgesSecondCompletion(ReferencePartition):
    def settle(self, token: str, how: str) -> None:
        try:
            super().settle(token, how)
        except MessageLockLost:
            if how != Op.COMPLETE:
                raise


@plant(Kind.DUPLICATE_ACCEPTED)
class ForgetsDuplicatesAtRestart(ReferencePartition):
    def load(self) -> None:
        super().load()
        self.seen = {}


@plant(Kind.DUPLICATE_ACCEPTED)
class RoutesDuplicatesApart(ReferenceBus):
    def key(self, queue: str, message: Message) -> str | None:
        return message.session or message.key


@plant(Kind.DUPLICATE_ACCEPTED)
class ClosesDuplicateWindowEarly(ReferencePartition):
    def is_duplicate(self, message: Message) -> bool:
        window = self.options.dedup_window_ms
        if window is not None and self.now().wall_ms - self.seen.get(message.message_id, 0) > window // 8:
            self.seen.pop(message.message_id, None)
        return super().is_duplicate(message)


@plant(Kind.CANCELLED)
class DeliversCancelled(ReferencePartition):
    def cancel(self, number: int) -> None:
        kept = self.messages.get(number)
        super().cancel(number)
        if kept is not None:
            self.put(kept)


# Order and numbers


@plant(Kind.ORDER)
class ReordersSessions(Sometimes):
    def next_free(self, state: str, session: SessionLock | None) -> Message | None:
        first = super().next_free(state, session)
        if first is None or session is None or not self.every(3):
            return first
        same = [m for m in self.messages.values() if m.session == session.session and m.state == state]
        return next((m for m in reversed(same) if self.is_free(m)), first)


@plant(Kind.ORDER)
class ReordersKeys(Sometimes):
    def next_free(self, state: str, session: SessionLock | None) -> Message | None:
        first = super().next_free(state, session)
        if first is None or first.key is None or session is not None or not self.every(2):
            return first
        same = [m for m in self.messages.values() if m.key == first.key and m.state == state]
        return next((m for m in reversed(same) if self.is_free(m)), first)


@plant(Kind.ORDER)
class NumbersSendsBackwards(Sometimes):
    def next_number(self) -> int:
        """Numbers go 2, 1, 4, 3, …"""
        number = super().next_number()
        return number + 1 if number % 2 else number - 1


@plant(Kind.NUMBERS)
class ReusesNumbersAfterRestart(ReferencePartition):
    def load(self) -> None:
        super().load()
        self.last_number = max(self.messages, default=self.index << 48)


@plant(Kind.NUMBERS)
class NumbersWithWrongPartition(Sometimes):
    def next_number(self) -> int:
        number = super().next_number()
        if self.options.partitions == 1 or not self.every(5):
            return number
        return number ^ (1 << 48)


@plant(Kind.NUMBERS)
class MovesKeysAtRestart(ReferenceBus):
    restarts = 0

    def restart(self, written: Any) -> None:
        self.restarts += 1
        super().restart(written)

    def home(self, queue: str, key: str | None) -> ReferencePartition:
        if key is None:
            return super().home(queue, None)
        return self.at(queue, (zlib.crc32(key.encode()) + self.restarts) % len(self.partitions[queue]))


# Locks


@plant(Kind.TWO_HOLDERS)
class DeliversWhileLocked(ManyLocks):
    def is_free(self, message: Message) -> bool:
        return super().is_free(message) or self.every(6)


@plant(Kind.TWO_HOLDERS)
class EndsLocksEarly(ReferencePartition):
    def is_held(self, lock: MessageLock, now: Now) -> bool:
        return super().is_held(lock, Now(now.wall_ms, now.mono_ms + self.options.lock_ms * 3 // 4))


@plant(Kind.TWO_HOLDERS)
class GivesSessionToTwo(ReferencePartition):
    def session_is_taken(self, session: str) -> bool:
        return False


class Remembering(ManyLocks):
    """A partition that does not forget locks when they end."""

    def lock(self, message: Message, session: SessionLock | None) -> Delivery:
        delivery = super().lock(message, session)
        if not hasattr(self, "old"):
            self.old: dict[str, MessageLock] = {}
        self.old[delivery.token] = self.locks[delivery.token]
        return delivery

    def revive(self, token: str) -> MessageLock:
        lock = getattr(self, "old", {}).get(token)
        if lock is None or lock.number not in self.messages or lock.number in self.locked:
            raise MessageLockLost(token)
        self.locks[token] = lock
        return lock


@plant(Kind.SETTLED_LATE)
class AcceptsStaleEpoch(Remembering):
    def find_lock(self, token: str) -> MessageLock:
        try:
            return super().find_lock(token)
        except MessageLockLost:
            if int(token.split("/")[2]) == self.incarnation:
                raise
            return self.revive(token)


@plant(Kind.SETTLED_LATE)
class AcceptsExpiredLock(Remembering):
    def find_lock(self, token: str) -> MessageLock:
        try:
            return super().find_lock(token)
        except MessageLockLost:
            if int(token.split("/")[2]) != self.incarnation or token in self.locks:
                raise
            return self.revive(token)


@plant(Kind.SETTLED_LATE)
class RenewsUnknownTokens(ReferencePartition):
    def renew(self, token: str) -> None:
        if token in self.locks:
            super().renew(token)


@plant(Kind.SETTLED_LATE)
class RenewsLostSessions(ReferencePartition):
    def renew_session(self, lock: SessionLock) -> None:
        if self.sessions.get(lock.session) is lock:
            super().renew_session(lock)


@plant(Kind.REDELIVERED)
class RedeliversCompleted(Sometimes):
    def settle(self, token: str, how: str) -> None:
        super().settle(token, Op.ABANDON if how == Op.COMPLETE and self.every(4) else how)


@plant(Kind.REDELIVERED)
class DeliversDeferredAsActive(ReferencePartition):
    def settle(self, token: str, how: str) -> None:
        super().settle(token, Op.ABANDON if how == Op.DEFER else how)


@plant(Kind.DELIVERY_COUNT)
class ForgetsDeliveryCounts(ReferencePartition):
    def give_back(self, message: Message) -> None:
        pass


@plant(Kind.DELIVERY_COUNT)
class DeliversOverMaximum(ReferencePartition):
    def give_back(self, message: Message) -> None:
        if message.state == ACTIVE:
            self.put(replace(message, count=message.count + 1))
        else:
            super().give_back(message)


# Transactions and batches


@plant(Kind.TORN)
class CommitsInPart(ReferencePartition):
    def transact(self, members: Sequence[tuple[str, Any]]) -> None:
        super().transact(members[:-1])


@plant(Kind.TORN)
class CommitsInPartWhenCrashing(ReferencePartition):
    def crash(self, written: int) -> None:
        for command, _ in self.waiting[written:]:
            if isinstance(command, partial) and command.func == self.transact:
                try:
                    self.execute(partial(self.transact, command.args[0][:1]))
                except BusError:
                    self.batch = {}
        super().crash(written)


@plant(Kind.TORN)
class WritesBatchesInPart(ReferencePartition):
    def crash(self, written: int) -> None:
        for command, _ in self.waiting[written:]:
            if isinstance(command, partial) and command.func == self.send:
                self.execute(partial(self.send, command.args[0][:1]))
        super().crash(written)


@plant(Kind.TORN)
class CommitsOnRollback(ReferenceBus):
    def rollback(self, name: str) -> None:
        self.transaction(name)
        self.commit(name)


@plant(Kind.TORN)
class ShowsUncommittedSends(ReferenceBus):
    def join(self, name: str, queue: str, how: str, subject: Any) -> None:
        super().join(name, queue, how, subject)
        if how == Op.SEND:
            self.transactions[name].members.pop()
            self.send(queue, [subject])


# The rest


@plant(Kind.COUNTERS)
class LetsCountersDrift(Sometimes):
    def tally(self, state: str, by: int) -> None:
        if by > 0 or not self.every(5):
            super().tally(state, by)


@plant(Kind.CORRUPTED)
class SwapsBodies(Sometimes):
    def lock(self, message: Message, session: SessionLock | None) -> Delivery:
        delivery = super().lock(message, session)
        if self.every(10):
            return replace(delivery, message=replace(message, body=next(iter(self.messages.values())).body + b"!"))
        return delivery


@plant(Kind.CORRUPTED)
class SwapsSessions(Sometimes):
    def store(self, message: Message) -> int:
        return super().store(replace(message, session="s1") if message.session and self.every(5) else message)


@plant(Kind.EARLY)
class DeliversScheduledEarly(ReferencePartition):
    def is_due(self, message: Message, now: Now) -> bool:
        return message.due_ms <= now.wall_ms + 1_500


@plant(Kind.EXPIRED)
class DeliversExpired(ReferencePartition):
    def is_expired(self, message: Message, now: Now) -> bool:
        return False
