"""What time does: locks run out, scheduled messages become active, messages expire, old ids are forgotten.

Each step works on a bounded number of rows, so that a million expired messages never hold up the loop; `next_due`
says when to call again, which is at once where there is more to do.
"""

from __future__ import annotations

from typing import Any

from polybus.clock import Now
from polybus.errors import MessageNotFound
from polybus.message.message import Message
from polybus.message.overlay import overlay_from_bytes
from polybus.partition import events, records, sending, session_verbs, settling
from polybus.partition.broker import Broker, Steps
from polybus.partition.entry import Entry
from polybus.partition.kinds import MAIN
from polybus.partition.reading import find, rows_of
from polybus.partition.records import Stored
from polybus.partition.retrying import activate as activate_deferred
from polybus.partition.sessions import Session
from polybus.partition.storing import note, remove
from polybus.partition.timetable import NOT_DUE
from polybus.promise import C, Reply
from polybus.rows import Get, Scan

EXPIRED_REASON = "TTLExpiredException"
EXPIRED_DESCRIPTION = "The message expired and was dead lettered."


def next_due(broker: Broker, now: Now) -> int:
    """Milliseconds until the broker wants to be called; NOT_DUE where nothing waits for time."""
    first_ms = broker.lock_ends.first_ms()
    for log in broker.session_logs.values():
        first_ms = min(first_ms, session_verbs.book(log).soonest_ms)
    wait = NOT_DUE if first_ms >= NOT_DUE else first_ms - now.mono_ms
    wait = min(wait, first_due_ms(broker) - now.wall_ms)
    return NOT_DUE if wait >= NOT_DUE // 2 else max(wait, 0)


def first_due_ms(broker: Broker) -> int:
    """When the wall clock makes something due, beside what is being worked on; NOT_DUE where it never does."""
    first_ms = NOT_DUE
    if not broker.schedule.walking:
        first_ms = broker.schedule.due_ms
    if not broker.expiry.walking:
        first_ms = min(first_ms, broker.expiry.due_ms)
    window_ms = broker.settings.duplicate_window_ms
    if window_ms and not broker.duplicates.pruning:
        first_ms = min(first_ms, broker.duplicates.prune_due_ms(window_ms))
    return first_ms


def expire_locks(broker: Broker, now: Now) -> list[Session]:
    """Ends the locks that have run out; gives the sessions whose holders lost them."""
    lost: list[Session] = []
    for log in list(broker.session_logs.values()):
        for session in session_verbs.book(log).expired(now.mono_ms):
            session_verbs.release(broker, log, session, now)
            lost.append(session)
    ended = broker.lock_ends.ended(now.mono_ms)
    if ended:
        broker.wall(now)
        for entry in ended:
            settling.count_delivery(broker, entry, events.LOCK_EXPIRED)
    return lost


def activate(broker: Broker, now: Now) -> Steps[None]:
    """Makes scheduled messages active whose time has come: each gets a new number."""
    table = broker.schedule
    tickets = broker.scheduled_removed.read_begins(), broker.rescheduled.read_begins()
    table.step_begins()
    try:
        yield from _activate(broker, broker.wall(now))
    except BaseException:
        table.step_fails()
        raise
    finally:
        broker.scheduled_removed.read_ends(tickets[0])
        broker.rescheduled.read_ends(tickets[1])


def _activate(broker: Broker, wall_ms: int) -> Steps[None]:
    table, limit = broker.schedule, broker.bounds.sweep_rows
    start = table.at or records.due_key(broker.prefix, table.low, 0)
    rows = rows_of((yield Scan(start, records.after(broker.prefix + records.DUE), limit)))
    due = [records.due_of(key) for key, _ in rows]
    ripe = [(due_ms, number) for due_ms, number in due if due_ms <= wall_ms]
    prefix = broker.prefix + records.SCHEDULED
    values = yield Get([records.number_key(prefix, number) for _, number in ripe])
    for (due_ms, number), value in zip(ripe, values, strict=True):
        stays = number in broker.scheduled_removed or broker.rescheduled.due(number, due_ms) != due_ms
        if isinstance(value, bytes) and not stays:
            _activate_one(broker, due_ms, number, Stored(value), wall_ms)
    if len(ripe) < len(due):
        table.step_ends(NOT_DUE, due[len(ripe)][0], b"")
    elif len(rows) == limit:
        table.step_ends(NOT_DUE, due[-1][0], rows[-1][0] + b"\x00")
    else:
        table.step_ends(NOT_DUE, NOT_DUE, b"")


def _activate_one(broker: Broker, due_ms: int, number: int, stored: Stored, wall_ms: int) -> None:
    remove_scheduled(broker, due_ms, number, stored.size)
    overlay = overlay_from_bytes(stored.overlay) if stored.overlay else None
    sending.accept(broker, Message(stored.raw, True), wall_ms, [], stored.original or number, overlay)


def remove_scheduled(broker: Broker, due_ms: int, number: int, size: int) -> None:
    batch = broker.out()
    batch.delete(records.number_key(broker.prefix + records.SCHEDULED, number))
    batch.delete(records.due_key(broker.prefix, due_ms, number))
    broker.scheduled_removed.changed(batch, number)
    broker.scheduled -= 1
    broker.scheduled_bytes -= size
    broker.size -= size


def cancel(broker: Broker, now: Now, numbers: list[int], reply: Reply[C, Any], context: C) -> Steps[None]:
    """Takes scheduled messages back, all or none."""
    found, missing = yield from still_scheduled(broker, numbers)
    if missing:
        raise MessageNotFound(f"The scheduled message {missing[0]} could not be found.")
    broker.wall(now)
    broker.settings.own.accessed_ms = now.wall_ms
    for stored in found:
        take_back(broker, stored)
    broker.out().replies.append((reply, context, None))


def take_back(broker: Broker, stored: Stored) -> None:
    """Removes a message that was found to be scheduled."""
    number, known = stored.sequence, broker.rescheduled
    remove_scheduled(broker, known.due(number, stored.expires_ms), number, known.size(number, stored.size))


def still_scheduled(broker: Broker, numbers: list[int]) -> Steps[tuple[list[Stored], list[int]]]:
    """The messages with these numbers that are scheduled, and the numbers of the others."""
    wanted = list(dict.fromkeys(numbers))
    prefix = broker.prefix + records.SCHEDULED
    found: list[Stored] = []
    missing: list[int] = []
    tickets = broker.scheduled_removed.read_begins(), broker.rescheduled.read_begins()
    try:
        values = yield Get([records.number_key(prefix, number) for number in wanted])
        for number, value in zip(wanted, values, strict=True):
            if isinstance(value, bytes) and number not in broker.scheduled_removed:
                found.append(Stored(value))
            else:
                missing.append(number)
    finally:
        broker.scheduled_removed.read_ends(tickets[0])
        broker.rescheduled.read_ends(tickets[1])
    return found, missing


def sweep(broker: Broker, now: Now) -> Steps[None]:
    """Removes or dead-letters messages that have expired, except those that are locked."""
    table = broker.expiry
    table.step_begins()
    try:
        yield from _sweep(broker, broker.wall(now))
    except BaseException:
        table.step_fails()
        raise


def _sweep(broker: Broker, wall_ms: int) -> Steps[None]:
    table, limit = broker.expiry, broker.bounds.sweep_rows
    start = table.at or records.expiry_key(broker.prefix, table.low, 0, 0)
    rows = rows_of((yield Scan(start, records.after(broker.prefix + records.EXPIRY), limit)))
    marks = [records.expiry_of(key) for key, _ in rows]
    by_log: dict[int, dict[int, int]] = {}
    for expires_ms, log_id, number in marks:
        if expires_ms <= wall_ms:
            by_log.setdefault(log_id, {})[number] = expires_ms
    left_ms = NOT_DUE
    for log_id, ripe in by_log.items():
        left_ms = min(left_ms, (yield from _expire_in(broker, log_id, ripe)))
    unripe = [expires_ms for expires_ms, _, _ in marks if expires_ms > wall_ms]
    if unripe:
        table.step_ends(left_ms, unripe[0], b"")
    elif len(rows) == limit:
        table.step_ends(left_ms, marks[-1][0], rows[-1][0] + b"\x00")
    else:
        table.step_ends(left_ms, NOT_DUE, b"")


def _expire_in(broker: Broker, log_id: int, ripe: dict[int, int]) -> Steps[int]:
    """Ends the life of a log's messages; gives the earliest expiry among those that are locked and stay."""
    left_ms = NOT_DUE
    log = broker.logs.get(log_id)
    found = {} if log is None else (yield from find(broker, log, list(ripe)))
    for number, expires_ms in ripe.items():
        entry = found.get(number)
        if entry is None:
            # Its removal writes the very same delete; a row without a message is of a log that is gone.
            broker.out().delete(records.expiry_key(broker.prefix, expires_ms, log_id, number))
        elif entry.lock:
            left_ms = min(left_ms, expires_ms)
        elif entry.expires_ms and entry.expires_ms <= broker.wall_ms:
            _expire(broker, entry)
        else:
            activate_deferred(broker, entry, "retried")
    return left_ms


def _expire(broker: Broker, entry: Entry) -> None:
    settings = entry.log.settings
    settings.totals.expired += 1
    note(broker, entry, events.EXPIRED)
    if entry.log.kind == MAIN and settings.dead_letter_expired:
        settling.dead_letter_by_broker(broker, entry, EXPIRED_REASON, EXPIRED_DESCRIPTION)
    else:
        remove(broker, entry)


def prune_duplicates(broker: Broker, now: Now) -> Steps[bool]:
    """Forgets ids older than the window; True where more may be left."""
    history, limit = broker.duplicates, broker.bounds.sweep_rows
    window_ms = broker.settings.duplicate_window_ms
    before_ms = now.wall_ms - window_ms
    if not window_ms or history.pruning or before_ms <= history.oldest_ms:
        return False
    history.pruning = True
    ticket = history.again.read_begins()
    try:
        start = history.time_key(history.oldest_ms, "") if not history.at else history.at
        rows = rows_of((yield Scan(start, history.time_key(before_ms, ""), limit)))
        if rows:
            history.prune(broker.out(), rows)
    finally:
        history.pruning = False
        history.again.read_ends(ticket)
    more = len(rows) == limit
    history.at = rows[-1][0] + b"\x00" if more else b""
    if not more:
        history.pruned_to(before_ms)
    return more
