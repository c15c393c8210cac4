"""Messages go out: taken from the head under a lock or for good, by number when deferred, or only looked at."""

from __future__ import annotations

from typing import Final

from polybus.clock import Now
from polybus.errors import InvalidOperation, MessageNotFound
from polybus.limits import PAGE_ENTRIES, WINDOW_BYTES
from polybus.message.message import Message
from polybus.message.overlay import overlay_from_bytes
from polybus.message.rendering import STATE_ACTIVE, STATE_DEFERRED, STATE_SCHEDULED, Marks
from polybus.partition import events, records
from polybus.partition.broker import Answer, Broker, Steps
from polybus.partition.entry import Entry, entry_from
from polybus.partition.log import MAIN, Log
from polybus.partition.records import Stored
from polybus.partition.storing import note, remove
from polybus.rows import Get, Row, Scan

ALL_NUMBERS: Final = 1 << 63


def take(broker: Broker, log: Log, now: Now, holder: object | None) -> Entry | None:
    """The next message of the log, locked for `holder`; None where none is in memory and free."""
    entry = log.pop_ready(now.wall_ms)
    if entry is not None:
        broker.lock(entry, now, holder)
        broker.accessed_ms = now.wall_ms
    return entry


def take_away(broker: Broker, log: Log, now: Now) -> Entry | None:
    """The next message of the log, removed; it may leave only after the open output is synced."""
    entry = log.pop_ready(now.wall_ms)
    if entry is not None:
        broker.wall(now)
        broker.accessed_ms = now.wall_ms
        note(broker, entry, events.COMPLETED)
        remove(broker, entry)
    return entry


def load_page(broker: Broker, log: Log) -> Steps[None]:
    """Brings the next messages of the log into the window. The caller sees `log.wants_page()` first."""
    log.reading = True
    log.removed.read_begins()
    try:
        start = records.number_key(log.active_prefix, log.paged_to + 1)
        rows = yield Scan(start, records.after(log.active_prefix), PAGE_ENTRIES, WINDOW_BYTES)
        settled: set[bytes] = set()
        if log.retained and rows:
            settled = yield from settled_between(log, rows)
        entries = [
            entry_from(log, Stored(value), False)
            for key, value in rows_of(rows)
            if key not in settled and records.number_of(key) not in log.removed
        ]
        yield from load_bodies(broker, entries)
    finally:
        log.reading = False
        log.removed.read_ends()
    for entry in entries:
        log.remember(entry)
        log.ready.append(entry)
    if rows:
        log.paged_to = max(log.paged_to, records.number_of(rows_of(rows[-1:])[0][0]))
    full = len(rows) >= PAGE_ENTRIES or sum(len(value) for _, value in rows_of(rows)) >= WINDOW_BYTES
    if not full and log.skipped_to <= log.paged_to:
        log.whole = True


def rows_of(answer: Answer) -> list[Row]:
    """The rows that a scan gave."""
    return [row for row in answer if isinstance(row, tuple)]


def settled_between(log: Log, rows: Answer) -> Steps[set[bytes]]:
    """Keys of the active table, among these rows, whose messages are settled and only kept for a cursor."""
    keys = [key for key, _ in rows_of(rows)]
    start = records.number_key(log.settled_prefix, records.number_of(keys[0]))
    end = records.number_key(log.settled_prefix, records.number_of(keys[-1]) + 1)
    marks = yield Scan(start, end, len(rows))
    return {log.active_prefix + key[-8:] for key, _ in rows_of(marks)}


def load_bodies(broker: Broker, entries: list[Entry]) -> Steps[None]:
    """Reads the bodies that entries refer to and are not in memory."""
    missing = broker.bodies.missing(entries)
    if missing:
        answer = yield Get(broker.bodies.keys(missing))
        broker.bodies.load(missing, answer)
    for entry in entries:
        if entry.body:
            broker.bodies.attach(entry, entry.body)


def take_deferred(
    broker: Broker,
    log: Log,
    now: Now,
    numbers: list[int],
    lock: bool,
    session: str | None,
    holder: object | None,
) -> Steps[list[Entry]]:
    """Deferred messages by number, locked or removed; MessageNotFound where one is missing, and none is touched."""
    log.deferred_removed.read_begins()
    try:
        answer = yield Get([records.number_key(log.deferred_prefix, number) for number in numbers])
        entries: list[Entry] = []
        for number, value in zip(numbers, answer, strict=True):
            if not isinstance(value, bytes) or number in log.deferred_removed:
                raise MessageNotFound(
                    f"Failed to find one or more specified messages: {number} is not deferred here."
                )
            entries.append(entry_from(log, Stored(value), True))
        yield from load_bodies(broker, entries)
        for entry in entries:
            _check_deferred(log, entry, session)
    finally:
        log.deferred_removed.read_ends()
    for entry in entries:
        if lock:
            log.deferred_memory[entry.sequence] = entry
            broker.lock(entry, now, holder)
        else:
            broker.wall(now)
            note(broker, entry, events.COMPLETED)
            remove(broker, entry)
    broker.accessed_ms = now.wall_ms
    return entries


def _check_deferred(log: Log, entry: Entry, session: str | None) -> None:
    if entry.sequence in log.deferred_removed or entry.sequence in log.deferred_memory:
        raise MessageNotFound(f"Message {entry.sequence} is locked by another receiver or was settled.")
    if session is not None and entry.session_id() != session:
        raise MessageNotFound(f"Message {entry.sequence} does not belong to session '{session}'.")


class Peeked:
    """A message that was looked at: nothing about it changed."""

    def __init__(self, message: Message, marks: Marks) -> None:
        self.message = message
        self.marks = marks


class _Found:
    """Rows by number, and the number up to which every table was read."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[bytes, int]] = {}
        self.complete_to = ALL_NUMBERS

    def add(self, rows: list[Row], state: int, limit: int, max_bytes: int) -> None:
        size = 0
        last = 0
        for _, value in rows:
            stored = Stored(value)
            self.rows[stored.sequence] = (value, state)
            last = max(last, stored.sequence)
            size += len(value)
        if len(rows) >= limit or size >= max_bytes:
            self.complete_to = min(self.complete_to, last)


def peek(
    broker: Broker, log: Log, now: Now, from_number: int, count: int, max_bytes: int, session: str | None
) -> Steps[list[Peeked]]:
    """Messages from a number on, in all states, in order of their numbers; at least one where there is one."""
    broker.accessed_ms = now.wall_ms
    while True:
        found = _Found()
        active = yield from _active_rows(log, from_number, count, max_bytes, session)
        found.add(active, STATE_ACTIVE, count, max_bytes)
        prefix = log.deferred_prefix
        rows = yield Scan(records.number_key(prefix, from_number), records.after(prefix), count, max_bytes)
        found.add(rows_of(rows), STATE_DEFERRED, count, max_bytes)
        if log.id == MAIN:
            prefix = broker.prefix + records.SCHEDULED
            rows = yield Scan(
                records.number_key(prefix, from_number), records.after(prefix), count, max_bytes
            )
            found.add(rows_of(rows), STATE_SCHEDULED, count, max_bytes)
        peeked = yield from _peeked(broker, now, found, count, max_bytes, session)
        if peeked or found.complete_to == ALL_NUMBERS:
            return peeked
        from_number = found.complete_to + 1


def _active_rows(
    log: Log, from_number: int, count: int, max_bytes: int, session: str | None
) -> Steps[list[Row]]:
    if log.by_position or session is not None:
        keys = yield from _keys_by_index(log, from_number, count, session)
        values = yield Get(keys)
        return [(key, value) for key, value in zip(keys, values, strict=True) if isinstance(value, bytes)]
    start = max(from_number, log.low())
    kept: list[Row] = []
    while True:
        first = records.number_key(log.active_prefix, start)
        rows = yield Scan(first, records.after(log.active_prefix), count, max_bytes)
        if not log.retained or not rows:
            return kept + rows_of(rows)
        settled = yield from settled_between(log, rows)
        kept += [row for row in rows_of(rows) if row[0] not in settled]
        if kept or len(rows) < count:
            return kept
        start = records.number_of(rows_of(rows[-1:])[0][0]) + 1


def _keys_by_index(log: Log, from_number: int, count: int, session: str | None) -> Steps[list[bytes]]:
    """Keys in the active table, found through the index of numbers or of a session."""
    if session is None:
        prefix = log.numbers_prefix
        rows = yield Scan(records.number_key(prefix, from_number), records.after(prefix), count)
        return [log.active_prefix + value for _, value in rows_of(rows)]
    prefix = records.session_prefix(log.session_prefix, session)
    rows = yield Scan(records.number_key(prefix, from_number), records.after(prefix), count)
    return [log.active_prefix + key[-8:] for key, _ in rows_of(rows)]


def _peeked(
    broker: Broker, now: Now, found: _Found, count: int, max_bytes: int, session: str | None
) -> Steps[list[Peeked]]:
    result: list[Peeked] = []
    size = 0
    for number in sorted(found.rows):
        if number > found.complete_to:
            break
        value, state = found.rows[number]
        stored = Stored(value)
        if state != STATE_SCHEDULED and stored.expires_ms and stored.expires_ms <= now.wall_ms:
            continue
        raw = stored.raw
        if stored.body:
            answer = yield Get(broker.bodies.keys([stored.body])[:1])
            if not isinstance(answer[0], bytes):
                continue  # settled since its row was read
            raw = records.unsealed(answer[0], "a body")
        message = Message(raw)
        if session is not None and state != STATE_ACTIVE and message.session_id != session:
            continue
        size += len(raw)
        if result and (size > max_bytes or len(result) >= count):
            break
        overlay = overlay_from_bytes(stored.overlay) if stored.overlay else None
        result.append(
            Peeked(
                message,
                Marks(
                    stored.sequence,
                    stored.enqueued_ms,
                    stored.original,
                    stored.delivery_count,
                    state,
                    0,
                    overlay,
                ),
            )
        )
    return result


def check_receivable(log: Log) -> None:
    """A log that forwards everything has nothing to receive."""
    if log.kind == MAIN and log.settings.forward_to is not None:
        raise InvalidOperation(
            f"Cannot create a message receiver on '{log.settings.source}': it forwards its messages to"
            f" '{log.settings.forward_to}'."
        )
