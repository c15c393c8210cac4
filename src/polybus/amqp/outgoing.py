"""A link over which we send: the peer's credit, our deliveries, drain.

Credit is counted exactly, per delivery (docs/protocol/amqp.md#exact-credit). A delivery larger than the peer's frames
is split; frames for which the peer's session window has no room wait in the session. AMQP 1.0 §2.6.7, §2.6.14;
docs/protocol/amqp.md#drain, docs/protocol/amqp.md#transfers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i16_le,
    write_i32_be,
    write_i32_le,
    write_i64_be,
)

from polybus.amqp.events import CreditChanged, OutgoingDelivery, ProtocolEvent
from polybus.amqp.fields import UINT_MAX, bool_at, uint_at
from polybus.amqp.frames import (
    LAST_SETTLED,
    LAST_UNSETTLED,
    TAG_AT,
    TAG_BYTES,
    TRANSFER_BYTES,
    finish_transfer,
    transfer_end,
    transfer_head,
    transfer_prefix,
)
from polybus.amqp.link import Link
from polybus.amqp.outbox import UnsentDelivery, serial_distance
from polybus.amqp.outcomes import DeliveryState
from polybus.amqp.performatives import Attach
from polybus.amqp.states import ATTACHED, LINK, step
from polybus.errors import BugError

if TYPE_CHECKING:
    from polybus.amqp.session import AmqpSession

_GUID_BYTES: Final = 16


class OutgoingLink(Link):
    """The peer's receiving link."""

    def __init__(self, session: AmqpSession, attach: Attach) -> None:
        super().__init__(session, attach)
        self.drain = False
        self._tag_bytes = -1
        self._prefix = b""
        self._tag_start = b""

    @property
    def sendable(self) -> int:
        """How many deliveries may be sent now; none while the peer's session window is exhausted."""
        if self.state != ATTACHED or self.session.waiting:
            return 0
        return self.credit

    def send(
        self, tag: bytes, payload: bytes, settled: bool = False, context: object = None
    ) -> OutgoingDelivery | None:
        """Sends one message for one credit; None if the link is gone."""
        return self.send_frame(self.start_frame(tag, settled), payload, settled, context)

    def start_frame(self, tag: bytes, settled: bool) -> BytesWriter:
        """A transfer's frame up to its message, which is to be written behind; its size and id come last."""
        start = self._start(len(tag))
        start.write(tag)
        start.write(LAST_SETTLED if settled else LAST_UNSETTLED)
        return start

    def start_guid_frame(self, token: bytes) -> BytesWriter:
        """The same, unsettled, with a tag that is the GUID of these sixteen bytes as .NET writes it."""
        start = self._start(_GUID_BYTES)
        write_i32_le(start, read_i32_be(token, 0))
        write_i16_le(start, read_i16_be(token, 4))
        write_i16_le(start, read_i16_be(token, 6))
        write_i64_be(start, read_i64_be(token, 8))
        start.write(LAST_UNSETTLED)
        return start

    def _start(self, tag_bytes: int) -> BytesWriter:
        if tag_bytes != self._tag_bytes:
            self._shape(tag_bytes)
        start = BytesWriter()
        write_i32_be(start, 0)
        start.write(self._prefix)
        write_i32_be(start, 0)
        start.write(self._tag_start)
        return start

    def send_frame(
        self, start: BytesWriter, rest: bytes, settled: bool, context: object = None
    ) -> OutgoingDelivery | None:
        """Sends a frame that was started on this link, its message going on with `rest`; None if the link is gone."""
        if self.state != ATTACHED:
            return None
        if self.credit <= 0:
            raise BugError("a delivery was sent without credit")
        self.credit -= 1
        self.delivery_count = (self.delivery_count + 1) & UINT_MAX
        session = self.session
        delivery = OutgoingDelivery(self, -1, context)
        size = len(start) + len(rest)
        if size > session.frame_limit or session.window <= 0 or session.waiting:
            begun = start.getvalue()
            payload_at = TRANSFER_BYTES + self._tag_bytes
            tag = begun[TAG_AT : TAG_AT + 2 + self._tag_bytes]
            session.wait(UnsentDelivery(delivery, tag, begun[payload_at:] + rest, settled))
            return delivery
        finish_transfer(start, size, session.number(delivery, settled))
        out = session.out
        out.append(start.getvalue())
        out.append(rest)
        session.window -= 1
        session.next_outgoing_id = (session.next_outgoing_id + 1) & UINT_MAX
        return delivery

    def _shape(self, tag_bytes: int) -> None:
        """Prepares what all transfers with tags of this length have in common."""
        if tag_bytes > TAG_BYTES:
            raise BugError("a delivery-tag is too long")
        self._tag_bytes = tag_bytes
        self._prefix = transfer_prefix(self.session.channel, self.handle, tag_bytes)
        self._tag_start = bytes((0xA0, tag_bytes))

    def write_part(self, item: UnsentDelivery) -> bool:
        """Writes the next frame of a delivery that waits; true if it was the last one."""
        overhead = TRANSFER_BYTES + len(item.tag) - 2
        room = self.session.frame_limit - overhead
        chunk = item.payload[item.place : item.place + room]
        item.place += room
        last = item.place >= len(item.payload)
        end = transfer_end(item.settled, not last)
        if len(item.tag) - 2 != self._tag_bytes:
            self._shape(len(item.tag) - 2)
        size = overhead + len(chunk)
        self.session.out.append(transfer_head(size, self._prefix, item.delivery.delivery_id, item.tag, end))
        self.session.out.append(chunk)
        return last

    def settle(self, delivery_id: int, outcome: bytes | DeliveryState) -> None:
        """Confirms or refuses the peer's decision on a delivery, as long as the link lives."""
        if self.state == ATTACHED:
            self.session.settle(delivery_id, outcome)

    def hold(self, delivery: OutgoingDelivery, state: DeliveryState) -> None:
        if self.state == ATTACHED:
            self.session.hold(delivery, state)

    def settle_held(self, delivery: OutgoingDelivery, outcome: bytes | DeliveryState) -> None:
        if self.state == ATTACHED and self.session.unsettled.pop(delivery.delivery_id, None) is not None:
            self.unsettled -= 1
            self.session.settle(delivery.delivery_id, outcome)

    def drained(self) -> None:
        """Says that nothing more is at hand: what is left of the credit is used up, after all transfers."""
        if self.state != ATTACHED or not self.drain:
            return
        self._count(self.credit)
        self.session.flow_wanted(self)

    def write_flow(self) -> None:
        self.session.write_flow(self.handle, self.delivery_count, self.credit, self.drain)

    def on_flow(self, fields: list[object]) -> ProtocolEvent | None:
        """credit = their delivery-count + their link-credit - our delivery-count. docs/protocol/amqp.md#flow."""
        if step(LINK, self.state, "flow")[0] == "nothing":
            return None
        credit = uint_at(fields, 6)
        if credit is not None:
            under_way = serial_distance(uint_at(fields, 5) or 0, self.delivery_count)
            self.credit = max(credit - max(under_way, 0), 0)
        self.drain = bool_at(fields, 8)
        if bool_at(fields, 9):
            self.session.flow_wanted(self)
        return CreditChanged(self) if self.state == ATTACHED else None

    def on_stray_transfer(self, events: list[ProtocolEvent]) -> None:
        if step(LINK, self.state, "transfer")[0] != "nothing":
            self.fail("amqp:not-allowed", "a transfer came on a receiving link", events)

    def _accepted(self) -> list[ProtocolEvent]:
        if self.credit or self.drain:
            return [CreditChanged(self)]
        return []

    def _lost(self) -> tuple[list[OutgoingDelivery], list[OutgoingDelivery]]:
        return self.session.lost_deliveries(self)

    def _forget_traffic(self) -> None:
        self.session.forget_outgoing(self)
