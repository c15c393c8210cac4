"""The log of what happened to messages: sent, completed, abandoned, and so on. Off unless the entity asks."""

from __future__ import annotations

from typing import Final

from polybus.amqp.codec import decode, encode
from polybus.errors import StoreCorrupt
from polybus.message.message import Message
from polybus.partition import records
from polybus.partition.broker import Broker, Steps
from polybus.partition.data import LogEvent
from polybus.partition.entry import Entry
from polybus.partition.log import Log
from polybus.rows import Scan

ENQUEUED: Final = "enqueued"
COMPLETED: Final = "completed"
ABANDONED: Final = "abandoned"
LOCK_EXPIRED: Final = "lock-expired"
DEFERRED: Final = "deferred"
DEAD_LETTERED: Final = "dead-lettered"
EXPIRED: Final = "expired"
DELETED: Final = "deleted"
DUPLICATE: Final = "duplicate"
TRACE_PARENT: Final = "traceparent"
DIAGNOSTIC_ID: Final = "Diagnostic-Id"
TRACE_CHARACTERS: Final = 64
"""A trace context has 55; what is longer is something else."""
READ_BYTES: Final = 1 << 20
"""Events that one read gives at most; whoever wants more goes on behind the last."""


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
        entry.message_id() if entry.message is not None else None,
        None if entry.message is None else trace_of(entry.message),
    ]
    key = records.number_key(log.events_prefix, log.events)
    batch.put(key, records.sealed(encode(fields)))


def write_duplicate(broker: Broker, log: Log, message: Message) -> None:
    """A message was dropped, for its id was seen before: it has no number and no place."""
    batch = broker.out(log)
    log.events += 1
    fields: list[object] = [0, DUPLICATE, broker.wall_ms, 0, None, 0, message.message_id, trace_of(message)]
    batch.put(records.number_key(log.events_prefix, log.events), records.sealed(encode(fields)))


def trace_of(message: Message) -> str | None:
    """The trace context of a message, under either of the names that the SDKs give it."""
    properties = message.application_properties()
    found = properties.get(TRACE_PARENT) or properties.get(DIAGNOSTIC_ID)
    if isinstance(found, bytes):
        found = found.decode("ascii", "replace")
    return str(found) if isinstance(found, str) and len(found) <= TRACE_CHARACTERS else None


def read(row: tuple[bytes, bytes]) -> LogEvent:
    fields, _ = decode(records.unsealed(row[1], "an event"), 0)
    if not isinstance(fields, list) or len(fields) < 6:
        raise StoreCorrupt("an event does not have its six fields")
    return LogEvent(records.number_of(row[0]), fields)


def read_range(log: Log, first: int, last: int, limit: int, max_bytes: int) -> Steps[tuple[list[LogEvent], int]]:
    """Events with first <= position <= last, and the position up to which the answer is complete."""
    last = min(last, log.stable_events)
    if first > last:
        return [], last
    start, end = records.number_key(log.events_prefix, first), records.number_key(log.events_prefix, last + 1)
    found = [read(row) for row in (yield Scan(start, end, limit, max_bytes)) if isinstance(row, tuple)]
    return found, found[-1].position if found else last


def read_from(broker: Broker, log_id: int, first: int, limit: int) -> Steps[list[LogEvent]]:
    """Events of a log from a number on, whether the log is in memory or not."""
    prefix = records.log_prefix(broker.prefix, records.EVENTS, log_id)
    rows = yield Scan(records.number_key(prefix, max(first, 1)), records.after(prefix), limit, READ_BYTES)
    return [read(row) for row in rows if isinstance(row, tuple)]


def trim(broker: Broker, log: Log, to: int) -> None:
    """Removes the events up to a position, all of which are synced."""
    end = records.number_key(log.events_prefix, min(to, log.stable_events) + 1)
    broker.out().delete_range(log.events_prefix, end)
