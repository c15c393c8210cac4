"""Messages taken by number and moved, changed or not, to another place; and messages deleted in bulk."""

from __future__ import annotations

from typing import Any

from polybus.clock import Now
from polybus.errors import MessageTooLarge
from polybus.message.edit import Edit
from polybus.message.message import Message, with_body
from polybus.message.overlay import Overlay
from polybus.partition import events, records, transfers
from polybus.partition.broker import Broker, Steps
from polybus.partition.data import Moved
from polybus.partition.entry import Entry
from polybus.partition.log import Log
from polybus.partition.reading import find, let_go, rows_of
from polybus.partition.records import Stored
from polybus.partition.settling import forward_entry
from polybus.partition.storing import note, remove
from polybus.partition.transfers import MOVED
from polybus.partition.upkeep import remove_scheduled
from polybus.promise import C, Reply
from polybus.rows import Get, Scan


def move(
    broker: Broker,
    log: Log,
    now: Now,
    numbers: list[int],
    changed: dict[int, Message],
    edits: dict[int, Edit],
    destination: str,
    subscription: int,
    reply: Reply[C, Any],
    context: C,
) -> Steps[None]:
    """Takes messages out of a log and puts them on their way, in one batch; replies with what was moved.

    `changed` holds new messages for some of the numbers, `edits` what is altered of others; a `subscription` other
    than 0 is the only one that gets them at a destination topic. Where the destination cannot take one of them,
    none is moved.
    """
    wanted = list(dict.fromkeys(numbers))
    found = yield from find(broker, log, wanted)
    result = Moved([], [number for number in wanted if number not in found], [])
    leaving: list[tuple[Entry, Entry, tuple[int, int]]] = []
    try:
        for number, entry in found.items():
            if entry.lock:
                result.locked.append(number)
            else:
                moving = _in_transit(log, entry, changed.get(number), edits.get(number), subscription)
                route = broker.router.route(destination, moving)
                leaving.append((entry, moving, route))
                result.moved.append(number)
    except BaseException:
        for entry in found.values():
            let_go(entry)
        raise
    broker.wall(now)
    for entry, moving, route in leaving:
        transfers.dispatch(broker, log, moving, route)
        note(broker, entry, events.DELETED, "moved")
        remove(broker, entry)
    broker.out().replies.append((reply, context, result))


def _in_transit(log: Log, entry: Entry, message: Message | None, edit: Edit | None, subscription: int) -> Entry:
    """The message as it travels: a changed one is new but for its number, and hops are counted anew."""
    overlay = Overlay() if message is not None or entry.overlay is None else entry.overlay.copy()
    message = message or entry.loaded()
    if edit is not None:
        overlay.change(edit.application)
        overlay.fields.update(edit.fields)
        if edit.body is not None:
            message = with_body(message, edit.body)
            if message.size > edit.largest:
                raise MessageTooLarge(
                    f"Message {entry.sequence} would have {message.size} bytes; the limit is {edit.largest}."
                )
    overlay.hops = 0
    overlay.application[MOVED] = subscription
    original = entry.original or entry.sequence
    return Entry(log, entry.sequence, message, entry.enqueued_ms, 0, original, overlay, message.size)


def send_on(broker: Broker, log: Log, now: Now, at: bytes = b"") -> Steps[bytes]:
    """Puts some messages on their way that lay in a log before it forwarded; gives where to go on, nothing at the end.

    What is locked goes when its lock ends; what is deferred stays.
    """
    destination = log.settings.forward_to
    if destination is None:
        return b""
    start = at or records.number_key(log.active_prefix, log.stable_low)
    end, bounds = records.after(log.active_prefix), broker.bounds
    rows = rows_of((yield Scan(start, end, bounds.sweep_rows, bounds.window_bytes)))
    if not rows:
        return b""
    found = yield from find(broker, log, [Stored(value).sequence for _, value in rows])
    wall_ms = broker.wall(now)
    for entry in found.values():
        if entry.lock or entry.deferred or (entry.expires_ms and entry.expires_ms <= wall_ms):
            let_go(entry)
        else:
            forward_entry(broker, entry, destination)
    return rows[-1][0] + b"\x00"


def undo(broker: Broker, keys: list[bytes]) -> Steps[int]:
    """Removes messages whose send was in doubt and has been taken over by another partition."""
    undone = 0
    at = len(broker.prefix)
    for key, value in zip(keys, (yield Get(keys)), strict=True):
        if not isinstance(value, bytes):
            continue
        table = key[at : at + 1]
        stored = Stored(value)
        if table == records.ACTIVE:
            undone += yield from _undo_entry(broker, key, stored)
        elif table == records.SCHEDULED:
            remove_scheduled(broker, stored.expires_ms, stored.sequence, stored.size)
            undone += 1
        elif table == records.OUTBOX:
            broker.out().delete(key)
            broker.transfers -= 1
            broker.size -= stored.size
            undone += 1
    return undone


def _undo_entry(broker: Broker, key: bytes, stored: Stored) -> Steps[int]:
    log = broker.logs.get(int.from_bytes(key[-12:-8], "big"))
    if log is None:
        return 0
    found = yield from find(broker, log, [stored.sequence])
    entry = found.get(stored.sequence)
    if entry is not None:
        note(broker, entry, events.DELETED, "rerouted")
        remove(broker, entry)
        return 1
    return (yield from _undo_kept(broker, log, records.number_of(key), stored))


def _undo_kept(broker: Broker, log: Log, rank: int, stored: Stored) -> Steps[int]:
    """What a topic's own log holds was never live: only its cursors would have seen it."""
    mark = records.number_key(log.settled_prefix, rank)
    if (yield Get([mark]))[0] is None or not broker.settings.topic or log.id != 0:
        return 0
    batch = broker.out(log)
    batch.delete(mark)
    batch.delete(records.number_key(log.active_prefix, rank))
    log.retained -= 1
    log.retained_bytes -= stored.size
    return 1


def delete_before(broker: Broker, log: Log, now: Now, count: int, before_ms: int) -> list[Entry]:
    """Removes up to `count` free messages in memory that were enqueued before a time, the oldest first."""
    deleted: list[Entry] = []
    broker.wall(now)
    while len(deleted) < count:
        entry = log.first(now.wall_ms)
        if entry is None or entry.enqueued_ms >= before_ms:
            break
        log.pop_ready(now.wall_ms)
        note(broker, entry, events.DELETED)
        remove(broker, entry)
        deleted.append(entry)
    return deleted
