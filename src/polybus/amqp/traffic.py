"""The frames of which there are many: flow, transfer and disposition.

Their classes are for whoever wants to read or write one as a whole. Beside them are the paths that a
connection takes for each message: scanners that read the fields in place, without building a list, and fall
back to the decoder when a field has an unusual shape. AMQP 1.0 §2.7.4-2.7.6.
"""

from __future__ import annotations

from mypy_extensions import i64

from polybus.amqp.decoder import decode_error, decode_within, u32_at
from polybus.amqp.fields import at, bool_at, bytes_at, invalid, needed_uint_at, uint_at
from polybus.amqp.outcomes import DeliveryState, state_from
from polybus.amqp.performatives import DISPOSITION, FLOW, TRANSFER, Performative, uint_or_null
from polybus.amqp.types import UInt


class Flow(Performative):
    """AMQP 1.0 §2.7.4."""

    def __init__(
        self,
        next_incoming_id: int | None,
        incoming_window: int,
        next_outgoing_id: int,
        outgoing_window: int,
        handle: int | None = None,
        delivery_count: int | None = None,
        link_credit: int | None = None,
        available: int | None = None,
        drain: bool = False,
        echo: bool = False,
    ) -> None:
        self.next_incoming_id = next_incoming_id
        self.incoming_window = incoming_window
        self.next_outgoing_id = next_outgoing_id
        self.outgoing_window = outgoing_window
        self.handle = handle
        self.delivery_count = delivery_count
        self.link_credit = link_credit
        self.available = available
        self.drain = drain
        self.echo = echo

    @staticmethod
    def from_fields(fields: list[object]) -> Flow:
        return Flow(
            uint_at(fields, 0),
            needed_uint_at(fields, 1),
            needed_uint_at(fields, 2),
            needed_uint_at(fields, 3),
            uint_at(fields, 4),
            uint_at(fields, 5),
            uint_at(fields, 6),
            uint_at(fields, 7),
            bool_at(fields, 8),
            bool_at(fields, 9),
        )

    def code(self) -> int:
        return FLOW

    def fields(self) -> list[object]:
        window = [uint_or_null(self.next_incoming_id), UInt(self.incoming_window)]
        outgoing = [UInt(self.next_outgoing_id), UInt(self.outgoing_window)]
        link = [
            uint_or_null(self.handle),
            uint_or_null(self.delivery_count),
            uint_or_null(self.link_credit),
            uint_or_null(self.available),
        ]
        return [*window, *outgoing, *link, self.drain, self.echo, None]


class Transfer(Performative):
    """AMQP 1.0 §2.7.5; the payload follows the frame's body and is not in here."""

    def __init__(
        self,
        handle: int,
        delivery_id: int | None = None,
        delivery_tag: bytes | None = None,
        message_format: int | None = None,
        settled: bool = False,
        more: bool = False,
        state: DeliveryState | None = None,
        aborted: bool = False,
    ) -> None:
        self.handle = handle
        self.delivery_id = delivery_id
        self.delivery_tag = delivery_tag
        self.message_format = message_format
        self.settled = settled
        self.more = more
        self.state = state
        self.aborted = aborted

    @staticmethod
    def from_fields(fields: list[object]) -> Transfer:
        return Transfer(
            needed_uint_at(fields, 0),
            uint_at(fields, 1),
            bytes_at(fields, 2),
            uint_at(fields, 3),
            bool_at(fields, 4),
            bool_at(fields, 5),
            state_from(at(fields, 7)),
            bool_at(fields, 9),
        )

    def code(self) -> int:
        return TRANSFER

    def fields(self) -> list[object]:
        identity = [
            UInt(self.handle),
            uint_or_null(self.delivery_id),
            self.delivery_tag,
            uint_or_null(self.message_format),
        ]
        state = None if self.state is None else self.state.described()
        return [*identity, self.settled, self.more, None, state, None, self.aborted, None]


class Disposition(Performative):
    """AMQP 1.0 §2.7.6. `role` is true when the author of the frame receives."""

    def __init__(
        self,
        role: bool,
        first: int,
        last: int | None = None,
        settled: bool = False,
        state: DeliveryState | None = None,
    ) -> None:
        self.role = role
        self.first = first
        self.last = last
        self.settled = settled
        self.state = state

    @staticmethod
    def from_fields(fields: list[object]) -> Disposition:
        return Disposition(
            bool_at(fields, 0),
            needed_uint_at(fields, 1),
            uint_at(fields, 2),
            bool_at(fields, 3),
            state_from(at(fields, 4)),
        )

    def code(self) -> int:
        return DISPOSITION

    def fields(self) -> list[object]:
        state = None if self.state is None else self.state.described()
        return [self.role, UInt(self.first), uint_or_null(self.last), self.settled, state, False]


class TransferTail:
    """The fields of a transfer after its tag, which hardly change from one transfer of a link to the next."""

    __slots__ = ("aborted", "count", "message_format", "more", "settled", "shape", "state")

    def __init__(self, shape: bytes, count: i64, fields: list[object]) -> None:
        self.shape = shape
        """The bytes that were read."""
        self.count = count
        message_format = uint_at(fields, 0)
        self.message_format: int = -1 if message_format is None else message_format
        self.settled: bool = bool_at(fields, 1)
        self.more: bool = bool_at(fields, 2)
        self.state: DeliveryState | None = state_from(at(fields, 4))
        self.aborted: bool = bool_at(fields, 6)


class DispositionTail:
    """The fields of a disposition after its range."""

    __slots__ = ("count", "settled", "shape", "state", "terminal")

    def __init__(self, shape: bytes, count: i64, fields: list[object]) -> None:
        self.shape = shape
        self.count = count
        self.settled: bool = bool_at(fields, 0)
        self.state: DeliveryState | None = state_from(at(fields, 1))
        self.terminal: bool = self.state is not None and self.state.terminal


def is_at(buf: bytes, pos: i64, stop: i64, known: bytes) -> bool:
    """Whether just these bytes are there: for a few of them quicker than to cut them out."""
    size: i64 = len(known)
    if stop - pos != size:
        return False
    place: i64 = 0
    while place < size:
        if buf[pos + place] != known[place]:
            return False
        place += 1
    return True


def list_bounds(buf: bytes, pos: i64, end: i64) -> tuple[i64, i64, i64]:
    """Count of the list at `pos`, where its first field is, and where it ends."""
    code: i64 = buf[pos] if pos < end else -1
    count: i64 = 0
    start: i64 = 0
    stop: i64 = 0
    if code == 0xC0 and pos + 3 <= end:
        count = buf[pos + 2]
        start = pos + 3
        stop = pos + 2 + buf[pos + 1]
    elif code == 0xD0 and pos + 9 <= end:
        count = u32_at(buf, pos + 5)
        start = pos + 9
        stop = pos + 5 + u32_at(buf, pos + 1)
    elif code == 0x45:
        return 0, pos + 1, pos + 1
    else:
        raise decode_error("a performative is a described list")
    if stop > end or start > stop or count > stop - start:
        raise decode_error("the list's size or count is wrong")
    return count, start, stop


def scan_fields(buf: bytes, pos: int, stop: int, count: int) -> list[object]:
    """The `count` fields between `pos` and `stop`; integers lose their width, which nobody needs here."""
    fields: list[object] = []
    for _ in range(count):
        if pos >= stop:
            raise decode_error("the list's size or count is wrong")
        code = buf[pos]
        if code == 0x40:
            fields.append(None)
            pos += 1
        elif code == 0x41 or code == 0x42:
            fields.append(code == 0x41)
            pos += 1
        elif code == 0x43:
            fields.append(0)
            pos += 1
        elif code == 0x52 and pos + 1 < stop:
            fields.append(buf[pos + 1])
            pos += 2
        elif code == 0x70 and pos + 4 < stop:
            fields.append(int(u32_at(buf, pos + 1)))
            pos += 5
        else:
            value, pos = decode_within(buf, pos, stop)
            fields.append(value)
    if pos != stop:
        raise decode_error("the list's size and its fields differ")
    return fields


def frame_fields(buf: bytes, pos: int, end: int) -> list[object]:
    """The fields of a frame's list, which must fill the frame."""
    count, place, stop = list_bounds(buf, pos, end)
    if stop != end:
        raise decode_error("bytes follow the frame's fields")
    return scan_fields(buf, place, stop, count)


def _scan_uint(buf: bytes, pos: int, stop: int) -> tuple[int, int]:
    """A number that may be null, which is -1 here."""
    if pos >= stop:
        raise decode_error("the list's size or count is wrong")
    value, after = decode_within(buf, pos, stop)
    number = uint_at([value], 0)
    return -1 if number is None else number, after


def scan_transfer(buf: bytes, pos: i64, end: i64) -> tuple[i64, i64, bytes, i64, i64, i64]:
    """Handle, delivery-id (-1 for null) and tag of a transfer; how many fields remain, where, and the list's end.

    Most clients write a list8 whose numbers have one byte or four: those are read here, all else elsewhere.
    """
    if pos + 16 > end or buf[pos] != 0xC0:
        return _scan_unusual_transfer(buf, pos, end)
    stop: i64 = pos + 2 + buf[pos + 1]
    code: i64 = buf[pos + 3]
    handle: i64 = 0
    place: i64 = pos + 4
    if code == 0x52:
        handle = buf[pos + 4]
        place = pos + 5
    elif code == 0x70:
        handle = u32_at(buf, pos + 4)
        place = pos + 8
    elif code != 0x43:
        return _scan_unusual_transfer(buf, pos, end)
    code = buf[place]
    delivery_id: i64 = 0
    if code == 0x70 and place + 5 < end:
        delivery_id = u32_at(buf, place + 1)
        place += 5
    elif code == 0x52:
        delivery_id = buf[place + 1]
        place += 2
    else:
        return _scan_unusual_transfer(buf, pos, end)
    count: i64 = buf[pos + 2]
    if place + 2 > stop or stop > end or buf[place] != 0xA0 or count < 3:
        return _scan_unusual_transfer(buf, pos, end)
    start = place + 2
    place = start + buf[place + 1]
    if place > stop:
        raise decode_error("the tag is cut short")
    return handle, delivery_id, buf[start:place], count - 3, place, stop


def _scan_unusual_transfer(buf: bytes, pos: int, end: int) -> tuple[i64, i64, bytes, i64, i64, i64]:
    count, place, stop = list_bounds(buf, pos, end)
    if count == 0:
        raise invalid("a transfer needs a handle")
    handle, place = _scan_uint(buf, place, stop)
    if handle < 0:
        raise invalid("a transfer needs a handle")
    delivery_id = -1
    tag: object = None
    if count > 1:
        delivery_id, place = _scan_uint(buf, place, stop)
    if count > 2:
        tag, place = decode_within(buf, place, stop)
    return handle, delivery_id, bytes_at([tag], 0) or b"", max(count - 3, 0), place, stop


def scan_disposition(buf: bytes, pos: i64, end: i64) -> tuple[bool, i64, i64, i64, i64, i64]:
    """Role, first and last of a disposition; how many fields remain, where, and the list's end."""
    count: i64
    place: i64
    stop: i64
    count, place, stop = list_bounds(buf, pos, end)
    if count < 2:
        raise invalid("a disposition needs a role and a delivery")
    code: i64 = buf[place]
    if code == 0x41 or code == 0x42:
        role = code == 0x41
        place += 1
    else:
        value, place = decode_within(buf, place, stop)
        role = bool_at([value], 0)
    first: i64
    if place + 5 <= stop and buf[place] == 0x70:
        first = u32_at(buf, place + 1)
        place += 5
    else:
        first, place = _scan_uint(buf, place, stop)
    last: i64 = -1
    if count > 2:
        if place < stop and buf[place] == 0x40:
            place += 1
        elif place + 5 <= stop and buf[place] == 0x70:
            last = u32_at(buf, place + 1)
            place += 5
        else:
            last, place = _scan_uint(buf, place, stop)
    if first < 0:
        raise invalid("a disposition needs a delivery")
    left: i64 = count - 3 if count > 3 else 0
    return role, first, first if last < 0 else last, left, place, stop
