"""What clients ask for beyond sending and receiving in a stream: peek, deferred messages, schedules, sessions.

Each works on plain and partitioned entities alike. An operation that needs one partition fails when that one is
down; one that looks at all of them answers with what it can reach (F1).
"""

from __future__ import annotations

from polybus.errors import ArgumentError, InvalidOperation, MessageNotFound, NotImplementedByBus
from polybus.hosting.partition_host import PartitionHost
from polybus.limits import PEEK_REPLY_BYTES
from polybus.message.message import Message
from polybus.namespace.delivery.routing import partition_for
from polybus.namespace.delivery.session_source import HeldSession
from polybus.namespace.delivery.source import Delivery
from polybus.namespace.entities.entity import Entity
from polybus.namespace.namespace import Namespace
from polybus.partition import deleting, holding, moving, receiving, settling, upkeep
from polybus.partition.receiving import Peeked
from polybus.promise import Promise


async def peek(
    namespace: Namespace,
    entity: Entity,
    log_id: int,
    from_number: int,
    count: int,
    session: str | None = None,
    max_bytes: int = PEEK_REPLY_BYTES,
) -> list[Peeked]:
    """Messages from a number on, in order of number: so peeking on reaches every one of them (C4, C5)."""
    now = namespace.bus.clock.now()
    partitions = entity.partitions
    if session is not None:
        partitions = [partitions[partition_for(session, len(partitions))]]
    require_one(partitions)
    found: list[Peeked] = []
    for partition in partitions:
        if partition.index < from_number >> 48 or partition.broker is None:
            continue
        first = max(from_number, 1, partition.index << 48)
        # A partition is left only when it has nothing more: whoever peeks on begins behind the last number.
        while len(found) < count:
            log = partition.require().log(log_id)
            asked = count - len(found)
            steps = receiving.peek(partition.require(), log, now, first, asked, max(max_bytes, 1), session)
            peeked = await partition.run(steps)
            if not peeked:
                break
            for item in peeked:
                if found and item.size > max_bytes:
                    return found
                found.append(item)
                max_bytes -= item.size
            first = peeked[-1].marks.sequence + 1
    return found


def require_one(partitions: list[PartitionHost]) -> None:
    """Raises where none can be reached: an empty answer would say that there is nothing (C5, F1)."""
    if all(partition.broker is None for partition in partitions):
        partitions[0].require()


async def receive_deferred(
    namespace: Namespace,
    entity: Entity,
    log_id: int,
    numbers: list[int],
    lock: bool,
    held: HeldSession | None,
    holder: object | None,
) -> list[Delivery]:
    """Deferred messages by number, all or none; the numbers must be of one partition."""
    partition = _partition_of(entity, numbers)
    broker = partition.require()
    log = broker.log(log_id)
    now = namespace.bus.clock.now()
    if held is not None:
        entries = await partition.run(holding.take_deferred(broker, log, held.session, now, numbers, lock))
    else:
        entries = await partition.run(receiving.take_deferred(broker, log, now, numbers, lock, None, holder))
    if not lock:
        await _synced(partition)
    else:
        for entry in entries:
            partition.locked_until(entry.locked_until_ms)
    return [Delivery(partition, log, entry, entry.lock) for entry in entries]


def _partition_of(entity: Entity, numbers: list[int]) -> PartitionHost:
    if not numbers:
        raise ArgumentError("At least one sequence number is needed.")
    indexes = list(dict.fromkeys(number >> 48 for number in numbers))
    if len(indexes) > 1:
        raise InvalidOperation("All sequence numbers of one request must be of the same partition.")
    if not 0 <= indexes[0] < len(entity.partitions):
        raise MessageNotFound(f"There is no message with the sequence number {numbers[0]}.")
    return entity.partitions[indexes[0]]


def _synced(partition: PartitionHost) -> Promise[None]:
    """Settled when everything that the partition has written so far is synced."""
    done: Promise[None] = Promise()
    partition.require().out().replies.append((done.reply, None, None))
    return done


def schedule(namespace: Namespace, entity: Entity, messages: list[Message]) -> Promise[list[int]]:
    """Stores messages for later; gives their sequence numbers, by which they can be cancelled."""
    done: Promise[list[int]] = Promise()
    namespace.send(entity, messages, done.reply, None)
    return done


async def cancel_scheduled(namespace: Namespace, entity: Entity, numbers: list[int]) -> None:
    """Takes scheduled messages back; those of one partition all or none."""
    by_partition: dict[int, list[int]] = {}
    for number in numbers:
        by_partition.setdefault(number >> 48, []).append(number)
    for index, own in by_partition.items():
        if not 0 <= index < len(entity.partitions):
            raise MessageNotFound(f"The scheduled message {own[0]} could not be found.")
        partition = entity.partitions[index]
        broker = partition.require()
        done: Promise[None] = Promise()
        await partition.run(upkeep.cancel(broker, namespace.bus.clock.now(), own, done.reply, None))
        await done


def renew_lock(namespace: Namespace, delivery: Delivery) -> int:
    """Extends a message's lock; gives its new end in wall time."""
    partition = delivery.partition
    until_ms = settling.renew(partition.require(), delivery.log, delivery.lock, namespace.bus.clock.now())
    partition.locked_until(delivery.entry.locked_until_ms)
    return until_ms


async def set_session_state(namespace: Namespace, held: HeldSession, state: bytes | None) -> None:
    partition = held.partition
    done: Promise[None] = Promise()
    now = namespace.bus.clock.now()
    held.check()
    await partition.run(holding.set_state(partition.require(), held.log, held.session, state, now, done.reply, None))
    await done


async def get_session_state(namespace: Namespace, held: HeldSession) -> bytes | None:
    del namespace
    held.check()
    held.partition.require()
    return await held.partition.run(holding.get_state(held.log, held.id))


async def list_sessions(
    namespace: Namespace, entity: Entity, log_id: int, skip: int, top: int, updated_after_ms: int | None
) -> list[str]:
    """Ids of sessions in a stable order, partition by partition, of those that can be reached (G14)."""
    del namespace
    require_one(entity.partitions)
    found: list[str] = []
    for partition in entity.partitions:
        if partition.broker is None:
            continue
        log = partition.broker.log(log_id)
        found += await partition.run(holding.list_sessions(log, None, skip + top - len(found), updated_after_ms))
        if len(found) >= skip + top:
            break
    return found[skip : skip + top]


async def delete_messages(
    namespace: Namespace, entity: Entity, log_id: int, count: int, before_ms: int, held: HeldSession | None = None
) -> int:
    """Deletes free messages that were enqueued before a time; gives how many.

    Where there are sessions: those of the one that is held, else of all that nobody holds.
    """
    if entity.partitioned:
        raise NotImplementedByBus("Messages of a partitioned entity cannot be deleted in batches.")
    partition = entity.partitions[0]
    deleted = 0
    if partition.require().log(log_id).sessions is not None:
        return await _delete_in_sessions(namespace, partition, log_id, count, before_ms, held)
    while deleted < count:
        broker = partition.require()
        log = broker.log(log_id)
        if not log.has_ready() and log.wants_page():
            await partition.run(receiving.load_page(broker, log))
        entries = moving.delete_before(broker, log, namespace.bus.clock.now(), count - deleted, before_ms)
        if not entries:
            break
        deleted += len(entries)
    if deleted:
        await _synced(partition)
    return deleted


async def _delete_in_sessions(
    namespace: Namespace,
    partition: PartitionHost,
    log_id: int,
    count: int,
    before_ms: int,
    held: HeldSession | None,
) -> int:
    broker = partition.require()
    log, session = broker.log(log_id), None
    if held is not None:
        held.check()
        session = held.session
    now = namespace.bus.clock.now()
    deleted = await partition.run(deleting.delete_in_sessions(broker, log, session, now, count, before_ms))
    if deleted:
        await _synced(partition)
    return deleted
