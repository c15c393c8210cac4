"""Sessions: who holds one, what it gives next, its state, and the list of them."""

from __future__ import annotations

from typing import Any, Final

from polybus.clock import Now
from polybus.errors import SessionCannotBeLocked, SessionLockLost
from polybus.partition import events, receiving, records, settling
from polybus.partition.broker import Broker, Steps
from polybus.partition.entry import Entry, entry_from
from polybus.partition.log import Log
from polybus.partition.reading import let_go, load_bodies, rows_of, whole
from polybus.partition.records import Stored
from polybus.partition.sessions import Session, SessionBook
from polybus.partition.storing import note, remove
from polybus.promise import C, Reply
from polybus.rows import Get, Scan

SCAN_SESSIONS: Final = 64
"""Sessions that one scan looks for: each costs a seek."""
EMPTY_SESSIONS: Final = 64
"""Sessions that one step may find to have nothing: there can be many where everything in them has expired."""
LIST_ROWS: Final = 512
LIST_BYTES: Final = 1 << 20
"""States that one scan of the list reads; a state can be as large as a message."""


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
    log.settings.accessed_ms = now.wall_ms
    try:
        while session.first(now.wall_ms) is None and session.wants_page():
            yield from load_page(broker, log, session)
    except BaseException:
        if not session.lost:
            sessions.let_go(session)
        raise
    if session.lost:
        raise _lost(session)
    return session


def accept_next(broker: Broker, log: Log, now: Now, holder: object) -> Steps[Session | None]:
    """Locks the session that has waited longest; None where no free session has messages.

    None, too, where many had only messages whose time is over: then others wait still, and are looked at next time.
    """
    sessions = book(log)
    for _ in range(EMPTY_SESSIONS):
        while sessions.wants_scan():
            yield from scan_sessions(log)
        session_id = next(iter(sessions.waiting), None)
        if session_id is None:
            return None
        try:
            session = yield from accept(broker, log, session_id, now, holder)
        except SessionLockLost:
            continue
        if session.has_ready():
            return session
        sessions.let_go(session)
    return None


def _lost(session: Session) -> SessionLockLost:
    return SessionLockLost(f"The session lock has expired on the session '{session.id}'.")


def scan_sessions(log: Log) -> Steps[None]:
    """Finds the next sessions that have messages, hopping from one to the next."""
    sessions = book(log)
    sessions.scanning = True
    sessions.restarted = False
    end = records.after(log.session_prefix)
    start = sessions.scanned_to or log.session_prefix
    try:
        for _ in range(SCAN_SESSIONS):
            rows = rows_of((yield Scan(start, end, 1)))
            if sessions.restarted:
                return
            if not rows:
                sessions.scan_done = True
                return
            session_id = records.session_of(rows[0][0], log.session_prefix)
            sessions.found(session_id)
            start = records.after(records.session_prefix(log.session_prefix, session_id))
            sessions.scanned_to = start
    finally:
        sessions.scanning = False
        if log.watcher is not None and sessions.waiting:
            log.watcher.available()  # others may have asked meanwhile and have been told to wait


def load_page(broker: Broker, log: Log, session: Session) -> Steps[None]:
    """Brings the session's next messages into memory."""
    session.reading = True
    ticket = log.removed.read_begins()
    skipped_to = session.skipped_to
    limit = log.bounds.session_entries
    try:
        start = records.number_key(session.prefix, session.paged_to + 1)
        rows = rows_of((yield Scan(start, records.after(session.prefix), limit)))
        ranks = [records.number_of(key) for key, _ in rows]
        last = session.paged_to
        room = session.bytes_left()
        read: list[Entry] = []
        values = yield Get([records.number_key(log.active_prefix, rank) for rank in ranks])
        for rank, value in zip(ranks, values, strict=True):
            if room <= 0:
                break
            last = rank
            if isinstance(value, bytes):
                read.append(entry_from(log, Stored(value), False))
                room -= read[-1].size
        yield from load_bodies(broker, read)
        _take_in(log, session, read)
        if not session.lost:
            session.page_ends(skipped_to, last, len(rows) < limit and (not ranks or last == ranks[-1]))
    finally:
        session.reading = False
        log.removed.read_ends(ticket)


def _take_in(log: Log, session: Session, read: list[Entry]) -> None:
    """Puts the entries of a page into the session's window; one on its way back is still in memory, and newer."""
    for entry in read:
        known = log.memory.get(entry.rank)
        if known is not None or entry.rank in log.removed or session.lost:
            let_go(entry)
        if session.lost or entry.rank in log.removed:
            continue
        if known is None:
            log.memory[entry.rank] = known = whole(entry)
        if known.returning:
            session.awaits(known)
        else:
            session.append(known)


def take(broker: Broker, session: Session, now: Now, lock: bool) -> Entry | None:
    """The session's next message, in strict order, under the session's lock or removed."""
    if session.lost or session.until_ms <= now.mono_ms or session.next(now.wall_ms) is None:
        return None
    entry = session.pop_ready(now.wall_ms)
    assert entry is not None, "the session has a next message"
    entry.log.settings.accessed_ms = now.wall_ms
    if not lock:
        broker.wall(now)
        note(broker, entry, events.COMPLETED)
        remove(broker, entry)
    else:
        _lock(broker, session, entry, now)
    return entry


def _lock(broker: Broker, session: Session, entry: Entry, now: Now) -> None:
    """Locks an entry for as long as its session is."""
    broker.lock(entry, now, session.holder)
    entry.locked_until_ms = session.until_ms
    entry.locked_until_wall_ms = session.until_wall_ms
    session.outstanding[entry.sequence] = entry


def require_held(log: Log, session_id: str, now: Now, holder: object | None = None) -> Session:
    """The session, held and not run out; SessionLockLost otherwise."""
    session = book(log).held.get(session_id)
    if session is None or session.until_ms <= now.mono_ms or (holder is not None and session.holder is not holder):
        raise SessionLockLost(f"The session lock has expired on the session '{session_id}', or was never held.")
    return session


def renew(log: Log, session: Session, now: Now) -> int:
    """Extends the session's lock, and with it the locks of its messages; gives the new end in wall time."""
    session.until_ms = now.mono_ms + log.settings.lock_ms
    session.until_wall_ms = now.wall_ms + log.settings.lock_ms
    book(log).renewed(session)
    for entry in session.outstanding.values():
        if entry.lock:
            entry.locked_until_ms = session.until_ms
            entry.locked_until_wall_ms = session.until_wall_ms
    return session.until_wall_ms


def release(broker: Broker, log: Log, session: Session, now: Now, count: bool = True) -> None:
    """Ends the hold: what was delivered and not settled comes back, its delivery counted."""
    sessions = book(log)
    if session.lost:
        return
    broker.wall(now)
    sessions.let_go(session)
    for number in sorted(session.outstanding):
        entry = session.outstanding[number]
        if entry.lock and count:
            settling.count_delivery(broker, entry, events.LOCK_EXPIRED)
        elif entry.lock:
            settling.give_back(broker, entry)
    if log.watcher is not None and sessions.has_waiting():
        log.watcher.available()


def set_state(
    broker: Broker, log: Log, session: Session, state: bytes | None, now: Now, reply: Reply[C, Any], context: C
) -> Steps[None]:
    """Stores a session's state, or clears it."""
    old = yield from stored_state(log, session.id)
    if session.lost:
        raise _lost(session)
    key = records.session_prefix(log.state_prefix, session.id)
    value = None if state is None else records.sealed(broker.wall(now).to_bytes(8, "big") + state)
    batch = broker.out()
    if value is None:
        batch.delete(key)
    else:
        batch.put(key, value)
    broker.size += len(value or b"") - len(old or b"")
    states = book(log).states
    states.values[session.id] = value
    states.changed(batch, session.id)
    log.settings.accessed_ms = now.wall_ms
    batch.replies.append((reply, context, None))


def get_state(log: Log, session_id: str) -> Steps[bytes | None]:
    value = yield from stored_state(log, session_id)
    return None if value is None else records.unsealed(value, "a session's state")[8:]


def stored_state(log: Log, session_id: str) -> Steps[bytes | None]:
    """The row of a session's state, as it is or will be when everything is synced."""
    states = book(log).states
    ticket = states.read_begins()
    try:
        answer = yield Get([records.session_prefix(log.state_prefix, session_id)])
        if session_id in states:
            return states.values[session_id]
    finally:
        states.read_ends(ticket)
    value = answer[0]
    return value if isinstance(value, bytes) else None


def list_sessions(log: Log, after: str | None, limit: int, updated_after_ms: int | None) -> Steps[list[str]]:
    """Ids of sessions in order: with messages or state, or only those whose state was updated since."""
    found: dict[str, None] = {}
    prefix = log.state_prefix
    start = prefix if after is None else records.after(records.session_prefix(prefix, after))
    while len(found) < limit:
        rows = rows_of((yield Scan(start, records.after(prefix), LIST_ROWS, LIST_BYTES)))
        if not rows:
            break
        for key, value in rows:
            updated_ms = int.from_bytes(records.unsealed(value, "a session's state")[:8], "big")
            if updated_after_ms is None or updated_ms > updated_after_ms:
                found[records.session_of(key, prefix)] = None
            start = key + b"\x00"
    if updated_after_ms is None:
        yield from _list_with_messages(log, after, limit, found)
    return sorted(found, key=listing_order)[:limit]


def listing_order(session_id: str) -> tuple[int, bytes]:
    text = session_id.encode()
    return len(text), text


def _list_with_messages(log: Log, after: str | None, limit: int, found: dict[str, None]) -> Steps[None]:
    prefix = log.session_prefix
    start = prefix if after is None else records.after(records.session_prefix(prefix, after))
    for _ in range(limit):
        rows = rows_of((yield Scan(start, records.after(prefix), 1)))
        if not rows:
            return
        session_id = records.session_of(rows[0][0], prefix)
        found[session_id] = None
        start = records.after(records.session_prefix(prefix, session_id))


def take_deferred(
    broker: Broker, log: Log, session: Session, now: Now, numbers: list[int], lock: bool
) -> Steps[list[Entry]]:
    """Deferred messages of a held session, under the session's lock."""
    entries = yield from receiving.find_deferred(broker, log, now, numbers, session.id)
    if session.lost or session.until_ms <= now.mono_ms:
        for entry in entries:
            let_go(entry)
        raise _lost(session)
    receiving.lock_deferred(broker, log, entries, now, lock, session.holder)
    if lock:
        for entry in entries:
            entry.locked_until_ms = session.until_ms
            entry.locked_until_wall_ms = session.until_wall_ms
            session.outstanding[entry.sequence] = entry
    return entries
