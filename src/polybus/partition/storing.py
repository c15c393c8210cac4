"""The three things that can happen to a stored message: it enters a log, it is rewritten, it is removed.

Every verb is made of these, so that rows, indexes, counters and sizes agree wherever a message goes.
"""

from __future__ import annotations

from polybus.message.message import Message
from polybus.message.overlay import Overlay
from polybus.partition import events, records
from polybus.partition.broker import Broker
from polybus.partition.entry import Entry
from polybus.partition.log import Log
from polybus.partition.output import Output
from polybus.partition.settings import INFINITE_MS


def expiry_of(broker: Broker, log: Log, message: Message, overlay: Overlay | None, wall_ms: int) -> int:
    """When a message that enters now will expire; 0 where it will not."""
    ttl_ms = log.settings.ttl_ms
    if log.settings.number and broker.settings.own.ttl_ms < ttl_ms:
        ttl_ms = broker.settings.own.ttl_ms
    own = message.ttl_ms
    if overlay is not None and overlay.ttl_ms >= 0:
        own = overlay.ttl_ms
    if 0 <= own < ttl_ms:
        ttl_ms = own
    return 0 if ttl_ms >= INFINITE_MS else wall_ms + ttl_ms


def enter(broker: Broker, log: Log, entry: Entry) -> bytes:
    """Appends an entry to a log; it becomes available when the batch is synced. Gives its key."""
    batch = broker.out(log)
    log.positions += 1
    entry.position = log.positions
    entry.rank = log.positions if log.by_position else entry.sequence
    key = records.number_key(log.active_prefix, entry.rank)
    batch.put(key, broker.record(entry))
    if log.by_position:
        batch.put(records.number_key(log.numbers_prefix, entry.sequence), entry.rank.to_bytes(8, "big"))
    elif log.sessions is not None:
        batch.put(_session_key(log, entry), b"")
    if entry.expires_ms:
        batch.put(records.expiry_key(broker.prefix, entry.expires_ms, log.id, entry.sequence), b"")
        if entry.expires_ms < broker.expiry_due_ms:
            broker.expiry_due_ms = entry.expires_ms
        if entry.expires_ms < broker.expiry_low:
            broker.expiry_low = entry.expires_ms
    log.active += 1
    log.active_bytes += entry.size
    if entry.body == 0:
        broker.size += entry.size
    if log.sessions is None:
        log.entering.append(entry.rank)
    batch.arrivals.append(entry)
    return key


def remove(broker: Broker, entry: Entry) -> Output:
    """Takes an entry out of its log for good; a cursor may still keep its bytes."""
    log = entry.log
    batch = broker.out(log)
    if entry.deferred:
        log.deferred -= 1
        log.deferred_bytes -= entry.size
        log.deferred_memory.pop(entry.sequence, None)
        log.deferred_removed.add(entry.sequence)
        batch.removed.append((log.deferred_removed, entry.sequence))
        batch.delete(records.number_key(log.deferred_prefix, entry.sequence))
        _free(broker, batch, entry)
        entry.gone = True
    else:
        log.active -= 1
        log.active_bytes -= entry.size
        _remove_row(broker, batch, log, entry)
        if log.sessions is not None or entry.rank not in log.memory:
            log.removed.add(entry.rank)
            batch.removed.append((log.removed, entry.rank))
        if log.by_position:
            batch.delete(records.number_key(log.numbers_prefix, entry.sequence))
        elif log.sessions is not None:
            batch.delete(_session_key(log, entry))
        log.forget(entry)
    if entry.expires_ms:
        batch.delete(records.expiry_key(broker.prefix, entry.expires_ms, log.id, entry.sequence))
    return batch


def _remove_row(broker: Broker, batch: Output, log: Log, entry: Entry) -> None:
    if entry.position > log.floor:
        mark = records.settled_mark(entry.position, broker.wall_ms, entry.size, entry.body)
        batch.put(records.number_key(log.settled_prefix, entry.rank), mark)
        log.retained += 1
        log.retained_bytes += entry.size
        if entry.body == 0:
            broker.size -= entry.size
        else:
            broker.bodies.detach(entry)
    else:
        batch.delete(records.number_key(log.active_prefix, entry.rank))
        _free(broker, batch, entry)


def _free(broker: Broker, batch: Output, entry: Entry) -> None:
    if entry.body == 0:
        broker.size -= entry.size
    else:
        broker.size -= broker.bodies.release(batch, entry)


def _session_key(log: Log, entry: Entry) -> bytes:
    session_id = entry.session_id()
    assert session_id is not None, "a log with sessions has only messages with a session id"
    return records.number_key(records.session_prefix(log.session_prefix, session_id), entry.sequence)


def rewrite(broker: Broker, entry: Entry) -> Output:
    """Writes an entry again in its place, after its marks have changed."""
    batch = broker.out(entry.log)
    batch.put(broker.key_of(entry), broker.record(entry))
    return batch


def copy_into(broker: Broker, log: Log, entry: Entry) -> Entry:
    """The same message as a new entry for another log (or table); it shares nothing that changes."""
    twin = Entry(
        log,
        entry.sequence,
        entry.message,
        entry.enqueued_ms,
        0,
        entry.original,
        None if entry.overlay is None else entry.overlay.copy(),
        entry.size,
    )
    twin.delivery_count = entry.delivery_count
    if entry.body:
        batch = broker.out(log)
        number = broker.bodies.add(batch, entry.loaded(), 1)
        broker.size += entry.size
        broker.bodies.attach(twin, number)
    return twin


def note(broker: Broker, entry: Entry, change: str, reason: str | None = None) -> None:
    """Writes an event, where the entity keeps them."""
    if broker.settings.events:
        events.write(broker, entry, change, reason)
