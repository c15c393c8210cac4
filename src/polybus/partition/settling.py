"""What a receiver decides about a message it holds: complete, abandon, defer, dead-letter, release, renew.

Each verb raises at once where the lock is not good, else replies after the commit. `now` decides about locks:
one that has run out is lost even before the upkeep has noticed.
"""

from __future__ import annotations

from typing import Final

from polybus.clock import Now
from polybus.errors import InvalidOperation
from polybus.limits import PROPERTIES_BYTES
from polybus.message.overlay import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from polybus.partition import events, records, transfers
from polybus.partition.broker import Broker
from polybus.partition.entry import Entry
from polybus.partition.log import DEAD_LETTER, KINDS, MAIN, Log
from polybus.partition.output import Reply
from polybus.partition.storing import copy_into, enter, note, remove, rewrite

MAX_DELIVERY_REASON: Final = "MaxDeliveryCountExceeded"
HEADER_REASON: Final = "HeaderSizeExceeded"


def complete(broker: Broker, log: Log, lock: int, now: Now, reply: Reply | None, context: object) -> None:
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
    properties: dict[str, object] | None,
    reply: Reply | None,
    context: object,
) -> None:
    entry = held(broker, log, lock, now)
    settle_abandon(broker, entry, now, properties)
    respond(broker, reply, context)


def settle_abandon(broker: Broker, entry: Entry, now: Now, properties: dict[str, object] | None) -> None:
    broker.wall(now)
    if properties:
        entry.own_overlay().change(properties)
    count_delivery(broker, entry, events.ABANDONED)


def count_delivery(broker: Broker, entry: Entry, change: str) -> None:
    """A delivery ended without settlement: the count rises, and past its limit the message is dead."""
    log = entry.log
    entry.delivery_count += 1
    note(broker, entry, change)
    if log.kind == MAIN and entry.delivery_count >= log.settings.max_delivery_count:
        description = f"Message could not be consumed after {entry.delivery_count} delivery attempts."
        settle_dead_letter(broker, entry, MAX_DELIVERY_REASON, description, None)
        return
    if _oversized(entry):
        settle_dead_letter(
            broker, entry, HEADER_REASON, "The size quota for this stream has been exceeded.", None
        )
        return
    _let_go(broker, entry, returns=True)
    batch = rewrite(broker, entry)
    if entry.deferred:
        log.deferred_memory.pop(entry.sequence, None)
        if entry.body:
            broker.bodies.detach(entry)
    else:
        batch.arrivals.append(entry)


def defer(
    broker: Broker,
    log: Log,
    lock: int,
    now: Now,
    properties: dict[str, object] | None,
    reply: Reply | None,
    context: object,
) -> None:
    entry = held(broker, log, lock, now)
    settle_defer(broker, entry, now, properties)
    respond(broker, reply, context)


def settle_defer(broker: Broker, entry: Entry, now: Now, properties: dict[str, object] | None) -> None:
    broker.wall(now)
    log = entry.log
    if properties:
        entry.own_overlay().change(properties)
    note(broker, entry, events.DEFERRED)
    if entry.deferred:
        _let_go(broker, entry)
        rewrite(broker, entry)
        log.deferred_memory.pop(entry.sequence, None)
        if entry.body:
            broker.bodies.detach(entry)
        return
    twin = copy_into(broker, log, entry)
    twin.deferred = True
    twin.position = entry.position
    twin.rank = entry.rank
    twin.expires_ms = entry.expires_ms
    _let_go(broker, entry)
    batch = remove(broker, entry)
    batch.put(broker.key_of(twin), broker.record(twin))
    if twin.expires_ms:
        key = records.expiry_key(broker.prefix, twin.expires_ms, log.id, twin.sequence)
        batch.put(key, b"")
    log.deferred += 1
    log.deferred_bytes += twin.size
    if twin.body:
        broker.bodies.detach(twin)
    else:
        broker.size += twin.size


def dead_letter(
    broker: Broker,
    log: Log,
    lock: int,
    now: Now,
    reason: str | None,
    description: str | None,
    properties: dict[str, object] | None,
    reply: Reply | None,
    context: object,
) -> None:
    entry = held(broker, log, lock, now)
    check_can_die(log)
    broker.wall(now)
    settle_dead_letter(broker, entry, reason, description, properties)
    respond(broker, reply, context)


def check_can_die(log: Log) -> None:
    if log.kind != MAIN:
        raise InvalidOperation("A message in a dead-letter queue cannot be dead-lettered again.")


def settle_dead_letter(
    broker: Broker,
    entry: Entry,
    reason: str | None,
    description: str | None,
    properties: dict[str, object] | None,
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
    dead = broker.log(log.settings.number * KINDS + DEAD_LETTER)
    destination = log.settings.forward_dead_letters_to
    if destination is not None:
        transfers.forward(broker, log, entry, destination)
    else:
        enter(broker, dead, copy_into(broker, dead, entry))
    remove(broker, entry)


def release(broker: Broker, log: Log, lock: int, now: Now) -> None:
    """Gives a message back as if it had never been taken: nothing is counted, nothing written."""
    entry = held(broker, log, lock, now)
    _let_go(broker, entry, returns=True)
    if entry.deferred:
        log.deferred_memory.pop(entry.sequence, None)
        if entry.body:
            broker.bodies.detach(entry)
        return
    if log.sessions is not None:
        log.sessions.arrive(entry)
    else:
        log.give_back(entry)
    if log.watcher is not None:
        log.watcher.available()


def renew(broker: Broker, log: Log, lock: int, now: Now) -> int:
    """Extends a lock from now; gives its new end in wall time."""
    if log.sessions is not None:
        raise InvalidOperation(
            "The lock of a message in a session cannot be renewed; renew the session's lock."
        )
    entry = held(broker, log, lock, now)
    entry.locked_until_ms = now.mono_ms + log.settings.lock_ms
    entry.locked_until_wall_ms = now.wall_ms + log.settings.lock_ms
    log.lock_queue.append((entry.locked_until_ms, lock))
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
    if sessions is not None and not returns:
        session_id = entry.session_id()
        session = sessions.held.get(session_id) if session_id is not None else None
        if session is not None:
            session.outstanding.pop(entry.sequence, None)
    broker.unlock(entry)


def respond(broker: Broker, reply: Reply | None, context: object) -> None:
    if reply is not None:
        broker.out().replies.append((reply, context, None))


def _oversized(entry: Entry) -> bool:
    return entry.overlay is not None and len(entry.overlay.to_bytes()) > PROPERTIES_BYTES
