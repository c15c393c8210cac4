"""What verbs of a partition take and give, as plain values for a frame, and back.

What is read from a frame is checked for its form as it is taken apart: a peer that sends nonsense is cut off, and
nothing of it reaches a partition.
"""

from __future__ import annotations

import struct
from typing import Final, TypeVar

from polybus import errors
from polybus.errors import BusError, PartitionUnavailable, PolybusError, ProtocolError, StoreCorrupt
from polybus.hosting.partition_client import Delivery, PartitionClient, TransactionWork
from polybus.hosting.store_host import InDoubt
from polybus.message.edit import Edit
from polybus.message.message import Message
from polybus.message.overlay import Overlay, overlay_from_bytes
from polybus.message.peeked import Peeked
from polybus.message.rendering import Marks
from polybus.partition.data import (
    ListedSession,
    LogEvent,
    LogRange,
    LogStatistics,
    Moved,
    OutboxMessage,
    Records,
    Statistics,
)

T = TypeVar("T")
Values = list[object]
_DELIVERY: Final = struct.Struct(">I10sQIqqqqIBq")
_LOCK: Final = struct.Struct(">I10sQ")


def nonsense(what: str) -> ProtocolError:
    return ProtocolError("amqp:decode-error", f"another process of the bus has sent {what} that cannot be read")


# Reading


class Reader:
    """Takes a list of values apart, one after the other, each of the kind that is expected."""

    def __init__(self, values: object) -> None:
        if not isinstance(values, list):
            raise nonsense("a list")
        self._values = values
        self._at = 0

    def _next(self) -> object:
        if self._at >= len(self._values):
            raise nonsense("a list that is too short")
        self._at += 1
        return self._values[self._at - 1]

    def number(self) -> int:
        value = self._next()
        if isinstance(value, bool) or not isinstance(value, int):
            raise nonsense("a number")
        return int(value)

    def number_or_none(self) -> int | None:
        return None if self.passes_none() else self.number()

    def flag(self) -> bool:
        value = self._next()
        if not isinstance(value, bool):
            raise nonsense("a flag")
        return value

    def text(self) -> str:
        value = self._next()
        if not isinstance(value, str):
            raise nonsense("a text")
        return str(value)

    def text_or_none(self) -> str | None:
        return None if self.passes_none() else self.text()

    def data(self) -> bytes:
        value = self._next()
        if not isinstance(value, bytes):
            raise nonsense("bytes")
        return value

    def data_or_none(self) -> bytes | None:
        return None if self.passes_none() else self.data()

    def passes_none(self) -> bool:
        """Passes a None that comes next; whether there was one."""
        if self._at < len(self._values) and self._values[self._at] is None:
            self._at += 1
            return True
        return False

    def items(self) -> Values:
        value = self._next()
        if not isinstance(value, list):
            raise nonsense("a list")
        return value

    def left(self) -> range:
        """For each value that was not taken yet."""
        return range(len(self._values) - self._at)

    def any(self) -> object:
        return self._next()

    def numbers(self) -> list[int]:
        reader = Reader(self.items())
        return [reader.number() for _ in reader.left()]

    def readers(self) -> list[Reader]:
        return [Reader(item) for item in self.items()]

    def properties(self) -> dict[str, object] | None:
        value = self._next()
        if value is not None and not isinstance(value, dict):
            raise nonsense("a map")
        return None if value is None else {str(name): item for name, item in value.items()}

    def messages(self) -> list[Message]:
        reader = Reader(self.items())
        return [reader.message() for _ in reader.left()]

    def message(self) -> Message:
        """A message that the other side has checked; one that is none is nonsense."""
        try:
            return Message(self.data(), True)
        except (PolybusError, ValueError, IndexError):
            raise nonsense("a message") from None

    def overlay(self) -> Overlay | None:
        data = self.data()
        try:
            return overlay_from_bytes(data) if data else None
        except (StoreCorrupt, ValueError, TypeError, AttributeError):
            raise nonsense("an overlay") from None


def overlay_bytes(overlay: Overlay | None) -> bytes:
    return b"" if overlay is None else overlay.to_bytes()


# Messages


def delivery_values(delivery: Delivery) -> Values:
    """Numbers travel packed: there are many of them in each delivery, and one value costs as much as one number."""
    return [
        _DELIVERY.pack(
            delivery.log_id,
            delivery.head,
            delivery.lock,
            delivery.size,
            delivery.sequence,
            delivery.enqueued_ms,
            delivery.expires_ms,
            delivery.original_sequence,
            delivery.delivery_count,
            delivery.state,
            delivery.locked_until_ms,
        ),
        delivery.message.raw,
        overlay_bytes(delivery.overlay),
    ]


def delivery_of(partition: PartitionClient, reader: Reader) -> Delivery:
    packed = reader.data()
    if len(packed) != _DELIVERY.size:
        raise nonsense("a delivery")
    log_id, head, lock, size, sequence, enqueued_ms, expires_ms, original, count, state, until_ms = _DELIVERY.unpack(
        packed
    )
    return Delivery(
        partition,
        log_id,
        head,
        lock,
        reader.message(),
        size,
        sequence,
        enqueued_ms,
        expires_ms,
        original,
        count,
        state,
        until_ms,
        reader.overlay(),
    )


def deliveries_of(partition: PartitionClient, reader: Reader) -> list[Delivery]:
    return [delivery_of(partition, each) for each in reader.readers()]


def lock_values(delivery: Delivery) -> Values:
    """What names a delivery to its owner."""
    return [_LOCK.pack(delivery.log_id, delivery.head, delivery.lock)]


_NOTHING: Final = Message(b"\x00\x53\x75\xa0\x00", True)
"""Stands for bytes that a delivery is settled without."""


def locked_of(partition: PartitionClient, reader: Reader) -> Delivery:
    """A delivery by its lock alone, which is all that settling wants of it."""
    packed = reader.data()
    if len(packed) != _LOCK.size:
        raise nonsense("a lock")
    log_id, head, lock = _LOCK.unpack(packed)
    return Delivery(partition, log_id, head, lock, _NOTHING, 0, 0, 0, 0, 0, 0, 0, 0, None)


def peeked_values(peeked: Peeked) -> Values:
    marks = peeked.marks
    return [
        peeked.message.raw,
        peeked.size,
        marks.sequence,
        marks.enqueued_ms,
        marks.original_sequence,
        marks.delivery_count,
        marks.state,
        marks.locked_until_ms,
        overlay_bytes(marks.overlay),
    ]


def peeked_of(reader: Reader) -> Peeked:
    message, size = reader.message(), reader.number()
    marks = Marks(
        reader.number(),
        reader.number(),
        reader.number(),
        reader.number(),
        reader.number(),
        reader.number(),
        reader.overlay(),
    )
    return Peeked(message, marks, size)


def transfer_values(transfer: OutboxMessage) -> Values:
    return [
        transfer.number,
        transfer.message.raw,
        overlay_bytes(transfer.overlay),
        transfer.original,
        transfer.enqueued_ms,
        transfer.expires_ms,
        transfer.log_id,
    ]


def transfers_of(reader: Reader) -> list[OutboxMessage]:
    found = []
    for each in reader.readers():
        number, message, overlay = each.number(), each.message(), each.overlay()
        found.append(
            OutboxMessage(number, message, overlay, each.number(), each.number(), each.number(), each.number())
        )
    return found


def edits_values(edits: dict[int, Edit]) -> Values:
    return [
        [
            number,
            edit.largest,
            edit.body,
            [[position, value] for position, value in edit.fields.items()],
            dict(edit.application),
        ]
        for number, edit in edits.items()
    ]


def edits_of(reader: Reader) -> dict[int, Edit]:
    found: dict[int, Edit] = {}
    for each in reader.readers():
        number = each.number()
        edit = found[number] = Edit(each.number())
        edit.body = each.data_or_none()
        for pair in each.readers():
            edit.fields[pair.number()] = pair.any()
        edit.application = each.properties() or {}
    return found


def work_values(work: TransactionWork) -> Values:
    return [
        work.id,
        [[message.raw, work.reserved.get(message, 0)] for message in work.sends],
        [[destination, message.raw, work.reserved.get(message, 0)] for destination, message in work.transfers],
        work.held,
        work.intent,
    ]


def work_of(reader: Reader) -> TransactionWork:
    work = TransactionWork(reader.data())
    for each in reader.readers():
        work.sends.append(_reserved(work, each))
    for each in reader.readers():
        destination = each.text()
        work.transfers.append((destination, _reserved(work, each)))
    work.held, work.intent = reader.number(), reader.data()
    return work


def _reserved(work: TransactionWork, reader: Reader) -> Message:
    message, number = reader.message(), reader.number()
    if number:
        work.reserved[message] = number
    return message


# Other results


def moved_values(moved: Moved) -> Values:
    return [list(moved.moved), list(moved.missing), list(moved.locked)]


def moved_of(reader: Reader) -> Moved:
    return Moved(reader.numbers(), reader.numbers(), reader.numbers())


def records_values(records: Records) -> Values:
    return [records.complete_to, records.after, list(records.values), records.settled]


def records_of(reader: Reader) -> Records:
    found = Records(reader.number())
    found.after = reader.data()
    values = Reader(reader.items())
    found.values = [values.data() for _ in values.left()]
    found.settled = reader.data()
    return found


def range_values(found: LogRange) -> Values:
    return [found.earliest, found.stable_end, found.messages, found.bytes, found.at_time]


def range_of(reader: Reader) -> LogRange:
    earliest = reader.number()
    found = LogRange(reader.number(), reader.number(), reader.number())
    found.earliest, found.at_time = earliest, reader.number_or_none()
    return found


def event_values(event: LogEvent) -> Values:
    return [
        event.position,
        [event.sequence, event.change, event.time_ms, event.delivery_count, event.reason, event.enqueued_ms],
    ]


def events_of(reader: Reader) -> list[LogEvent]:
    found = []
    for each in reader.readers():
        position, fields = each.number(), each.items()
        if len(fields) != 6:
            raise nonsense("an event")
        found.append(LogEvent(position, fields))
    return found


def statistics_values(found: Statistics) -> Values:
    return [
        found.scheduled,
        found.transfers,
        found.size,
        [
            [
                log.id,
                log.active,
                log.deferred,
                log.locked,
                log.retained,
                log.retained_bytes,
                log.sessions,
                log.oldest_ms,
            ]
            for log in found.logs
        ],
    ]


def statistics_of(reader: Reader) -> Statistics:
    found = Statistics()
    found.scheduled, found.transfers, found.size = reader.number(), reader.number(), reader.number()
    for each in reader.readers():
        log = LogStatistics(each.number())
        log.active, log.deferred, log.locked = each.number(), each.number(), each.number()
        log.retained, log.retained_bytes, log.sessions = each.number(), each.number(), each.number()
        log.oldest_ms = each.number_or_none()
        found.logs.append(log)
    return found


def session_values(listed: ListedSession) -> Values:
    return [
        listed.id,
        listed.messages,
        listed.locked,
        listed.holder,
        listed.locked_until_ms,
        listed.state_bytes,
        listed.state_updated_ms,
    ]


def sessions_of(reader: Reader) -> list[ListedSession]:
    found = []
    for each in reader.readers():
        listed = ListedSession(each.text(), each.number())
        listed.locked, listed.holder = each.number(), each.text_or_none()
        listed.locked_until_ms = each.number()
        listed.state_bytes, listed.state_updated_ms = each.number(), each.number()
        found.append(listed)
    return found


# Errors

_ERRORS: dict[str, type[BusError]] = {
    kind.__name__: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, BusError) and kind.__init__ is BusError.__init__
}
_ERRORS["InDoubt"] = InDoubt


def error_values(error: PolybusError) -> Values:
    kind = type(error).__name__
    sub_code = error.sub_code if isinstance(error, BusError) else 0
    return [kind, str(error), sub_code]


def error_of(reader: Reader) -> BusError:
    """The error by its name; what is no refusal of the bus is a partition that cannot do its work now."""
    kind, text, sub_code = reader.text(), reader.text(), reader.number()
    error = _ERRORS.get(kind, PartitionUnavailable)(text)
    if sub_code and error.sub_code != sub_code:
        error.sub_code = sub_code
    return error
