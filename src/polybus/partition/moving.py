"""Messages taken by number and moved, changed or not, to another place; and messages deleted in bulk."""

from __future__ import annotations

from polybus.clock import Now
from polybus.message.message import Message
from polybus.partition import events, records, transfers
from polybus.partition.broker import Broker, Steps
from polybus.partition.entry import Entry, entry_from
from polybus.partition.log import Log
from polybus.partition.output import Reply
from polybus.partition.receiving import load_bodies
from polybus.partition.records import Stored
from polybus.partition.storing import note, remove
from polybus.partition.transfers import ONE_SUBSCRIPTION
from polybus.rows import Get


class Moved:
    """Which of the numbers were moved; the rest were locked, or gone."""

    def __init__(self, moved: list[int], missing: list[int], locked: list[int]) -> None:
        self.moved = moved
        self.missing = missing
        self.locked = locked


def move(
    broker: Broker,
    log: Log,
    now: Now,
    numbers: list[int],
    changed: dict[int, Message],
    destination: str,
    subscription: int,
    reply: Reply,
    context: object,
) -> Steps[None]:
    """Takes messages out of a log and puts them on their way, in one batch; replies with what was moved.

    `changed` holds new messages for some of the numbers; a `subscription` other than 0 is the only one that
    gets them at a destination topic.
    """
    result = Moved([], [], [])
    broker.wall(now)
    for number in dict.fromkeys(numbers):
        entry = yield from find(broker, log, number)
        if entry is None:
            result.missing.append(number)
        elif entry.lock:
            result.locked.append(number)
        else:
            _move_one(broker, log, entry, changed.get(number), destination, subscription)
            result.moved.append(number)
    broker.out().replies.append((reply, context, result))


def _move_one(
    broker: Broker, log: Log, entry: Entry, message: Message | None, destination: str, subscription: int
) -> None:
    overlay = entry.overlay
    if message is not None:
        overlay = None
    moving = Entry(
        log,
        entry.sequence,
        message or entry.message,
        entry.enqueued_ms,
        0,
        entry.original or entry.sequence,
        None if overlay is None else overlay.copy(),
        (message or entry.loaded()).size,
    )
    if moving.overlay is not None:
        moving.overlay.hops = 0
    if subscription:
        moving.own_overlay().application[ONE_SUBSCRIPTION] = subscription
    transfers.dispatch(broker, moving, destination)
    note(broker, entry, events.DELETED, "moved")
    remove(broker, entry)


def find(broker: Broker, log: Log, number: int) -> Steps[Entry | None]:
    """The entry with this sequence number, active or deferred, from memory or from the store."""
    rank = number
    if log.by_position:
        answer = yield Get([records.number_key(log.numbers_prefix, number)])
        if not isinstance(answer[0], bytes):
            return None
        rank = int.from_bytes(answer[0], "big")
    entry = log.memory.get(rank) or log.deferred_memory.get(number)
    if entry is not None:
        return None if entry.gone else entry
    keys = [records.number_key(log.active_prefix, rank), records.number_key(log.deferred_prefix, number)]
    keys.append(records.number_key(log.settled_prefix, rank))
    active, deferred, settled = yield Get(keys)
    if settled is not None or rank in log.removed:
        active = None
    if number in log.deferred_removed:
        deferred = None
    value = deferred if active is None else active
    if not isinstance(value, bytes):
        return None
    entry = entry_from(log, Stored(value), active is None)
    yield from load_bodies(broker, [entry])
    return entry


def undo(broker: Broker, keys: list[bytes]) -> Steps[int]:
    """Removes messages whose send was in doubt and has been taken over by another partition."""
    undone = 0
    for key in keys:
        table = key[len(broker.prefix) : len(broker.prefix) + 1]
        number = records.number_of(key)
        if table == records.ACTIVE:
            log_id = int.from_bytes(key[-12:-8], "big")
            log = broker.logs.get(log_id)
            entry = None if log is None else (yield from find(broker, log, number))
            if entry is not None:
                remove(broker, entry)
                undone += 1
        elif table == records.SCHEDULED:
            undone += yield from _undo_scheduled(broker, key, number)
    return undone


def _undo_scheduled(broker: Broker, key: bytes, number: int) -> Steps[int]:
    answer = yield Get([key])
    value = answer[0]
    if not isinstance(value, bytes):
        return 0
    stored = Stored(value)
    batch = broker.out()
    batch.delete(key)
    batch.delete(records.due_key(broker.prefix, stored.expires_ms, number))
    broker.scheduled -= 1
    broker.scheduled_bytes -= stored.size
    broker.size -= stored.size
    return 1


def delete_before(broker: Broker, log: Log, now: Now, count: int, before_ms: int) -> list[Entry]:
    """Removes up to `count` free messages in memory that were enqueued before a time, the oldest first."""
    deleted: list[Entry] = []
    kept: list[Entry] = []
    broker.wall(now)
    while len(deleted) < count:
        entry = log.pop_ready(now.wall_ms)
        if entry is None:
            break
        if entry.enqueued_ms >= before_ms:
            kept.append(entry)
            break
        note(broker, entry, events.DELETED)
        remove(broker, entry)
        deleted.append(entry)
    for entry in kept:
        log.give_back(entry)
    return deleted
