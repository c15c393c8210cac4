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
from polybus.message.message import Message
from polybus.message.overlay import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON, overlay_from_bytes
from polybus.partition import records
from polybus.partition.broker import Broker, Steps
from polybus.partition.entry import Entry
from polybus.partition.log import KINDS, TRANSFER_DEAD_LETTER, Log
from polybus.partition.records import Stored
from polybus.partition.storing import enter
from polybus.rows import Scan

HOPS_EXCEEDED: Final = "MaxTransferHopCountExceeded"
ONE_SUBSCRIPTION: Final = "x-polybus-subscription"
"""Overlay property of a message that is to enter a single subscription of the destination topic."""


class Transfer:
    """A message taken from an outbox, for its destination."""

    def __init__(self, number: int, stored: Stored) -> None:
        self.number = number
        self.message = Message(stored.raw)
        self.overlay = overlay_from_bytes(stored.overlay) if stored.overlay else None
        self.original = stored.original
        self.enqueued_ms = stored.enqueued_ms


def forward(broker: Broker, log: Log, entry: Entry, destination: str) -> None:
    """Puts a message that enters `log` on its way; where it can never arrive, into the transfer dead letters."""
    overlay = entry.own_overlay()
    overlay.hops += 1
    try:
        if overlay.hops > FORWARD_HOPS:
            raise _TooManyHops(f"A message was forwarded more than {FORWARD_HOPS} times.")
        dispatch(broker, entry, destination)
    except BusError as error:
        overlay.hops -= 1
        refuse(broker, log, entry, error)


class _TooManyHops(BusError):
    condition = HOPS_EXCEEDED


def dispatch(broker: Broker, entry: Entry, destination: str) -> None:
    """Fixes the destination partition and writes the message into the outbox."""
    entity, index = broker.router.route(destination, entry.loaded(), entry.session_id())
    broker.transfer_counter += 1
    overlay = b"" if entry.overlay is None else entry.overlay.to_bytes()
    raw = entry.loaded().raw
    value = records.message_record(
        entry.sequence,
        0,
        entry.enqueued_ms,
        entry.expires_ms,
        0,
        entry.original or entry.sequence,
        0,
        entry.size,
        overlay,
        raw,
    )
    batch = broker.out()
    batch.put(records.outbox_key(broker.prefix, entity, index, broker.transfer_counter), value)
    broker.transfers += 1
    broker.size += entry.size
    broker.router.outbox_grew(broker)


def refuse(broker: Broker, log: Log, entry: Entry, error: BusError) -> None:
    """A message that cannot be moved on rests in the source's transfer dead-letter queue."""
    overlay = entry.own_overlay()
    overlay.application[DEAD_LETTER_REASON] = error.condition
    overlay.application[DEAD_LETTER_DESCRIPTION] = error.description
    overlay.dead_letter_source = log.settings.source
    dead = broker.log(log.settings.number * KINDS + TRANSFER_DEAD_LETTER)
    twin = Entry(
        dead, entry.sequence, entry.loaded(), entry.enqueued_ms, 0, entry.original, overlay, entry.size
    )
    enter(broker, dead, twin)


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
) -> Steps[list[Transfer]]:
    """The next messages for one destination partition, in order."""
    start = records.outbox_key(broker.prefix, entity, index, after_number + 1)
    end = records.outbox_key(broker.prefix, entity, index, (1 << 64) - 1)
    rows = yield Scan(start, end, limit, max_bytes)
    transfers: list[Transfer] = []
    for row in rows:
        assert isinstance(row, tuple)
        transfers.append(Transfer(records.outbox_of(row[0])[2], Stored(row[1])))
    return transfers


def sent_on(broker: Broker, entity: int, index: int, moved: list[Transfer]) -> None:
    """The destination has these messages: they leave the outbox."""
    batch = broker.out()
    for transfer in moved:
        batch.delete(records.outbox_key(broker.prefix, entity, index, transfer.number))
        broker.transfers -= 1
        broker.size -= transfer.message.size


def refused(
    broker: Broker, now: Now, entity: int, index: int, moved: list[Transfer], error: BusError
) -> None:
    """The destination will never take these: they rest in this entity's transfer dead letters."""
    broker.wall(now)
    log = broker.logs[0]
    for transfer in moved:
        entry = Entry(
            log,
            broker.next_sequence(log),
            transfer.message,
            transfer.enqueued_ms,
            0,
            transfer.original,
            transfer.overlay,
            transfer.message.size,
        )
        refuse(broker, log, entry, error)
    sent_on(broker, entity, index, moved)


def seen(broker: Broker, source: tuple[int, int], number: int) -> bool:
    return number <= broker.inbox.get(source, 0)


def note_seen(broker: Broker, source: tuple[int, int], number: int) -> None:
    """Written in the batch that holds the message itself."""
    broker.inbox[source] = number
    batch = broker.out()
    batch.put(records.inbox_key(broker.prefix, source[0], source[1]), records.sealed_number(number))
