"""The three things that can happen to a stored message: it enters a log, it is rewritten, it is removed.

Every verb is made of these, so that rows, indexes, counters and sizes agree wherever a message goes.
"""

from __future__ import annotations

from polybus.limits import INFINITE_MS
from polybus.message.message import Message
from polybus.message.overlay import Overlay
from polybus.partition import events, records
from polybus.partition.broker import Broker
from polybus.partition.entry import Entry
from polybus.partition.log import Log
from polybus.partition.output import Output


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


def takes_raw(broker: Broker, log: Log) -> bool:
    """Whether a message without times of its own can enter the log without being looked at."""
    settings = broker.settings
    return not (
        settings.topic
        or settings.duplicate_window_ms
        or settings.events
        or log.by_position
        or log.sessions is not None
        or log.settings.forward_to is not None
    )


def append_raw(broker: Broker, log: Log, raws: list[bytes], wall_ms: int) -> None:
    """Appends messages that need not be looked at to a log that `takes_raw`.

    Memory does not learn of them: a page brings them when a receiver wants them.
    """
    batch = broker.out(log)
    ttl_ms = log.settings.ttl_ms
    expires_ms = 0 if ttl_ms >= INFINITE_MS else wall_ms + ttl_ms
    prefix, base = log.active_prefix, broker.number_base
    counter, position, size = log.counter, log.positions, 0
    for raw in raws:
        counter += 1
        position += 1
        sequence = base | counter
        length = len(raw)
        record = records.message_record(sequence, position, wall_ms, expires_ms, 0, 0, 0, length, b"", raw)
        batch.put(records.number_key(prefix, sequence), record)
        if expires_ms:
            batch.put(records.expiry_key(broker.prefix, expires_ms, log.id, sequence), b"")
        size += length
    if expires_ms:
        broker.expiry.add(expires_ms)
    log.counter, log.positions = counter, position
    log.active += len(raws)
    log.active_bytes += size
    broker.size += size
    batch.skips.append((log, base | counter))


def enter(broker: Broker, log: Log, entry: Entry) -> bytes:
    """Appends an entry to a log; it becomes available when the batch is synced. Gives its key."""
    batch = broker.out(log)
    log.positions += 1
    entry.position = log.positions
    if log.by_position and not entry.expires_ms and log.settings.dead_letter_ttl_ms < INFINITE_MS:
        entry.expires_ms = broker.wall_ms + log.settings.dead_letter_ttl_ms
    entry.rank = log.positions if log.by_position else entry.sequence
    key = records.number_key(log.active_prefix, entry.rank)
    batch.put(key, broker.record(entry))
    if log.by_position:
        index = records.number_key(log.numbers_prefix, entry.sequence)
        batch.put(index, records.sealed_number(entry.rank))
    elif log.sessions is not None:
        batch.put(_session_key(log, entry), b"")
    if entry.expires_ms:
        _put_expiry(broker, batch, entry)
    log.active += 1
    log.active_bytes += entry.size
    if entry.body == 0:
        broker.size += entry.size
    batch.arrivals.append(entry)
    return key


def put_deferred(broker: Broker, entry: Entry) -> Output:
    """Puts an entry among the deferred messages of its log, with the position it had."""
    log = entry.log
    batch = broker.out(log)
    entry.deferred = True
    batch.put(broker.key_of(entry), broker.record(entry))
    if entry.expires_ms:
        _put_expiry(broker, batch, entry)
    if entry.retry_ms:
        _put_retry(broker, batch, entry)
    log.deferred += 1
    log.deferred_bytes += entry.size
    if entry.body == 0:
        broker.size += entry.size
    log.deferrals.put(entry)
    log.deferrals.changed(batch, entry.sequence)
    return batch


def _put_expiry(broker: Broker, batch: Output, entry: Entry) -> None:
    key = records.expiry_key(broker.prefix, entry.expires_ms, entry.log.id, entry.sequence)
    batch.put(key, b"")
    broker.expiry.add(entry.expires_ms)


def _put_retry(broker: Broker, batch: Output, entry: Entry) -> None:
    """Time makes a message active again by the same index that makes it expire: never at the same moment."""
    batch.put(records.expiry_key(broker.prefix, entry.retry_ms, entry.log.id, entry.sequence), b"")
    broker.expiry.add(entry.retry_ms)


def set_retry(broker: Broker, entry: Entry, retry_ms: int) -> Output:
    """Gives a deferred message another time to become active again, or with 0 none, and writes it."""
    batch = broker.out(entry.log)
    if entry.retry_ms:
        batch.delete(records.expiry_key(broker.prefix, entry.retry_ms, entry.log.id, entry.sequence))
    entry.retry_ms = retry_ms
    if retry_ms:
        _put_retry(broker, batch, entry)
    return rewrite(broker, entry)


def remove(broker: Broker, entry: Entry) -> Output:
    """Takes an entry out of its log for good; a cursor may still keep its bytes."""
    log = entry.log
    batch = broker.out(log)
    if entry.expires_ms:
        batch.delete(records.expiry_key(broker.prefix, entry.expires_ms, log.id, entry.sequence))
    if log.sessions is not None:
        log.sessions.settled(entry)
    if entry.deferred:
        if entry.retry_ms:
            batch.delete(records.expiry_key(broker.prefix, entry.retry_ms, log.id, entry.sequence))
        log.deferred -= 1
        log.deferred_bytes -= entry.size
        batch.delete(records.number_key(log.deferred_prefix, entry.sequence))
        _free(broker, batch, entry)
        entry.gone = True
        log.deferrals.put(entry)
        log.deferrals.changed(batch, entry.sequence)
    else:
        log.active -= 1
        log.active_bytes -= entry.size
        if log.by_position:
            batch.delete(records.number_key(log.numbers_prefix, entry.sequence))
        elif log.sessions is not None:
            batch.delete(_session_key(log, entry))
        _remove_row(broker, batch, log, entry)
        log.forget(entry)
        log.removed.changed(batch, entry.rank)
    return batch


def _remove_row(broker: Broker, batch: Output, log: Log, entry: Entry) -> None:
    if entry.position <= log.floor:
        batch.delete(records.number_key(log.active_prefix, entry.rank))
        _free(broker, batch, entry)
        return
    mark = records.settled_mark(entry.position, broker.wall_ms, entry.size, entry.body)
    batch.put(records.number_key(log.settled_prefix, entry.rank), mark)
    if entry.rank <= log.trimmed_to:
        log.trimmed_to = entry.rank - 1
    log.retained += 1
    log.retained_bytes += entry.size
    broker.size -= broker.bodies.settle(batch, entry) if entry.body else entry.size


def _free(broker: Broker, batch: Output, entry: Entry) -> None:
    broker.size -= broker.bodies.release(batch, entry) if entry.body else entry.size


def _session_key(log: Log, entry: Entry) -> bytes:
    session_id = entry.session_id()
    assert session_id is not None, "a log with sessions has only messages with a session id"
    return records.number_key(records.session_prefix(log.session_prefix, session_id), entry.sequence)


def rewrite(broker: Broker, entry: Entry) -> Output:
    """Writes an entry again in its place, after its marks have changed."""
    log = entry.log
    batch = broker.out(log)
    batch.put(broker.key_of(entry), broker.record(entry))
    if entry.deferred:
        log.deferrals.changed(batch, entry.sequence)
    return batch


def copy_into(broker: Broker, log: Log, entry: Entry) -> Entry:
    """The same message as a new entry for another log (or table); they share only the body, which is counted."""
    twin = Entry(
        log,
        entry.sequence,
        entry.loaded(),
        entry.enqueued_ms,
        0,
        entry.original,
        None if entry.overlay is None else entry.overlay.copy(),
        entry.size,
    )
    twin.delivery_count = entry.delivery_count
    if entry.body:
        broker.bodies.share(broker.out(), entry.body)
        broker.bodies.attach(twin, entry.body)
    return twin


def note(broker: Broker, entry: Entry, change: str, reason: str | None = None) -> None:
    """Writes an event, where the entity keeps them."""
    if broker.settings.events:
        events.write(broker, entry, change, reason)
