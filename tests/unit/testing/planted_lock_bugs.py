"""Bugs planted in the reference bus, each a few lines, each with the kind of finding that must convict it.

They are mistakes that message brokers have really made. They stay here for ever: the verifier is worth
something only as long as it finds every one of them. Here are those of locks, transactions and time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from polybus.clock import Now
from polybus.errors import BusError, MessageLockLost
from polybus.testing.history import Op
from polybus.testing.verifier import FindingKind
from polybus.testing.verifier.contents import ACTIVE
from tests.support.reference import Delivery, Message, ReferenceBus, ReferencePartition, SessionLock
from tests.support.reference.parts import MessageLock

from .planting import ManyLocks, Sometimes, plant

# Locks


@plant(FindingKind.TWO_HOLDERS)
class DeliversWhileLocked(ManyLocks):
    def is_free(self, message: Message) -> bool:
        return super().is_free(message) or self.every(6)


@plant(FindingKind.TWO_HOLDERS)
class EndsLocksEarly(ReferencePartition):
    def is_held(self, lock: MessageLock, now: Now) -> bool:
        return super().is_held(lock, Now(now.wall_ms, now.mono_ms + self.options.lock_ms * 3 // 4))


@plant(FindingKind.TWO_HOLDERS)
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


@plant(FindingKind.SETTLED_LATE)
class AcceptsStaleEpoch(Remembering):
    def find_lock(self, token: str) -> MessageLock:
        try:
            return super().find_lock(token)
        except MessageLockLost:
            if int(token.split("/")[2]) == self.incarnation:
                raise
            return self.revive(token)


@plant(FindingKind.SETTLED_LATE)
class AcceptsExpiredLock(Remembering):
    def find_lock(self, token: str) -> MessageLock:
        try:
            return super().find_lock(token)
        except MessageLockLost:
            if int(token.split("/")[2]) != self.incarnation or token in self.locks:
                raise
            return self.revive(token)


@plant(FindingKind.SETTLED_LATE)
class RenewsUnknownTokens(ReferencePartition):
    def renew(self, token: str) -> None:
        if token in self.locks:
            super().renew(token)


@plant(FindingKind.SETTLED_LATE)
class RenewsLostSessions(ReferencePartition):
    def renew_session(self, lock: SessionLock) -> None:
        if self.sessions.get(lock.session) is lock:
            super().renew_session(lock)


@plant(FindingKind.REDELIVERED)
class RedeliversCompleted(Sometimes):
    def settle(self, token: str, how: str) -> None:
        super().settle(token, Op.ABANDON if how == Op.COMPLETE and self.every(4) else how)


@plant(FindingKind.REDELIVERED)
class DeliversDeferredAsActive(ReferencePartition):
    def settle(self, token: str, how: str) -> None:
        super().settle(token, Op.ABANDON if how == Op.DEFER else how)


@plant(FindingKind.DELIVERY_COUNT)
class ForgetsDeliveryCounts(ReferencePartition):
    def give_back(self, message: Message) -> None:
        pass


@plant(FindingKind.DELIVERY_COUNT)
class DeliversOverMaximum(ReferencePartition):
    def give_back(self, message: Message) -> None:
        if message.state == ACTIVE:
            self.put(replace(message, count=message.count + 1))
        else:
            super().give_back(message)


# Transactions and batches


@plant(FindingKind.TORN)
class CommitsInPart(ReferencePartition):
    def transact(self, members: Sequence[tuple[str, Any]]) -> None:
        super().transact(members[:-1])


@plant(FindingKind.TORN)
class CommitsInPartWhenCrashing(ReferencePartition):
    def crash(self, written: int) -> None:
        for command, _ in self.waiting[written:]:
            if isinstance(command, partial) and command.func == self.transact:
                try:
                    self.execute(partial(self.transact, command.args[0][:1]))
                except BusError:
                    self.batch = {}
        super().crash(written)


@plant(FindingKind.TORN)
class WritesBatchesInPart(ReferencePartition):
    def crash(self, written: int) -> None:
        for command, _ in self.waiting[written:]:
            if isinstance(command, partial) and command.func == self.send:
                self.execute(partial(self.send, command.args[0][:1]))
        super().crash(written)


@plant(FindingKind.TORN)
class CommitsOnRollback(ReferenceBus):
    def rollback(self, name: str) -> None:
        self.transaction(name)
        self.commit(name)


@plant(FindingKind.TORN)
class ShowsUncommittedSends(ReferenceBus):
    def join(self, name: str, queue: str, how: str, subject: Any) -> None:
        super().join(name, queue, how, subject)
        if how == Op.SEND:
            self.transactions[name].members.pop()
            self.send(queue, [subject])


# The rest


@plant(FindingKind.COUNTERS)
class LetsCountersDrift(Sometimes):
    def tally(self, state: str, by: int) -> None:
        if by > 0 or not self.every(5):
            super().tally(state, by)


@plant(FindingKind.CORRUPTED)
class SwapsBodies(Sometimes):
    def lock(self, message: Message, session: SessionLock | None) -> Delivery:
        delivery = super().lock(message, session)
        if self.every(10):
            return replace(delivery, message=replace(message, body=next(iter(self.messages.values())).body + b"!"))
        return delivery


@plant(FindingKind.CORRUPTED)
class SwapsSessions(Sometimes):
    def store(self, message: Message) -> int:
        return super().store(replace(message, session="s1") if message.session and self.every(5) else message)


@plant(FindingKind.EARLY)
class DeliversScheduledEarly(ReferencePartition):
    def is_due(self, message: Message, now: Now) -> bool:
        return message.due_ms <= now.wall_ms + 1_500


@plant(FindingKind.EXPIRED)
class DeliversExpired(ReferencePartition):
    def is_expired(self, message: Message, now: Now) -> bool:
        return False
