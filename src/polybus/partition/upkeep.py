"""What time does: locks run out, scheduled messages become active, messages expire, old ids are forgotten.

Each step works on a bounded number of rows, so that a million expired messages never hold up the loop; `again`
says that there is more.
"""

from __future__ import annotations

from polybus.clock import Now
from polybus.errors import MessageNotFound
from polybus.limits import SWEEP_ROWS
from polybus.message.message import Message
from polybus.partition import events, holding, records, sending, settling
from polybus.partition.broker import NOT_DUE, Broker, Steps
from polybus.partition.entry import Entry, entry_from
from polybus.partition.log import MAIN, Log
from polybus.partition.output import Reply
from polybus.partition.receiving import load_bodies, rows_of
from polybus.partition.records import Stored
from polybus.partition.sessions import Session
from polybus.partition.storing import note, remove
from polybus.rows import Get, Scan

EXPIRED_REASON = "TTLExpiredException"
EXPIRED_DESCRIPTION = "The message expired and was dead lettered."


def next_due(broker: Broker, now: Now) -> int:
    """Milliseconds until the broker wants to be called; NOT_DUE where nothing waits for time."""
    wait = NOT_DUE
    for log in broker.logs.values():
        queue = log.lock_queue
        while queue and queue[0][1] not in broker.locks:
            queue.popleft()
        if queue:
            wait = min(wait, queue[0][0] - now.mono_ms)
        if log.sessions is not None:
            for session in log.sessions.held.values():
                wait = min(wait, session.until_ms - now.mono_ms)
    if not broker.activating:
        wait = min(wait, broker.due_ms - now.wall_ms)
    if not broker.sweeping:
        wait = min(wait, broker.expiry_due_ms - now.wall_ms)
    return wait if wait >= NOT_DUE // 2 else max(wait, 0)


def expire_locks(broker: Broker, now: Now) -> list[Session]:
    """Ends the locks that have run out; gives the sessions whose holders lost them."""
    lost: list[Session] = []
    for log in list(broker.logs.values()):
        if log.sessions is not None:
            for session in log.sessions.expired(now.mono_ms):
                holding.release(broker, log, session, now)
                lost.append(session)
        _expire_message_locks(broker, log, now)
    return lost


def _expire_message_locks(broker: Broker, log: Log, now: Now) -> None:
    queue = log.lock_queue
    while queue and queue[0][0] <= now.mono_ms:
        _, number = queue.popleft()
        entry = broker.locks.get(number)
        if entry is None:
            continue
        if entry.locked_until_ms > now.mono_ms:
            if entry.log.sessions is not None:
                queue.append((entry.locked_until_ms, number))
            continue
        broker.wall(now)
        settling.count_delivery(broker, entry, events.LOCK_EXPIRED)


def activate(broker: Broker, now: Now) -> Steps[None]:
    """Makes scheduled messages active whose time has come: each gets a new number."""
    broker.activating = True
    try:
        start = records.due_key(broker.prefix, broker.due_low, 0)
        rows = yield Scan(start, broker.prefix + records.DUE + b"\xff" * 17, SWEEP_ROWS)
        wall_ms = broker.wall(now)
        due = [records.due_of(key) for key, _ in rows_of(rows)]
        ripe = [(due_ms, number) for due_ms, number in due if due_ms <= wall_ms]
        prefix = broker.prefix + records.SCHEDULED
        values = yield Get([records.number_key(prefix, number) for _, number in ripe])
        for (due_ms, number), value in zip(ripe, values, strict=True):
            if isinstance(value, bytes) and number not in broker.scheduled_removed:
                _activate_one(broker, due_ms, number, Stored(value), wall_ms)
        rest = due[len(ripe) :]
        if rest:
            broker.due_ms = rest[0][0]
            broker.due_low = rest[0][0]
        elif len(rows) == SWEEP_ROWS:
            broker.due_ms = broker.due_low = ripe[-1][0]
        else:
            broker.due_ms = NOT_DUE
            broker.due_low = wall_ms
    finally:
        broker.activating = False


def _activate_one(broker: Broker, due_ms: int, number: int, stored: Stored, wall_ms: int) -> None:
    _remove_scheduled(broker, due_ms, number, stored.size)
    sending.accept(broker, Message(stored.raw), wall_ms, [], number)


def _remove_scheduled(broker: Broker, due_ms: int, number: int, size: int) -> None:
    batch = broker.out()
    batch.delete(records.number_key(broker.prefix + records.SCHEDULED, number))
    batch.delete(records.due_key(broker.prefix, due_ms, number))
    broker.scheduled_removed.add(number)
    batch.removed.append((broker.scheduled_removed, number))
    broker.scheduled -= 1
    broker.scheduled_bytes -= size
    broker.size -= size


def cancel(broker: Broker, now: Now, numbers: list[int], reply: Reply, context: object) -> Steps[None]:
    """Takes scheduled messages back, all or none."""
    prefix = broker.prefix + records.SCHEDULED
    values = yield Get([records.number_key(prefix, number) for number in numbers])
    found: list[Stored] = []
    for number, value in zip(numbers, values, strict=True):
        if not isinstance(value, bytes) or number in broker.scheduled_removed:
            raise MessageNotFound(f"The scheduled message {number} could not be found.")
        found.append(Stored(value))
    broker.wall(now)
    broker.accessed_ms = now.wall_ms
    for number, stored in zip(numbers, found, strict=True):
        _remove_scheduled(broker, stored.expires_ms, number, stored.size)
    broker.out().replies.append((reply, context, None))


def sweep(broker: Broker, now: Now) -> Steps[None]:
    """Removes or dead-letters messages that have expired, except those that are locked."""
    broker.sweeping = True
    try:
        yield from _sweep(broker, now)
    finally:
        broker.sweeping = False


def _sweep(broker: Broker, now: Now) -> Steps[None]:
    wall_ms = broker.wall(now)
    start = records.expiry_key(broker.prefix, broker.expiry_low, 0, 0)
    rows = yield Scan(start, broker.prefix + records.EXPIRY + b"\xff" * 21, SWEEP_ROWS)
    marks = [records.expiry_of(key) for key, _ in rows_of(rows)]
    ripe = [mark for mark in marks if mark[0] <= wall_ms]
    locked_ms = NOT_DUE
    for expires_ms, log_id, number in ripe:
        log = broker.logs.get(log_id)
        if log is None:
            broker.out().delete(records.expiry_key(broker.prefix, expires_ms, log_id, number))
            continue
        entry = yield from _expiring(broker, log, number)
        if entry is None:
            broker.out().delete(records.expiry_key(broker.prefix, expires_ms, log_id, number))
        elif entry.lock:
            locked_ms = min(locked_ms, expires_ms)
        else:
            _expire(broker, entry)
    rest = marks[len(ripe) :]
    following = rest[0][0] if rest else (ripe[-1][0] if len(rows) == SWEEP_ROWS else NOT_DUE)
    broker.expiry_low = min(locked_ms, following, wall_ms)
    broker.expiry_due_ms = following if locked_ms == NOT_DUE else min(following, wall_ms + 1000)


def _expiring(broker: Broker, log: Log, number: int) -> Steps[Entry | None]:
    """The entry behind an expiry row: in memory, or read; None where it is gone already."""
    entry = log.memory.get(number) or log.deferred_memory.get(number)
    if entry is not None:
        return None if entry.gone else entry
    if number in log.removed or number in log.deferred_removed:
        return None
    keys = [records.number_key(log.active_prefix, number), records.number_key(log.deferred_prefix, number)]
    active, deferred = yield Get(keys)
    value = deferred if active is None else active
    if not isinstance(value, bytes):
        return None
    entry = entry_from(log, Stored(value), active is None)
    yield from load_bodies(broker, [entry])
    current = log.memory.get(number) or log.deferred_memory.get(number)
    return entry if current is None else current


def _expire(broker: Broker, entry: Entry) -> None:
    settings = entry.log.settings
    note(broker, entry, events.EXPIRED)
    if entry.log.kind == MAIN and settings.dead_letter_expired:
        settling.settle_dead_letter(broker, entry, EXPIRED_REASON, EXPIRED_DESCRIPTION, None)
    else:
        remove(broker, entry)


def prune_duplicates(broker: Broker, now: Now) -> Steps[bool]:
    """Forgets ids older than the window; True where more may be left."""
    window_ms = broker.settings.duplicate_window_ms
    history = broker.duplicates
    oldest = history.time_key(history.oldest_ms, "")
    limit = history.time_key(max(now.wall_ms - window_ms, 0), "")
    if not window_ms or limit <= oldest:
        return False
    rows = yield Scan(oldest, limit, SWEEP_ROWS)
    if rows:
        history.prune(broker.out(), rows)
    return len(rows) == SWEEP_ROWS
