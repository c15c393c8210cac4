"""Bugs planted in the reference bus, each a few lines, each with the kind of finding that must convict it.

They are mistakes that message brokers have really made. They stay here for ever: the verifier is worth
something only as long as it finds every one of them. Here are those of storing, copying and numbering;
`planted_lock_bugs` has those of locks, transactions and time.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from polybus.errors import MessageLockLost, PartitionUnavailable
from polybus.testing.history import OK, Op
from polybus.testing.verifier import FindingKind
from polybus.testing.verifier.contents import SCHEDULED
from tests.support.reference import Message, ReferenceBus, ReferencePartition, SessionLock, Ticket
from tests.support.reference.parts import Batch, Command

from .planting import Sometimes, plant

# Durability


@plant(FindingKind.LOST)
class AcknowledgesBeforeWriting(ReferencePartition):
    def submit(self, command: Command, ticket: Ticket) -> None:
        super().submit(command, ticket)
        if isinstance(command, partial) and command.func == self.send:
            ticket.resolve(OK, [None] * len(command.args[0]))


@plant(FindingKind.LOST)
class SkipsSync(Sometimes):
    def write(self, batch: Batch) -> None:
        if not batch or not self.every(6):
            super().write(batch)


@plant(FindingKind.LOST)
class AnswersWaitingSendsOkWhenFenced(ReferencePartition):
    def crash(self, written: int) -> None:
        for command, ticket in self.waiting:
            if isinstance(command, partial) and command.func == self.send:
                ticket.resolve(OK)
        super().crash(written)


@plant(FindingKind.LOST)
class ForgetsSchedulesAtRestart(ReferencePartition):
    def load(self) -> None:
        super().load()
        for message in list(self.messages.values()):
            if message.state == SCHEDULED:
                self.drop(message.number)


@plant(FindingKind.LOST)
class LosesAbandoned(Sometimes):
    def settle(self, token: str, how: str) -> None:
        super().settle(token, Op.COMPLETE if how == Op.ABANDON and self.every(2) else how)


@plant(FindingKind.LOST)
class LosesDeadLettered(ReferencePartition):
    def settle(self, token: str, how: str) -> None:
        super().settle(token, Op.COMPLETE if how == Op.DEAD_LETTER else how)


@plant(FindingKind.LOST)
class LosesDeferred(ReferencePartition):
    def settle(self, token: str, how: str) -> None:
        super().settle(token, Op.COMPLETE if how == Op.DEFER else how)


# Copies


@plant(FindingKind.INVENTED)
class KeepsReroutedCopies(ReferenceBus):
    def remove_copies(self, partition: ReferencePartition, origin: int) -> None:
        pass


@plant(FindingKind.INVENTED)
class StoresRefusedSends(ReferenceBus):
    def at(self, queue: str, index: int) -> ReferencePartition:
        return self.partitions[queue][index]

    def send(self, queue: str, messages: Sequence[Message]) -> Ticket:
        ticket = super().send(queue, messages)
        if any(not partition.up and partition.waiting for partition in self.partitions[queue]):
            raise PartitionUnavailable(queue)
        return ticket


@plant(FindingKind.INVENTED)
class LeavesScheduledCopyBehind(ReferencePartition):
    def tick(self) -> None:
        before = {n: m for n, m in self.messages.items() if m.state == SCHEDULED}
        super().tick()
        for number, message in before.items():
            if number not in self.messages:
                self.put(replace(message, due_ms=message.due_ms + 60_000))


@plant(FindingKind.DUPLICATED)
class AcknowledgesSecondCompletion(ReferencePartition):
    def settle(self, token: str, how: str) -> None:
        try:
            super().settle(token, how)
        except MessageLockLost:
            if how != Op.COMPLETE:
                raise


@plant(FindingKind.DUPLICATE_ACCEPTED)
class ForgetsDuplicatesAtRestart(ReferencePartition):
    def load(self) -> None:
        super().load()
        self.seen = {}


@plant(FindingKind.DUPLICATE_ACCEPTED)
class RoutesDuplicatesApart(ReferenceBus):
    def key(self, queue: str, message: Message) -> str | None:
        return message.session or message.key


@plant(FindingKind.DUPLICATE_ACCEPTED)
class ClosesDuplicateWindowEarly(ReferencePartition):
    def is_duplicate(self, message: Message) -> bool:
        window = self.options.dedup_window_ms
        if window is not None and self.now().wall_ms - self.seen.get(message.message_id, 0) > window // 8:
            self.seen.pop(message.message_id, None)
        return super().is_duplicate(message)


@plant(FindingKind.CANCELLED)
class DeliversCancelled(ReferencePartition):
    def cancel(self, number: int) -> None:
        kept = self.messages.get(number)
        super().cancel(number)
        if kept is not None:
            self.put(kept)


# Order and numbers


@plant(FindingKind.ORDER)
class ReordersSessions(Sometimes):
    def next_free(self, state: str, session: SessionLock | None) -> Message | None:
        first = super().next_free(state, session)
        if first is None or session is None or not self.every(3):
            return first
        same = [m for m in self.messages.values() if m.session == session.session and m.state == state]
        return next((m for m in reversed(same) if self.is_free(m)), first)


@plant(FindingKind.ORDER)
class ReordersKeys(Sometimes):
    def next_free(self, state: str, session: SessionLock | None) -> Message | None:
        first = super().next_free(state, session)
        if first is None or first.key is None or session is not None or not self.every(2):
            return first
        same = [m for m in self.messages.values() if m.key == first.key and m.state == state]
        return next((m for m in reversed(same) if self.is_free(m)), first)


@plant(FindingKind.ORDER)
class NumbersSendsBackwards(Sometimes):
    def next_number(self) -> int:
        """Numbers go 2, 1, 4, 3, …"""
        number = super().next_number()
        return number + 1 if number % 2 else number - 1


@plant(FindingKind.NUMBERS)
class ReusesNumbersAfterRestart(ReferencePartition):
    def load(self) -> None:
        super().load()
        self.last_number = max(self.messages, default=self.index << 48)


@plant(FindingKind.NUMBERS)
class NumbersWithWrongPartition(Sometimes):
    def next_number(self) -> int:
        number = super().next_number()
        if self.options.partitions == 1 or not self.every(5):
            return number
        return number ^ (1 << 48)


@plant(FindingKind.NUMBERS)
class MovesKeysAtRestart(ReferenceBus):
    restarts = 0

    def restart(self, written: Any) -> None:
        self.restarts += 1
        super().restart(written)

    def home(self, queue: str, key: str | None) -> ReferencePartition:
        if key is None:
            return super().home(queue, None)
        return self.at(queue, (zlib.crc32(key.encode()) + self.restarts) % len(self.partitions[queue]))
