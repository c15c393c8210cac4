"""Messages on their way to another entity: the outbox of one partition and the inbox of the next.

What enters the outbox has its destination partition fixed and a number that only grows. The destination writes
the message and the number it has seen from this source in one batch, and ignores what it has seen; the source
removes what was taken over. So every message arrives exactly once, in order for each pair, whatever crashes.
"""

from __future__ import annotations

from typing import Final

from polybus.clock import Now
from polybus.errors import BusError
from polybus.limits import FORWARD_HOPS
from polybus.message.overlay import (
    DEAD_LETTER_DESCRIPTION,
    DEAD_LETTER_REASON,
    NO_TTL,
)
from polybus.partition import records
from polybus.partition.broker import Broker, Steps
from polybus.partition.data import OutboxMessage, transfer_from
from polybus.partition.entry import Entry
from polybus.partition.kinds import KINDS, MAIN, TRANSFER_DEAD_LETTER
from polybus.partition.log import Log
from polybus.partition.records import Stored
from polybus.partition.storing import enter
from polybus.rows import Scan

HOPS_EXCEEDED: Final = "MaxTransferHopCountExceeded"
MOVED: Final = "x-polybus-subscription"
"""Overlay property of a message that was moved by its number: the one subscription of the destination topic that it
is to enter, or 0 for the whole entity."""
RESERVED: Final = "x-polybus-number"
"""Overlay property of a message that was scheduled in a transaction: its number at the destination."""


def forward(broker: Broker, log: Log, entry: Entry, destination: str, dead: bool = False) -> bytes:
    """Puts a message of `log` on its way; where it can never arrive, into the transfer dead letters. Gives its key.

    What is `dead` does not die again of the time-to-live that it had.
    """
    overlay = entry.own_overlay()
    overlay.hops += 1
    if dead:
        overlay.ttl_ms = NO_TTL
    if overlay.hops > FORWARD_HOPS:
        overlay.hops -= 1
        return refuse(broker, log, entry, HOPS_EXCEEDED, f"A message was forwarded more than {FORWARD_HOPS} times.")
    try:
        route = broker.router.route(destination, entry)
    except BusError as error:
        overlay.hops -= 1
        return refuse(broker, log, entry, error.condition, error.description)
    return dispatch(broker, log, entry, route, 0 if dead else entry.expires_ms)


def dispatch(broker: Broker, log: Log, entry: Entry, route: tuple[int, int], expires_ms: int = 0) -> bytes:
    """Writes the message into the outbox for its destination partition; gives the key of its row."""
    broker.transfer_counter += 1
    overlay = b"" if entry.overlay is None else entry.overlay.to_bytes()
    original = entry.original or entry.sequence
    value = records.message_record(
        entry.sequence,
        log.id,
        entry.enqueued_ms,
        expires_ms,
        0,
        original,
        0,
        entry.size,
        overlay,
        entry.loaded().raw,
    )
    key = records.outbox_key(broker.prefix, route[0], route[1], broker.transfer_counter)
    broker.out().put(key, value)
    broker.transfers += 1
    broker.size += entry.size
    broker.router.outbox_grew(broker)
    return key


def refuse(broker: Broker, log: Log, entry: Entry, reason: str, description: str) -> bytes:
    """A message that cannot be moved on rests in the source's transfer dead-letter queue."""
    log.settings.totals.died(reason)
    overlay = entry.own_overlay()
    overlay.application[DEAD_LETTER_REASON] = reason
    overlay.application[DEAD_LETTER_DESCRIPTION] = description
    overlay.dead_letter_source = log.settings.source
    dead = broker.log(log.settings.number * KINDS + TRANSFER_DEAD_LETTER)
    message = entry.loaded()
    original = entry.original
    twin = Entry(dead, entry.sequence, message, entry.enqueued_ms, 0, original, overlay, message.size)
    return enter(broker, dead, twin)


def destinations(broker: Broker) -> Steps[list[tuple[int, int]]]:
    """The (entity id, partition index) pairs for which the outbox holds messages."""
    found: list[tuple[int, int]] = []
    prefix = broker.prefix + records.OUTBOX
    start = prefix
    while broker.transfers:
        rows = yield Scan(start, records.after(prefix), 1)
        if not rows:
            break
        row = rows[0]
        assert isinstance(row, tuple)
        entity, index, _ = records.outbox_of(row[0])
        found.append((entity, index))
        start = records.outbox_key(broker.prefix, entity, index, (1 << 64) - 1)
    return found


def pending(
    broker: Broker, entity: int, index: int, after_number: int, limit: int, max_bytes: int
) -> Steps[list[OutboxMessage]]:
    """The next messages for one destination partition, in order."""
    first = max(after_number, broker.outbox.get((entity, index), 0)) + 1
    start = records.outbox_key(broker.prefix, entity, index, first)
    end = records.outbox_key(broker.prefix, entity, index, (1 << 64) - 1)
    rows = yield Scan(start, end, limit, max_bytes)
    transfers: list[OutboxMessage] = []
    for row in rows:
        assert isinstance(row, tuple)
        transfers.append(transfer_from(records.outbox_of(row[0])[2], Stored(row[1])))
    return transfers


def sent_on(broker: Broker, entity: int, index: int, moved: list[OutboxMessage]) -> None:
    """The destination has these messages: they leave the outbox. Saying it twice is harmless."""
    batch = broker.out()
    for transfer in _left(broker, (entity, index), moved):
        batch.delete(records.outbox_key(broker.prefix, entity, index, transfer.number))
        broker.transfers -= 1
        broker.size -= transfer.message.size
        broker.outbox[entity, index] = transfer.number


def _left(broker: Broker, destination: tuple[int, int], moved: list[OutboxMessage]) -> list[OutboxMessage]:
    """Those that have not left the outbox yet; they leave it in order."""
    last = broker.outbox.get(destination, 0)
    return [transfer for transfer in moved if transfer.number > last]


def refused(broker: Broker, now: Now, entity: int, index: int, moved: list[OutboxMessage], error: BusError) -> None:
    """The destination will never take these: they rest in the transfer dead letters of where they came from."""
    wall_ms = broker.wall(now)
    for transfer in _left(broker, (entity, index), moved):
        log = broker.logs.get(transfer.log_id, broker.logs[MAIN])
        message, sequence = transfer.message, broker.next_sequence(log)
        overlay = None if transfer.overlay is None else transfer.overlay.copy()
        if overlay is not None:
            overlay.application.pop(MOVED, None)
            overlay.application.pop(RESERVED, None)
        original = transfer.original
        entry = Entry(log, sequence, message, wall_ms, 0, original, overlay, message.size)
        refuse(broker, log, entry, error.condition, error.description)
    sent_on(broker, entity, index, moved)


def seen(broker: Broker, source: tuple[int, int], number: int) -> bool:
    return number <= broker.inbox.get(source, 0)


def note_seen(broker: Broker, source: tuple[int, int], number: int) -> None:
    """Written in the batch that holds the message itself."""
    broker.inbox[source] = number
    batch = broker.out()
    batch.put(records.inbox_key(broker.prefix, source[0], source[1]), records.sealed_number(number))
