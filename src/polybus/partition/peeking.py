"""Looking at messages without touching them: active, deferred and scheduled ones together, in order of number."""

from __future__ import annotations

from typing import Final

from polybus.clock import Now
from polybus.message.message import GROUP_ID, Message
from polybus.message.overlay import overlay_from_bytes
from polybus.message.peeked import Peeked
from polybus.message.rendering import STATE_ACTIVE, STATE_DEFERRED, STATE_SCHEDULED, Marks, partition_key_of
from polybus.partition import records
from polybus.partition.broker import Broker, Steps
from polybus.partition.kinds import MAIN
from polybus.partition.log import Log
from polybus.partition.reading import scan, settled_between
from polybus.partition.records import Stored
from polybus.rows import Get

ALL_NUMBERS: Final = 1 << 63
GET_ROWS: Final = 64
"""Messages that are read at once by key: bounded, since their sizes are not known before."""


KEPT_ROWS: Final = 256
"""Rows that are read at once where cursors keep settled ones: there can be many between two that are shown."""
MARKS_BYTES: Final = 256
"""The most that the broker's header and annotations add to a message in a reply, and the reply's own frame for it,
besides the session's id, which they repeat as its key."""


class _Found:
    """Records by number, and the number up to which every table was read."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[Stored, int]] = {}
        self.complete_to = ALL_NUMBERS

    def add(self, values: list[bytes], state: int) -> None:
        for value in values:
            stored = Stored(value)
            self.rows[stored.sequence] = (stored, state)

    def ends_at(self, number: int) -> None:
        self.complete_to = min(self.complete_to, number)


def peek(
    broker: Broker, log: Log, now: Now, from_number: int, count: int, max_bytes: int, session: str | None
) -> Steps[list[Peeked]]:
    """Messages from a number on, in all states, in order of their numbers; at least one where there is one."""
    log.settings.accessed_ms = now.wall_ms
    count, max_bytes = max(count, 1), max(max_bytes, 1)
    while True:
        found = _Found()
        if broker.settings.topic and log.id == MAIN:
            pass  # what a topic's own log holds is only there for its cursors
        elif log.by_position or session is not None:
            yield from _indexed(log, found, from_number, count, max_bytes, session)
        else:
            yield from _active(log, found, from_number, count, max_bytes)
        yield from _table(found, log.deferred_prefix, STATE_DEFERRED, from_number, count, max_bytes)
        if log.id == MAIN:
            prefix = broker.prefix + records.SCHEDULED
            yield from _table(found, prefix, STATE_SCHEDULED, from_number, count, max_bytes)
        peeked = yield from _peeked(broker, now, found, count, max_bytes, session)
        if peeked or found.complete_to == ALL_NUMBERS:
            return peeked
        from_number = found.complete_to + 1


def _table(found: _Found, prefix: bytes, state: int, first: int, count: int, max_bytes: int) -> Steps[None]:
    start = records.number_key(prefix, first)
    rows, complete = yield from scan(start, records.after(prefix), count, max_bytes)
    found.add([value for _, value in rows], state)
    if not complete:
        found.ends_at(records.number_of(rows[-1][0]))


def _active(log: Log, found: _Found, first: int, count: int, max_bytes: int) -> Steps[None]:
    start = records.number_key(log.active_prefix, max(first, log.stable_low))
    if log.retained:
        count = max(count, KEPT_ROWS)
    ticket = log.trimmed.read_begins()
    try:
        rows, complete = yield from scan(start, records.after(log.active_prefix), count, max_bytes)
        settled = yield from settled_between(log, rows)
    finally:
        log.trimmed.read_ends(ticket)
    found.add([value for key, value in rows if key not in settled], STATE_ACTIVE)
    if not complete:
        found.ends_at(records.number_of(rows[-1][0]))


def _indexed(log: Log, found: _Found, first: int, count: int, max_bytes: int, session: str | None) -> Steps[None]:
    """Active messages found through the index of numbers, or of a session."""
    prefix = log.numbers_prefix
    if session is not None:
        prefix = records.session_prefix(log.session_prefix, session)
    rows, complete = yield from scan(records.number_key(prefix, first), records.after(prefix), count, max_bytes)
    size = 0
    for place in range(0, len(rows), GET_ROWS):
        if size >= max_bytes:
            found.ends_at(records.number_of(rows[place - 1][0]))
            return
        keys = [_active_key(log, key, value) for key, value in rows[place : place + GET_ROWS]]
        values = [value for value in (yield Get(keys)) if isinstance(value, bytes)]
        found.add(values, STATE_ACTIVE)
        size += sum(len(value) for value in values)
    if not complete:
        found.ends_at(records.number_of(rows[-1][0]))


def _active_key(log: Log, key: bytes, value: bytes) -> bytes:
    rank = records.unsealed_number(value, "an index row") if value else records.number_of(key)
    return records.number_key(log.active_prefix, rank)


def _peeked(
    broker: Broker, now: Now, found: _Found, count: int, max_bytes: int, session: str | None
) -> Steps[list[Peeked]]:
    result: list[Peeked] = []
    size = 0
    for number in sorted(found.rows):
        stored, state = found.rows[number]
        if number > found.complete_to or len(result) >= count:
            break
        if state != STATE_SCHEDULED and stored.expires_ms and stored.expires_ms <= now.wall_ms:
            continue
        size += _reply_bytes(stored)
        if result and size > max_bytes:
            break
        raw = yield from _raw(broker, stored)
        if raw is not None:
            peeked = _shown(stored, Message(raw, True), state)
            size += peeked.size - _reply_bytes(stored)
            if session is None or _session_of(peeked) == session:
                result.append(peeked)
    return result


def _reply_bytes(stored: Stored) -> int:
    return stored.size + len(stored.overlay) + MARKS_BYTES


def _raw(broker: Broker, stored: Stored) -> Steps[bytes | None]:
    """The message's bytes; None where it was settled since its record was read."""
    if not stored.body:
        return stored.raw
    answer = yield Get(broker.bodies.keys([stored.body])[:1])
    return records.unsealed(answer[0], "a body") if isinstance(answer[0], bytes) else None


def _shown(stored: Stored, message: Message, state: int) -> Peeked:
    overlay = overlay_from_bytes(stored.overlay) if stored.overlay else None
    count = stored.delivery_count
    marks = Marks(stored.sequence, stored.enqueued_ms, stored.original, count, state, 0, overlay)
    key = partition_key_of(message, overlay)
    return Peeked(message, marks, _reply_bytes(stored) + (0 if key is None else len(key.encode())))


def _session_of(peeked: Peeked) -> object:
    overlay = peeked.marks.overlay
    if overlay is not None and GROUP_ID in overlay.fields:
        return overlay.fields[GROUP_ID]
    return peeked.message.session_id
