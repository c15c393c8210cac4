"""Scheduled messages by number: taken back, or given another time, as far as they are still there."""

from __future__ import annotations

from typing import Any

from polybus.clock import Now
from polybus.message.message import TIME_MAX_MS, Message, with_scheduled_time
from polybus.partition import records
from polybus.partition.broker import Broker, Steps
from polybus.partition.data import Moved
from polybus.partition.records import Stored
from polybus.partition.upkeep import still_scheduled, take_back
from polybus.promise import C, Reply


def cancel_those(broker: Broker, now: Now, numbers: list[int], reply: Reply[C, Any], context: C) -> Steps[None]:
    """Takes back those that are still scheduled; replies with them, and with those that are not."""
    found, missing = yield from still_scheduled(broker, numbers)
    broker.wall(now)
    for stored in found:
        take_back(broker, stored)
    result = Moved([stored.sequence for stored in found], missing, [])
    broker.out().replies.append((reply, context, result))


def reschedule(
    broker: Broker, now: Now, numbers: list[int], due_ms: int, by_ms: int, reply: Reply[C, Any], context: C
) -> Steps[None]:
    """Gives those that are still scheduled another time, `due_ms` or, where it is 0, their own and `by_ms` more.

    Their numbers stay. One whose new time has come becomes active as soon as that is synced.
    """
    found, missing = yield from still_scheduled(broker, numbers)
    broker.wall(now)
    for stored in found:
        old_ms = broker.rescheduled.due(stored.sequence, stored.expires_ms)
        _move(broker, stored, old_ms, min(max(due_ms or old_ms + by_ms, 1), TIME_MAX_MS))
    result = Moved([stored.sequence for stored in found], missing, [])
    broker.out().replies.append((reply, context, result))


def _move(broker: Broker, stored: Stored, old_ms: int, new_ms: int) -> None:
    if new_ms == old_ms:
        return
    number = stored.sequence
    raw = with_scheduled_time(Message(stored.raw, True), new_ms).raw
    size = len(raw)
    value = records.message_record(
        number, 0, stored.enqueued_ms, new_ms, 0, stored.original, 0, size, stored.overlay, raw
    )
    batch = broker.out()
    batch.put(records.number_key(broker.prefix + records.SCHEDULED, number), value)
    batch.delete(records.due_key(broker.prefix, old_ms, number))
    batch.put(records.due_key(broker.prefix, new_ms, number), b"")
    broker.schedule.add(new_ms)
    grown = size - broker.rescheduled.size(number, stored.size)
    broker.scheduled_bytes += grown
    broker.size += grown
    broker.rescheduled.moved(batch, number, new_ms, size)
