"""What a receiver decides about a message it holds: complete, abandon, defer, dead-letter, release, renew.

Each verb raises at once where the lock is not good, else replies after the commit. `now` decides about locks:
one that has run out is lost even before the upkeep has noticed.
"""

from __future__ import annotations

from typing import Final

from polybus.amqp.codec import encode
from polybus.clock import Now
from polybus.errors import InvalidOperation
from polybus.limits import PROPERTIES_BYTES
from polybus.message.message import Message
from polybus.message.overlay import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON, Overlay
from polybus.message.rendering import merged_properties
from polybus.partition import events, transfers
from polybus.partition.broker import Broker
from polybus.partition.entry import Entry
from polybus.partition.kinds import DEAD_LETTER, KINDS, MAIN
from polybus.partition.log import Log
from polybus.partition.retrying import check_wish, delay_of, put_aside, take_wish
from polybus.partition.storing import copy_into, enter, note, put_deferred, remove, rewrite, set_retry
from polybus.partition.totals import BY_RECEIVER
from polybus.promise import C, Reply

MAX_DELIVERY_REASON: Final = "MaxDeliveryCountExceeded"
HEADER_REASON: Final = "HeaderSizeExceeded"
HEADER_DESCRIPTION: Final = "The size quota for this stream has been exceeded."

Properties = dict[str, object]


def complete(broker: Broker, log: Log, lock: int, now: Now, reply: Reply[C, None] | None, context: C) -> None:
    entry = held(broker, log, lock, now)
    settle_complete(broker, entry, now)
    respond(broker, reply, context)


def settle_complete(broker: Broker, entry: Entry, now: Now) -> None:
    broker.wall(now)
    _let_go(broker, entry)
    note(broker, entry, events.COMPLETED)
    remove(broker, entry)


def abandon(
    broker: Broker,
    log: Log,
    lock: int,
    now: Now,
    properties: Properties | None,
    reply: Reply[C, None] | None,
    context: C,
) -> None:
    entry = held(broker, log, lock, now)
    check_abandon(broker, entry, now, properties)
    settle_abandon(broker, entry, now, properties)
    respond(broker, reply, context)


def check_abandon(broker: Broker, entry: Entry, now: Now, properties: Properties | None) -> None:
    """Refuses what abandoning cannot do: too many properties, or a delay that cannot be."""
    check_wish(entry, max(now.wall_ms, broker.wall_ms), properties)
    check_properties(entry, properties)


def settle_abandon(broker: Broker, entry: Entry, now: Now, properties: Properties | None) -> None:
    wall_ms = broker.wall(now)
    properties, wish_ms = take_wish(properties)
    if properties:
        entry.own_overlay().change(properties)
    entry.delivery_count += 1
    _end_delivery(broker, entry, events.ABANDONED, delay_of(entry, wall_ms, wish_ms))


def count_delivery(broker: Broker, entry: Entry, change: str) -> None:
    """A delivery ended without settlement: the count rises, and past its limit the message is dead."""
    entry.delivery_count += 1
    _end_delivery(broker, entry, change, 0)


def _end_delivery(broker: Broker, entry: Entry, change: str, delay_ms: int) -> None:
    """A counted delivery has ended: the message is there again, at once or after a delay, or it is dead."""
    log = entry.log
    note(broker, entry, change)
    if log.kind == MAIN and entry.delivery_count >= log.settings.max_delivery_count:
        description = f"Message could not be consumed after {entry.delivery_count} delivery attempts."
        dead_letter_by_broker(broker, entry, MAX_DELIVERY_REASON, description)
        return
    if log.kind == MAIN and oversized(entry.loaded(), entry.overlay):
        dead_letter_by_broker(broker, entry, HEADER_REASON, HEADER_DESCRIPTION)
        return
    if log.kind == MAIN and log.settings.forward_to is not None and not entry.deferred:
        _let_go(broker, entry)
        forward_entry(broker, entry, log.settings.forward_to)
        return
    if delay_ms:
        _let_go(broker, entry)
        put_aside(broker, entry, delay_ms)
        return
    _let_go(broker, entry, returns=True)
    batch = rewrite(broker, entry)
    if entry.deferred:
        log.deferrals.unlocked(entry)
    else:
        entry.returning = log.sessions is not None
        batch.arrivals.append(entry)


def forward_entry(broker: Broker, entry: Entry, destination: str) -> None:
    """A message that is in a log which forwards by now leaves it."""
    note(broker, entry, events.DELETED, "forwarded")
    transfers.forward(broker, entry.log, entry, destination)
    remove(broker, entry)


def defer(
    broker: Broker,
    log: Log,
    lock: int,
    now: Now,
    properties: Properties | None,
    reply: Reply[C, None] | None,
    context: C,
) -> None:
    entry = held(broker, log, lock, now)
    check_properties(entry, properties)
    settle_defer(broker, entry, now, properties)
    respond(broker, reply, context)


def settle_defer(broker: Broker, entry: Entry, now: Now, properties: Properties | None) -> None:
    broker.wall(now)
    log = entry.log
    if properties:
        entry.own_overlay().change(properties)
        if log.kind == MAIN and oversized(entry.loaded(), entry.overlay):
            dead_letter_by_broker(broker, entry, HEADER_REASON, HEADER_DESCRIPTION)
            return
    note(broker, entry, events.DEFERRED)
    _let_go(broker, entry)
    if entry.deferred:
        set_retry(broker, entry, 0)
        log.deferrals.unlocked(entry)
        return
    into_deferred(broker, entry)


def into_deferred(broker: Broker, entry: Entry) -> None:
    """An active message that nobody holds any more becomes a deferred one, under the number that it has."""
    twin = copy_into(broker, entry.log, entry)
    twin.position = entry.position
    twin.rank = entry.rank
    twin.expires_ms = entry.expires_ms
    remove(broker, entry)
    put_deferred(broker, twin)


def dead_letter(
    broker: Broker,
    log: Log,
    lock: int,
    now: Now,
    reason: str | None,
    description: str | None,
    properties: Properties | None,
    reply: Reply[C, None] | None,
    context: C,
) -> None:
    entry = held(broker, log, lock, now)
    check_can_dead_letter(log)
    broker.wall(now)
    dead_letter_by_receiver(broker, entry, reason, description, properties)
    respond(broker, reply, context)


def check_can_dead_letter(log: Log) -> None:
    if log.kind != MAIN:
        raise InvalidOperation("A message in a dead-letter queue cannot be dead-lettered again.")


def dead_letter_by_broker(broker: Broker, entry: Entry, reason: str, description: str) -> None:
    """The broker itself gives a message up."""
    entry.log.settings.totals.died(reason)
    _settle_dead_letter(broker, entry, reason, description, None)


def dead_letter_by_receiver(
    broker: Broker, entry: Entry, reason: str | None, description: str | None, properties: Properties | None
) -> None:
    """A receiver gives a message up."""
    entry.log.settings.totals.died(BY_RECEIVER)
    _settle_dead_letter(broker, entry, reason, description, properties)


def _settle_dead_letter(
    broker: Broker,
    entry: Entry,
    reason: str | None,
    description: str | None,
    properties: Properties | None,
) -> None:
    """Moves an entry into the dead letters of its log, or to where the entity forwards them."""
    log = entry.log
    if entry.lock:
        _let_go(broker, entry)
    overlay = entry.own_overlay()
    if properties:
        overlay.change(properties)
    if reason is not None:
        overlay.application[DEAD_LETTER_REASON] = reason
    if description is not None:
        overlay.application[DEAD_LETTER_DESCRIPTION] = description
    overlay.dead_letter_source = log.settings.source
    note(broker, entry, events.DEAD_LETTERED, reason)
    destination = log.settings.forward_dead_letters_to
    if destination is not None:
        transfers.forward(broker, log, entry, destination, dead=True)
    else:
        dead = broker.log(log.settings.number * KINDS + DEAD_LETTER)
        enter(broker, dead, copy_into(broker, dead, entry))
    remove(broker, entry)


def release(broker: Broker, log: Log, lock: int, now: Now) -> None:
    """Gives a message back as if it had never been taken: nothing is counted, nothing written."""
    give_back(broker, held(broker, log, lock, now))
    if log.watcher is not None:
        log.watcher.available()


def give_back(broker: Broker, entry: Entry) -> None:
    log = entry.log
    if entry.deferred:
        _let_go(broker, entry)
        log.deferrals.unlocked(entry)
        return
    _let_go(broker, entry, returns=True)
    if log.sessions is not None:
        log.sessions.arrive(entry)
    else:
        log.give_back(entry)


def renew(broker: Broker, log: Log, lock: int, now: Now) -> int:
    """Extends a lock from now; gives its new end in wall time."""
    if log.sessions is not None:
        raise InvalidOperation("The lock of a message in a session cannot be renewed; renew the session's lock.")
    entry = broker.locked(log, lock, now)
    lock_ms = log.settings.lock_ms
    entry.locked_until_ms = now.mono_ms + lock_ms
    entry.locked_until_wall_ms = now.wall_ms + lock_ms
    broker.lock_ends.remove(lock_ms, lock)
    broker.lock_ends.add(lock_ms, entry)
    return entry.locked_until_wall_ms


def held(broker: Broker, log: Log, lock: int, now: Now) -> Entry:
    """The entry behind a lock that may be settled now."""
    entry = broker.locked(log, lock, now)
    if entry.transaction is not None:
        raise InvalidOperation("The message is being settled in a transaction that is not complete.")
    return entry


def _let_go(broker: Broker, entry: Entry, returns: bool = False) -> None:
    """Ends the lock; a session keeps what returns among its outstanding until it arrives again."""
    sessions = entry.log.sessions
    if sessions is not None:
        if returns and not entry.deferred:
            sessions.returns(entry)
        else:
            sessions.settled(entry)
    broker.unlock(entry)


def respond(broker: Broker, reply: Reply[C, None] | None, context: C) -> None:
    if reply is not None:
        broker.out().replies.append((reply, context, None))


def check_properties(entry: Entry, properties: Properties | None) -> None:
    """Too many properties kill a message; where it cannot die any more, they are refused."""
    if properties and entry.log.kind != MAIN:
        overlay = Overlay() if entry.overlay is None else entry.overlay.copy()
        overlay.change(properties)
        if oversized(entry.loaded(), overlay):
            raise InvalidOperation(f"The properties of a message cannot exceed {PROPERTIES_BYTES} bytes.")


def oversized(message: Message, overlay: Overlay | None) -> bool:
    """Whether the properties are more than a message may have, as a receiver would see them."""
    if overlay is None or not overlay.application:
        return False
    if len(overlay.to_bytes()) + message.body_at - message.bare_at <= PROPERTIES_BYTES:
        return False
    changed = list(overlay.fields.values())
    return len(encode(merged_properties(message, overlay))) + len(encode(changed)) > PROPERTIES_BYTES
