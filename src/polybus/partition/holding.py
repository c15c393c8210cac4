"""Sessions: who holds one, what it gives next, its state, and the list of them."""

from __future__ import annotations

from typing import Final

from polybus.clock import Now
from polybus.errors import SessionCannotBeLocked, SessionLockLost
from polybus.limits import PAGE_ENTRIES
from polybus.partition import events, receiving, records, settling
from polybus.partition.broker import Answer, Broker, Steps
from polybus.partition.entry import Entry, entry_from
from polybus.partition.log import Log
from polybus.partition.output import Reply
from polybus.partition.receiving import load_bodies, rows_of
from polybus.partition.records import Stored
from polybus.partition.sessions import Session, SessionBook
from polybus.partition.storing import note, remove
from polybus.rows import Get, Scan

SCAN_SESSIONS: Final = 64
"""Sessions that one scan looks for: each costs a seek."""


def book(log: Log) -> SessionBook:
    assert log.sessions is not None, "the log has no sessions"
    return log.sessions


def accept(broker: Broker, log: Log, session_id: str, now: Now, holder: object) -> Steps[Session]:
    """Locks a named session for the holder, whether it has messages or not."""
    sessions = book(log)
    if session_id in sessions.held:
        raise SessionCannotBeLocked(
            f"The requested session '{session_id}' cannot be accepted. It may be locked by another receiver."
        )
    lock_ms = log.settings.lock_ms
    session = sessions.hold(session_id, holder, now.mono_ms + lock_ms, now.wall_ms + lock_ms)
    broker.accessed_ms = now.wall_ms
    try:
        yield from load_page(broker, log, session)
    except BaseException:
        sessions.let_go(session)
        raise
    return session


def accept_next(broker: Broker, log: Log, now: Now, holder: object) -> Steps[Session | None]:
    """Locks the session that has waited longest; None where no free session has messages."""
    sessions = book(log)
    while True:
        while sessions.wants_scan():
            yield from scan_sessions(log)
        session_id = next(iter(sessions.waiting), None)
        if session_id is None:
            return None
        session = yield from accept(broker, log, session_id, now, holder)
        if session.has_ready() and not session.lost:
            return session
        if session_id in sessions.held:
            sessions.let_go(session)
        if not session.outstanding:
            sessions.waiting.pop(session_id, None)


def scan_sessions(log: Log) -> Steps[None]:
    """Finds the next sessions that have messages, hopping from one to the next."""
    sessions = book(log)
    sessions.scanning = True
    end = records.after(log.session_prefix)
    start = sessions.scanned_to or log.session_prefix
    try:
        for _ in range(SCAN_SESSIONS):
            rows = yield Scan(start, end, 1)
            if not rows:
                sessions.scan_done = True
                return
            key = rows_of(rows)[0][0]
            session_id = records.session_of(key, log.session_prefix)
            sessions.found(session_id)
            start = records.after(records.session_prefix(log.session_prefix, session_id))
            sessions.scanned_to = start
    finally:
        sessions.scanning = False


def load_page(broker: Broker, log: Log, session: Session) -> Steps[None]:
    """Brings the session's next messages into memory."""
    session.reading = True
    log.removed.read_begins()
    try:
        start = records.number_key(session.prefix, session.paged_to + 1)
        rows = yield Scan(start, records.after(session.prefix), PAGE_ENTRIES)
        numbers = [records.number_of(key) for key, _ in rows_of(rows)]
        values = yield Get([records.number_key(log.active_prefix, number) for number in numbers])
        entries, read = _page_entries(log, session, numbers, values)
        yield from load_bodies(broker, read)
    finally:
        session.reading = False
        log.removed.read_ends()
    for entry in entries:
        session.ready.append(entry)
        log.memory[entry.rank] = entry
    if numbers:
        session.paged_to = max(session.paged_to, numbers[-1])
    if len(rows) < PAGE_ENTRIES and session.skipped_to <= session.paged_to:
        session.whole = True


def _page_entries(
    log: Log, session: Session, numbers: list[int], values: Answer
) -> tuple[list[Entry], list[Entry]]:
    """The page's entries in order, and those of them that were read; one on its way back is still in memory."""
    entries: list[Entry] = []
    read: list[Entry] = []
    for number, value in zip(numbers, values, strict=True):
        if not isinstance(value, bytes) or number in log.removed or number in session.outstanding:
            continue
        entry = log.memory.get(number)
        if entry is None:
            entry = entry_from(log, Stored(value), False)
            read.append(entry)
        entries.append(entry)
    return entries, read


def take(broker: Broker, session: Session, now: Now, lock: bool) -> Entry | None:
    """The session's next message, in strict order, under the session's lock or removed."""
    entry = session.pop_ready(now.wall_ms)
    if entry is None:
        return None
    broker.accessed_ms = now.wall_ms
    if not lock:
        broker.wall(now)
        note(broker, entry, events.COMPLETED)
        remove(broker, entry)
        return entry
    broker.lock(entry, now, session.holder)
    entry.locked_until_ms = session.until_ms
    entry.locked_until_wall_ms = session.until_wall_ms
    session.outstanding[entry.sequence] = entry
    return entry


def holding(log: Log, session_id: str, now: Now, holder: object | None = None) -> Session:
    """The session, held and not run out; SessionLockLost otherwise."""
    session = book(log).held.get(session_id)
    if (
        session is None
        or session.until_ms <= now.mono_ms
        or (holder is not None and session.holder is not holder)
    ):
        raise SessionLockLost(
            f"The session lock has expired on the session '{session_id}', or was never held."
        )
    return session


def renew(log: Log, session: Session, now: Now) -> int:
    """Extends the session's lock, and with it the locks of its messages; gives the new end in wall time."""
    session.until_ms = now.mono_ms + log.settings.lock_ms
    session.until_wall_ms = now.wall_ms + log.settings.lock_ms
    for entry in session.outstanding.values():
        entry.locked_until_ms = session.until_ms
        entry.locked_until_wall_ms = session.until_wall_ms
    return session.until_wall_ms


def release(broker: Broker, log: Log, session: Session, now: Now, count: bool = True) -> None:
    """Ends the hold: what was delivered and not settled comes back, its delivery counted."""
    sessions = book(log)
    if session.lost:
        return
    broker.wall(now)
    outstanding = [session.outstanding[number] for number in sorted(session.outstanding)]
    for entry in sessions.let_go(session):
        if entry.body:
            broker.bodies.detach(entry)
    for entry in outstanding:
        if entry.lock:
            if count:
                settling.count_delivery(broker, entry, events.LOCK_EXPIRED)
            else:
                broker.unlock(entry)
                sessions.arrive(entry)
    if log.watcher is not None and sessions.has_waiting():
        log.watcher.available()


def set_state(
    broker: Broker, log: Log, session: Session, state: bytes | None, now: Now, reply: Reply, context: object
) -> Steps[None]:
    """Stores a session's state, or clears it."""
    key = records.session_prefix(log.state_prefix, session.id)
    answer = yield Get([key])
    old = answer[0]
    batch = broker.out()
    if isinstance(old, bytes):
        broker.size -= len(old)
    if state is None:
        batch.delete(key)
    else:
        value = records.sealed(broker.wall(now).to_bytes(8, "big") + state)
        batch.put(key, value)
        broker.size += len(value)
    broker.accessed_ms = now.wall_ms
    batch.replies.append((reply, context, None))


def get_state(log: Log, session_id: str) -> Steps[bytes | None]:
    answer = yield Get([records.session_prefix(log.state_prefix, session_id)])
    value = answer[0]
    return records.unsealed(value, "a session's state")[8:] if isinstance(value, bytes) else None


def list_sessions(log: Log, after: str | None, limit: int, updated_after_ms: int | None) -> Steps[list[str]]:
    """Ids of sessions in order: with messages or state, or only those whose state was updated since."""
    found: dict[str, None] = {}
    prefix = log.state_prefix
    start = prefix if after is None else records.after(records.session_prefix(prefix, after))
    while len(found) < limit:
        rows = yield Scan(start, records.after(prefix), PAGE_ENTRIES)
        for key, value in rows_of(rows):
            updated_ms = int.from_bytes(records.unsealed(value, "a session's state")[:8], "big")
            if updated_after_ms is None or updated_ms > updated_after_ms:
                found[records.session_of(key, prefix)] = None
            start = key + b"\x00"
        if len(rows) < PAGE_ENTRIES:
            break
    if updated_after_ms is None:
        yield from _list_with_messages(log, after, limit, found)
    return sorted(found, key=_listing_order)[:limit]


def _listing_order(session_id: str) -> tuple[int, bytes]:
    text = session_id.encode()
    return len(text), text


def _list_with_messages(log: Log, after: str | None, limit: int, found: dict[str, None]) -> Steps[None]:
    prefix = log.session_prefix
    start = prefix if after is None else records.after(records.session_prefix(prefix, after))
    for _ in range(limit):
        rows = yield Scan(start, records.after(prefix), 1)
        if not rows:
            return
        session_id = records.session_of(rows_of(rows)[0][0], prefix)
        found[session_id] = None
        start = records.after(records.session_prefix(prefix, session_id))


def take_deferred(
    broker: Broker, log: Log, session: Session, now: Now, numbers: list[int], lock: bool
) -> Steps[list[Entry]]:
    """Deferred messages of a held session, under the session's lock."""
    entries = yield from receiving.take_deferred(broker, log, now, numbers, lock, session.id, session.holder)
    if lock:
        for entry in entries:
            entry.locked_until_ms = session.until_ms
            entry.locked_until_wall_ms = session.until_wall_ms
            session.outstanding[entry.sequence] = entry
    return entries
