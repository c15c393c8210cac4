"""Messages of sessions deleted in bulk: of one session by its holder, or of all the sessions that nobody holds."""

from __future__ import annotations

from typing import Final

from polybus.clock import Now
from polybus.partition import events, records
from polybus.partition.broker import Broker, Steps
from polybus.partition.entry import Entry
from polybus.partition.log import Log
from polybus.partition.reading import find, let_go, rows_of
from polybus.partition.session_verbs import book
from polybus.partition.sessions import Session
from polybus.partition.storing import note, remove
from polybus.rows import Scan

CHUNK: Final = 64
"""Messages that are looked at in one step: their bodies are read with them, and are not known to be small."""


def delete_in_sessions(
    broker: Broker, log: Log, session: Session | None, now: Now, count: int, before_ms: int
) -> Steps[int]:
    """Removes up to `count` free messages that were enqueued before a time; gives how many.

    Of each session the oldest go first. What is locked, or in a session that somebody else holds, stays.
    """
    prefix = log.session_prefix if session is None else session.prefix
    start, end = prefix, records.after(prefix)
    deleted = 0
    while deleted < count:
        rows = rows_of((yield Scan(start, end, min(CHUNK, count - deleted))))
        if not rows:
            break
        found = yield from find(broker, log, [records.number_of(key) for key, _ in rows])
        deleted += _delete(broker, log, session, now, list(found.values()), before_ms)
        start = rows[-1][0] + b"\x00"
    return deleted


def _delete(broker: Broker, log: Log, session: Session | None, now: Now, entries: list[Entry], before_ms: int) -> int:
    wall_ms = broker.wall(now)
    deleted = 0
    for entry in entries:
        if _is_free(log, session, entry, wall_ms) and entry.enqueued_ms < before_ms:
            note(broker, entry, events.DELETED)
            remove(broker, entry)
            deleted += 1
        else:
            let_go(entry)
    return deleted


def _is_free(log: Log, session: Session | None, entry: Entry, wall_ms: int) -> bool:
    if entry.lock or entry.deferred or (entry.expires_ms and entry.expires_ms <= wall_ms):
        return False
    if session is not None:
        # The hold may have ended while rows were read; a message on its way back has its turn first.
        return not session.lost and entry.sequence not in session.outstanding
    return entry.session_id() not in book(log).held
