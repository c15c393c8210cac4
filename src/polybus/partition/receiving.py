"""Messages go out: taken from the head under a lock or for good, or by number when deferred."""

from __future__ import annotations

from polybus.clock import Now
from polybus.errors import InvalidOperation, MessageNotFound
from polybus.partition import events, records
from polybus.partition.broker import Broker, Steps
from polybus.partition.entry import Entry, entry_from
from polybus.partition.kinds import MAIN
from polybus.partition.log import Log
from polybus.partition.peeking import peek
from polybus.partition.reading import find, let_go, load_bodies, rows_of, settled_between, whole
from polybus.partition.records import Stored
from polybus.partition.selecting import pop_selected
from polybus.partition.storing import note, remove
from polybus.rows import Row, Scan
from polybus.rules.selectors import Selector

__all__ = [
    "check_receivable",
    "load_page",
    "lock_deferred",
    "peek",
    "rows_of",
    "take",
    "take_away",
    "take_deferred",
    "take_selected",
]


def take(broker: Broker, log: Log, now: Now, holder: object | None) -> Entry | None:
    """The next message of the log, locked for `holder`; None where none is in memory and free."""
    entry = log.pop_ready(now.wall_ms)
    if entry is not None:
        broker.lock(entry, now, holder)
        log.settings.accessed_ms = now.wall_ms
    return entry


def take_away(broker: Broker, log: Log, now: Now) -> Entry | None:
    """The next message of the log, removed; it may leave only after the open output is synced."""
    entry = log.pop_ready(now.wall_ms)
    if entry is not None:
        _remove_taken(broker, entry, now)
    return entry


def take_selected(
    broker: Broker, log: Log, now: Now, index: int, selector: Selector, count: int, lock: bool
) -> list[Entry]:
    """Messages at hand that the selector wants, locked, or removed as `take_away` does."""
    entries = pop_selected(log, index, broker.token_head, now.wall_ms, selector, count)
    for entry in entries:
        if lock:
            broker.lock(entry, now, None)
            log.settings.accessed_ms = now.wall_ms
        else:
            _remove_taken(broker, entry, now)
    return entries


def _remove_taken(broker: Broker, entry: Entry, now: Now) -> None:
    broker.wall(now)
    entry.log.settings.accessed_ms = now.wall_ms
    note(broker, entry, events.COMPLETED)
    remove(broker, entry)


def load_page(broker: Broker, log: Log) -> Steps[None]:
    """Brings the next messages of the log into the window. The caller sees `log.wants_page()` first."""
    log.reading = True
    ticket, trimmed = log.removed.read_begins(), log.trimmed.read_begins()
    skipped_to, stable_end = log.skipped_to, log.stable_end
    try:
        start = records.number_key(log.active_prefix, log.paged_to + 1)
        end = records.after(log.active_prefix)
        rows = rows_of((yield Scan(start, end, log.bounds.page_entries, log.bounds.window_bytes)))
        settled = yield from settled_between(log, rows)
        entries, last, at_end = _page(log, rows, settled, stable_end)
        yield from load_bodies(broker, entries)
        for entry in entries:
            if entry.rank in log.removed:
                let_go(entry)
            else:
                log.remember(whole(entry))
        log.page_ends(skipped_to, last, at_end)
    finally:
        log.reading = False
        log.removed.read_ends(ticket)
        log.trimmed.read_ends(trimmed)


def _page(log: Log, rows: list[Row], settled: set[bytes], stable_end: int) -> tuple[list[Entry], int, bool]:
    """Entries of the rows that the window has room for, the last rank among them, and whether the log ends there.

    A store may stop anywhere for its bytes, so that a short answer proves nothing: the end is known by position.
    """
    entries: list[Entry] = []
    last = 0
    room = log.bytes_left()
    for key, value in rows:
        if room <= 0:
            return entries, last, False
        stored = Stored(value)
        last = records.number_of(key)
        if key not in settled and last not in log.removed:
            entries.append(entry_from(log, stored, False))
            room -= stored.size
        if stored.position >= stable_end:
            return entries, last, True
    return entries, last, not rows


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
    if lock and log.sessions is not None:
        raise InvalidOperation("Messages of a session are received by whoever holds the session.")
    entries = yield from find_deferred(broker, log, now, numbers, session)
    return lock_deferred(broker, log, entries, now, lock, holder)


def find_deferred(broker: Broker, log: Log, now: Now, numbers: list[int], session: str | None) -> Steps[list[Entry]]:
    """The deferred messages with these numbers, all of them free; they are not locked yet."""
    wanted = list(dict.fromkeys(numbers))
    found = yield from find(broker, log, wanted)
    missing = [number for number in wanted if not _is_free(found.get(number), now, session)]
    if missing:
        for entry in found.values():
            let_go(entry)
        raise MessageNotFound(
            f"Failed to find one or more specified messages: {missing[0]} is not deferred here, or is locked."
        )
    return [found[number] for number in wanted]


def _is_free(entry: Entry | None, now: Now, session: str | None) -> bool:
    """Expired ones are passed over: the sweep removes them."""
    if entry is None or not entry.deferred or entry.lock:
        return False
    if entry.expires_ms and entry.expires_ms <= now.wall_ms:
        return False
    return session is None or entry.session_id() == session


def lock_deferred(
    broker: Broker, log: Log, entries: list[Entry], now: Now, lock: bool, holder: object | None
) -> list[Entry]:
    for entry in entries:
        if lock:
            log.deferrals.put(entry)
            broker.lock(entry, now, holder)
        else:
            _remove_taken(broker, entry, now)
    log.settings.accessed_ms = now.wall_ms
    return entries


def check_receivable(log: Log) -> None:
    """A log that forwards everything has nothing to receive."""
    if log.kind == MAIN and log.settings.forward_to is not None:
        raise InvalidOperation(
            f"Cannot create a message receiver on '{log.settings.source}': it forwards its messages to"
            f" '{log.settings.forward_to}'."
        )
