"""The reference bus: queues over partitions, the choice among them, transactions, outages and recovery."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from polybus.clock import Clock
from polybus.errors import InvalidOperation, PartitionUnavailable, TransactionUnknown
from polybus.testing.history import OK, Op, digest
from polybus.testing.verifier.contents import (
    ACTIVE,
    LOCKED,
    TOTAL,
    EntityContents,
    EntityOptions,
    FinalState,
    StoredMessage,
)
from tests.support.reference.partition import ReferencePartition
from tests.support.reference.parts import Delivery, Message, SessionLock, Ticket


class OpenTransaction:
    """Memory only; everything in it happens in one partition (docs/protocol/transactions.md#rules)."""

    def __init__(self) -> None:
        self.partition: ReferencePartition | None = None
        self.members: list[tuple[str, Any]] = []

    def join(self, partition: ReferencePartition) -> None:
        if self.partition not in (None, partition):
            raise InvalidOperation("a transaction stays in one partition")
        self.partition = partition


class ReferenceBus:
    """Operations that write return a ticket, which a sync or a crash of the partition resolves."""

    partition_class: type[ReferencePartition] = ReferencePartition

    def __init__(self, queues: Mapping[str, EntityOptions], clock: Clock) -> None:
        self.options = dict(queues)
        self.clock = clock
        self.partitions = {
            name: [self.partition_class(name, i, options, clock) for i in range(options.partitions)]
            for name, options in queues.items()
        }
        self.transactions: dict[str, OpenTransaction] = {}
        self._turns = dict.fromkeys(queues, 0)
        self._sends = 0
        self._unkeyed: dict[Ticket, list[Message]] = {}

    # The choice of a partition

    def key(self, queue: str, message: Message) -> str | None:
        if message.session is not None:
            return message.session
        if message.key is None and self.options[queue].dedup_window_ms is not None:
            return message.message_id
        return message.key

    def home(self, queue: str, key: str | None) -> ReferencePartition:
        partitions = self.partitions[queue]
        if key is not None:
            return self.at(queue, zlib.crc32(key.encode()) % len(partitions))
        for _ in partitions:
            self._turns[queue] += 1
            partition = partitions[self._turns[queue] % len(partitions)]
            if partition.up:
                return partition
        raise PartitionUnavailable(queue)

    def at(self, queue: str, index: int) -> ReferencePartition:
        partition = self.partitions[queue][index]
        if not partition.up:
            raise PartitionUnavailable(f"{queue}/{index}")
        return partition

    def of_token(self, token: str) -> ReferencePartition:
        queue, index, _, _ = token.rsplit("/", 3)
        return self.at(queue, int(index))

    # Operations

    def send(self, queue: str, messages: Sequence[Message]) -> Ticket:
        """One message, or a batch, whose members share a key."""
        self._sends += 1
        marked = [replace(message, origin=self._sends) for message in messages]
        key = self.key(queue, messages[0])
        partition = self.home(queue, key)
        ticket = self.submit(partition, partial(partition.send, marked))
        if key is None:
            self._unkeyed[ticket] = marked
        return ticket

    def submit(self, partition: ReferencePartition, command: Any) -> Ticket:
        ticket = Ticket()
        partition.submit(command, ticket)
        return ticket

    def cancel(self, queue: str, number: int) -> Ticket:
        partition = self.at(queue, number >> 48)
        return self.submit(partition, partial(partition.cancel, number))

    def settle(self, token: str, how: str) -> Ticket:
        partition = self.of_token(token)
        return self.submit(partition, partial(partition.settle, token, how))

    def renew(self, token: str) -> None:
        self.of_token(token).renew(token)

    def receive(self, queue: str, state: str = ACTIVE) -> Delivery | None:
        """The first free message of any partition, beginning at the next in turn."""
        for _ in self.partitions[queue]:
            delivery = self.home(queue, None).receive(state)
            if delivery is not None:
                return delivery
        return None

    def take(self, queue: str) -> Ticket:
        partition = self.home(queue, None)
        return self.submit(partition, partition.take)

    def receive_deferred(self, queue: str, number: int, session: SessionLock | None = None) -> Delivery:
        return self.at(queue, number >> 48).receive_deferred(number, session)

    def declare(self, name: str) -> None:
        self.transactions[name] = OpenTransaction()

    def join(self, name: str, queue: str, how: str, subject: Any) -> None:
        """Adds a message to send, or a token to settle, to an open transaction."""
        transaction = self.transaction(name)
        if how == Op.SEND:
            transaction.join(self.home(queue, self.key(queue, subject)))
        else:
            partition = self.of_token(subject)
            partition.find_lock(subject)
            transaction.join(partition)
        transaction.members.append((how, subject))

    def transaction(self, name: str) -> OpenTransaction:
        if name not in self.transactions:
            raise TransactionUnknown(name)
        return self.transactions[name]

    def commit(self, name: str) -> Ticket:
        transaction = self.transaction(name)
        del self.transactions[name]
        partition = transaction.partition
        if partition is None:
            ticket = Ticket()
            ticket.resolve(OK)
            return ticket
        self.at(partition.name, partition.index)
        return self.submit(partition, partial(partition.transact, transaction.members))

    def rollback(self, name: str) -> None:
        self.transaction(name)
        del self.transactions[name]

    # Outages

    def fence(self, queue: str, index: int, written: int) -> None:
        """The partition's store fails; of what waited the first `written` are on the disk all the same.

        Sends without a key are taken over by another partition, which marks them (B8).
        """
        partition = self.partitions[queue][index]
        waiting = list(partition.waiting)
        partition.up = False
        for ticket in [ticket for _, ticket in waiting if ticket in self._unkeyed]:
            if any(other.up for other in self.partitions[queue]):
                self.reroute(queue, index, ticket)
        partition.crash(written)

    def reroute(self, queue: str, index: int, ticket: Ticket) -> None:
        messages = self._unkeyed[ticket]
        target = self.home(queue, None)
        target.submit(partial(target.send, messages, (index, messages[0].origin)), ticket)
        target.sync()

    def recover(self, queue: str, index: int) -> None:
        """Removes what others have taken over in the meantime, and serves again."""
        partition = self.partitions[queue][index]
        for other in self.partitions[queue]:
            for mark in [key for key in other.disk if key[0] == "mark" and key[1] == index]:
                self.remove_copies(partition, mark[2])
                other.write({mark: None})
        partition.up = True

    def remove_copies(self, partition: ReferencePartition, origin: int) -> None:
        for message in [m for m in partition.messages.values() if m.origin == origin]:
            partition.drop(message.number)
        partition.execute(lambda: None)

    def restart(self, written: Mapping[tuple[str, int], int]) -> None:
        """The process dies and comes back; `written` says how much of what waited had reached each disk."""
        self.transactions.clear()
        self._unkeyed.clear()
        for name, partitions in self.partitions.items():
            for partition in partitions:
                partition.crash(written.get((name, partition.index), 0))
        for name, partitions in self.partitions.items():
            for partition in partitions:
                self.recover(name, partition.index)

    # The end

    def contents(self) -> FinalState:
        entities = {name: self._entity(name) for name in self.partitions}
        return FinalState(entities, max(p.now().wall_ms for ps in self.partitions.values() for p in ps))

    def _entity(self, name: str) -> EntityContents:
        contents = EntityContents(self.options[name])
        for partition in self.partitions[name]:
            for state, count in partition.counters.items():
                contents.counters[state] = contents.counters.get(state, 0) + count
            locked = [n for n in partition.locked if partition.messages[n].state == ACTIVE]
            contents.counters[ACTIVE] -= len(locked)
            contents.counters[LOCKED] += len(locked)
            contents.messages += [_stored(partition, message) for message in partition.messages.values()]
        contents.counters[TOTAL] = sum(contents.counters.values())
        return contents


def _stored(partition: ReferencePartition, message: Message) -> StoredMessage:
    locked = message.state == ACTIVE and message.number in partition.locked
    return StoredMessage(
        message.message_id,
        message.number,
        LOCKED if locked else message.state,
        partition.index,
        message.key,
        message.session,
        digest(message.body),
    )
