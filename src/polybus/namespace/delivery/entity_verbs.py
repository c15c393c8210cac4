"""What clients ask for beyond sending and receiving in a stream: peek, deferred messages, schedules, sessions.

Each works on plain and partitioned entities alike. An operation that needs one partition fails when that one is
down; one that looks at all of them answers with what it can reach (F1).
"""

from __future__ import annotations

from polybus.errors import ArgumentError, InvalidOperation, MessageNotFound, PartitionUnavailable
from polybus.hashing import partition_for
from polybus.hosting.partition_client import PartitionClient
from polybus.limits import PEEK_PATIENCE_MS, PEEK_REPLY_BYTES
from polybus.message.message import Message
from polybus.message.peeked import Peeked
from polybus.namespace.delivery.session_source import HeldSession
from polybus.namespace.delivery.source import Delivery
from polybus.namespace.entities.entity import Entity
from polybus.namespace.namespace import Namespace
from polybus.numbering import before_first, partition_of
from polybus.promise import Loop, Promise, settles_within


async def peek(
    namespace: Namespace,
    entity: Entity,
    log_id: int,
    from_number: int,
    count: int,
    session: str | None = None,
    max_bytes: int = PEEK_REPLY_BYTES,
) -> list[Peeked]:
    """Messages from a number on, in order of number: so peeking on reaches every one of them (C4, C5).

    A partition that does not answer in time is passed over like one whose store is away. Where nothing is found that way
    the answer is not "nothing", which would say that there is no more, but that it must be asked again.
    """
    partitions = entity.partitions
    if session is not None:
        partitions = [partitions[partition_for(session, len(partitions))]]
    require_one(partitions)
    unasked = next((each for each in partitions if not each.available), None)
    asked = [each for each in partitions if each.available and each.index >= partition_of(from_number)]
    found: list[Peeked] = []
    for place, partition in enumerate(asked):
        pages = _Pages(partition, log_id, max(from_number, 1, before_first(partition.index)), session)
        patience_ms = PEEK_PATIENCE_MS if place + 1 < len(asked) else None
        # A partition is left only when it has nothing more: whoever peeks on begins behind the last number.
        while len(found) < count:
            peeked = await pages.next(count - len(found), max(max_bytes, 1), namespace.bus.loop, patience_ms)
            if peeked is None and found:
                return found
            if not peeked:
                unasked = partition if peeked is None else unasked
                break
            for item in peeked:
                if found and item.size > max_bytes:
                    return found
                found.append(item)
                max_bytes -= item.size
    if not found and unasked is not None:
        raise PartitionUnavailable("A messaging store of this entity is not available. Try again.")
    return found


class _Pages:
    """What a peek reads of one partition, page by page."""

    def __init__(self, partition: PartitionClient, log_id: int, first: int, session: str | None) -> None:
        self._partition = partition
        self._log_id = log_id
        self._first = first
        self._session = session

    async def next(self, count: int, max_bytes: int, loop: Loop, patience_ms: int | None) -> list[Peeked] | None:
        """The next messages; None where the partition cannot be asked, or does not answer for so long."""
        asked = self._partition.peek(self._log_id, self._first, count, max_bytes, self._session)
        if patience_ms is not None and not asked.settled and not await settles_within(asked, loop, patience_ms):
            return None
        try:
            peeked = await asked
        except PartitionUnavailable:
            return None
        if peeked:
            self._first = peeked[-1].marks.sequence + 1
        return peeked


def require_one(partitions: list[PartitionClient]) -> None:
    """Raises where none can be reached: an empty answer would say that there is nothing (C5, F1)."""
    if not any(partition.available for partition in partitions):
        partitions[0].check_available()


async def receive_deferred(
    namespace: Namespace, entity: Entity, log_id: int, numbers: list[int], lock: bool, held: HeldSession | None
) -> list[Delivery]:
    """Deferred messages by number, all or none; the numbers must be of one partition.

    Whoever holds a session asks the partition that gave it: the session has no messages in others, and another client
    may have taken the place of that partition's since.
    """
    del namespace
    partition = _partition_of(entity, numbers)
    if held is not None:
        return await held.partition.take_deferred(log_id, numbers, lock, held.lock)
    return await partition.take_deferred(log_id, numbers, lock, None)


def _partition_of(entity: Entity, numbers: list[int]) -> PartitionClient:
    if not numbers:
        raise ArgumentError("At least one sequence number is needed.")
    indexes = list(dict.fromkeys(partition_of(number) for number in numbers))
    if len(indexes) > 1:
        raise InvalidOperation("All sequence numbers of one request must be of the same partition.")
    if not 0 <= indexes[0] < len(entity.partitions):
        raise MessageNotFound(f"There is no message with the sequence number {numbers[0]}.")
    return entity.partitions[indexes[0]]


def schedule(namespace: Namespace, entity: Entity, messages: list[Message]) -> Promise[list[int]]:
    """Stores messages for later; gives their sequence numbers, by which they can be cancelled."""
    done: Promise[list[int]] = Promise()
    namespace.send(entity, messages, done.reply, None)
    return done


async def cancel_scheduled(namespace: Namespace, entity: Entity, numbers: list[int]) -> None:
    """Takes scheduled messages back; those of one partition all or none."""
    del namespace
    by_partition: dict[int, list[int]] = {}
    for number in numbers:
        by_partition.setdefault(partition_of(number), []).append(number)
    for index, own in by_partition.items():
        if not 0 <= index < len(entity.partitions):
            raise MessageNotFound(f"The scheduled message {own[0]} could not be found.")
        await entity.partitions[index].cancel_scheduled(own)


def renew_lock(delivery: Delivery) -> Promise[int]:
    """Extends a message's lock; gives its new end in wall time."""
    return delivery.partition.renew(delivery)


async def set_session_state(namespace: Namespace, held: HeldSession, state: bytes | None) -> None:
    del namespace
    await held.partition.set_session_state(held.lock, state)


async def get_session_state(namespace: Namespace, held: HeldSession) -> bytes | None:
    del namespace
    return await held.partition.get_session_state(held.lock)


async def list_sessions(
    namespace: Namespace, entity: Entity, log_id: int, skip: int, top: int, updated_after_ms: int | None
) -> list[str]:
    """Ids of sessions in a stable order, partition by partition, of those that can be reached (G14)."""
    del namespace
    require_one(entity.partitions)
    found: list[str] = []
    for partition in entity.partitions:
        if not partition.available:
            continue
        found += await partition.list_sessions(log_id, skip + top - len(found), updated_after_ms)
        if len(found) >= skip + top:
            break
    return found[skip : skip + top]


async def delete_messages(
    namespace: Namespace, entity: Entity, log_id: int, count: int, before_ms: int, held: HeldSession | None = None
) -> int:
    """Deletes free messages that were enqueued before a time; gives how many.

    Where there are sessions: those of the one that is held, else of all that nobody holds.
    """
    del namespace
    if held is not None:
        return await held.partition.delete_before(log_id, count, before_ms, held.lock)
    require_one(entity.partitions)
    deleted = 0
    for partition in entity.partitions:
        if partition.available and deleted < count:
            deleted += await partition.delete_before(log_id, count - deleted, before_ms, None)
    return deleted
