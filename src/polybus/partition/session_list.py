"""The list of sessions as it truly is: how many messages each has, who holds it and until when, its state."""

from __future__ import annotations

from polybus.partition import records, session_verbs
from polybus.partition.broker import Steps
from polybus.partition.data import ListedSession
from polybus.partition.log import Log
from polybus.partition.reading import rows_of
from polybus.partition.session_verbs import LIST_ROWS, book, stored_state
from polybus.rows import Scan


def list_sessions(log: Log, after: str | None, limit: int) -> Steps[list[ListedSession]]:
    """Sessions that have messages, a state or a holder, in a stable order, behind one that is given."""
    ids = yield from session_verbs.list_sessions(log, after, limit, None)
    ids = _with_held(log, ids, after, limit)
    found: list[ListedSession] = []
    for session_id in ids:
        listed = ListedSession(session_id, (yield from _count(log, session_id)))
        value = yield from stored_state(log, session_id)
        if value is not None:
            payload = records.unsealed(value, "a session's state")
            listed.state_updated_ms, listed.state_bytes = int.from_bytes(payload[:8], "big"), len(payload) - 8
        _note_holder(log, listed)
        found.append(listed)
    return found


def _with_held(log: Log, ids: list[str], after: str | None, limit: int) -> list[str]:
    """Those that are held count too, though they may have neither messages nor a state."""
    order = session_verbs.listing_order
    first = (0, b"") if after is None else order(after)
    held = [each for each in book(log).held if order(each) > first or after is None]
    return sorted({*ids, *held}, key=order)[:limit]


def _count(log: Log, session_id: str) -> Steps[int]:
    prefix = records.session_prefix(log.session_prefix, session_id)
    start, end, count = prefix, records.after(prefix), 0
    while True:
        rows = rows_of((yield Scan(start, end, LIST_ROWS)))
        count += len(rows)
        if len(rows) < LIST_ROWS:
            return count
        start = rows[-1][0] + b"\x00"


def _note_holder(log: Log, listed: ListedSession) -> None:
    session = book(log).held.get(listed.id)
    if session is not None:
        listed.locked = len(session.outstanding)
        listed.holder = str(session.holder)
        listed.locked_until_ms = session.until_wall_ms
