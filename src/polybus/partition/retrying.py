"""Abandoned messages that come again later: as the receiver wishes, or as the entity says.

While it rests such a message is deferred, with a time at which it becomes active again by itself; so it takes no memory,
outlives a restart, and can be fetched by its number before.
"""

from __future__ import annotations

from typing import Final

from polybus.errors import InvalidOperation
from polybus.limits import RETRY_SECONDS
from polybus.message.outcome import RETRY_PROPERTY
from polybus.partition import events
from polybus.partition.broker import Broker
from polybus.partition.entry import Entry
from polybus.partition.settings import LogSettings
from polybus.partition.storing import copy_into, enter, note, put_deferred, remove, set_retry

_DOUBLINGS: Final = 40
"""More of them than any delay could take."""

Properties = dict[str, object]


def take_wish(properties: Properties | None) -> tuple[Properties | None, int]:
    """The properties without the receiver's wish, and its wish in milliseconds; -1 where it has none."""
    if not properties or RETRY_PROPERTY not in properties:
        return properties, -1
    rest = {name: value for name, value in properties.items() if name != RETRY_PROPERTY}
    return rest, _milliseconds(properties[RETRY_PROPERTY])


def _milliseconds(value: object) -> int:
    seconds = -1.0
    if isinstance(value, str):
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value)
    if not 0 <= seconds <= RETRY_SECONDS:
        raise InvalidOperation(f"'{RETRY_PROPERTY}' must be a number of seconds from 0 to {RETRY_SECONDS}.")
    return round(seconds * 1000)


def check_wish(entry: Entry, wall_ms: int, properties: Properties | None) -> None:
    """Refuses a wish that cannot be granted: one that is no time, or one that the message does not live to see.

    As what is not allowed: the Go SDK tries again after a refusal that it does not know, and then calls it done.
    """
    _, wish_ms = take_wish(properties)
    if wish_ms > 0 and entry.expires_ms and wall_ms + wish_ms >= entry.expires_ms:
        left_s = max(entry.expires_ms - wall_ms, 0) / 1000
        raise InvalidOperation(
            f"The message expires in {left_s:g} seconds, before '{RETRY_PROPERTY}' would bring it back."
        )


def delay_of(entry: Entry, wall_ms: int, wish_ms: int) -> int:
    """How long an abandoned message rests; its delivery is counted already."""
    settings = entry.log.settings
    delay_ms = wish_ms if wish_ms >= 0 else _usual(entry, settings)
    if entry.expires_ms and wall_ms + delay_ms >= entry.expires_ms:
        return 0
    return delay_ms


def _usual(entry: Entry, settings: LogSettings) -> int:
    # What was deferred, and is not asked for again by a wish, stays so until somebody fetches it.
    if entry.log.by_position or entry.deferred or not settings.retry_ms:
        return 0
    if not settings.retry_grows:
        return settings.retry_ms
    doublings = min(max(entry.delivery_count - 1, 0), _DOUBLINGS)
    return min(settings.retry_ms << doublings, settings.retry_max_ms, RETRY_SECONDS * 1000)


def put_aside(broker: Broker, entry: Entry, delay_ms: int) -> None:
    """An entry that nobody holds any more rests until its time comes."""
    retry_ms = broker.wall_ms + delay_ms
    if entry.deferred:
        set_retry(broker, entry, retry_ms)
        entry.log.deferrals.unlocked(entry)
        return
    twin = copy_into(broker, entry.log, entry)
    twin.position = entry.position
    twin.rank = entry.rank
    twin.expires_ms = entry.expires_ms
    twin.retry_ms = retry_ms
    remove(broker, entry)
    put_deferred(broker, twin)


def activate(broker: Broker, entry: Entry, reason: str) -> Entry:
    """A deferred message joins the end of its log, under a new number where numbers are the order.

    Its delivery count and the time that it has left to live stay with it.
    """
    log = entry.log
    twin = copy_into(broker, log, entry)
    twin.expires_ms = entry.expires_ms
    if not log.by_position:
        twin.original = entry.original or entry.sequence
        twin.sequence = broker.next_sequence(log)
    remove(broker, entry)
    enter(broker, log, twin)
    note(broker, twin, events.ENQUEUED, reason)
    return twin
