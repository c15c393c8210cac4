"""The log of what happened to messages: sent, completed, abandoned, and so on. Off unless the entity asks."""

from __future__ import annotations

from typing import Final

from polybus.amqp.codec import decode, encode
from polybus.errors import StoreCorrupt
from polybus.partition import records
from polybus.partition.broker import Broker
from polybus.partition.entry import Entry

ENQUEUED: Final = "enqueued"
COMPLETED: Final = "completed"
ABANDONED: Final = "abandoned"
LOCK_EXPIRED: Final = "lock-expired"
DEFERRED: Final = "deferred"
DEAD_LETTERED: Final = "dead-lettered"
EXPIRED: Final = "expired"
DELETED: Final = "deleted"


class Event:
    """One change of one message."""

    def __init__(self, position: int, fields: list[object]) -> None:
        self.position = position
        number, change, time_ms, count, reason, enqueued_ms = fields[:6]
        self.sequence = int(number) if isinstance(number, int) else 0
        self.change = str(change)
        self.time_ms = int(time_ms) if isinstance(time_ms, int) else 0
        self.delivery_count = int(count) if isinstance(count, int) else 0
        self.reason = None if reason is None else str(reason)
        self.enqueued_ms = int(enqueued_ms) if isinstance(enqueued_ms, int) else 0


def write(broker: Broker, entry: Entry, change: str, reason: str | None) -> None:
    log = entry.log
    batch = broker.out(log)
    log.events += 1
    fields: list[object] = [
        entry.sequence,
        change,
        broker.wall_ms,
        entry.delivery_count,
        reason,
        entry.enqueued_ms,
    ]
    key = records.number_key(records.log_prefix(broker.prefix, records.EVENTS, log.id), log.events)
    batch.put(key, records.sealed(encode(fields)))


def read(row: tuple[bytes, bytes]) -> Event:
    fields, _ = decode(records.unsealed(row[1], "an event"), 0)
    if not isinstance(fields, list) or len(fields) < 6:
        raise StoreCorrupt("an event does not have its six fields")
    return Event(records.number_of(row[0]), fields)
