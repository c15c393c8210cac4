"""A link over which the peer sends: its transfers become deliveries, and we grant it credit.

Credit is granted up to what the owner said, less the deliveries that wait for an answer, and renewed when half of it
is free again. It is not enforced one by one, since the Python SDK does not count it
(docs/protocol/amqp.md#uncounted-credit); what bounds a peer that ignores it is the session's limit on unanswered
deliveries. AMQP 1.0 §2.6.7, §2.6.12, §2.6.14.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polybus.amqp.assembly import Assembly
from polybus.amqp.events import IncomingDelivery, ProtocolEvent
from polybus.amqp.fields import UINT_MAX, bool_at, uint_at
from polybus.amqp.link import Link
from polybus.amqp.outbox import serial_distance
from polybus.amqp.outcomes import DeliveryState
from polybus.amqp.performatives import Attach
from polybus.amqp.states import ATTACHED, LINK, PENDING, step
from polybus.amqp.traffic import TransferTail
from polybus.limits import AMQP_FRAMES_PER_DELIVERY, AMQP_HELD_DELIVERIES, AMQP_UNSIZED_LINK_BYTES

if TYPE_CHECKING:
    from polybus.amqp.session import AmqpSession


class IncomingLink(Link):
    """The peer's sending link."""

    def __init__(self, session: AmqpSession, attach: Attach) -> None:
        super().__init__(session, attach)
        self.delivery_count = attach.initial_delivery_count or 0
        self.message_limit = AMQP_UNSIZED_LINK_BYTES
        self.granted = 0
        self.carries_requests = False
        """Whether what comes is known by its message id, and no answer is awaited by its delivery-id."""
        self._assembly: Assembly | None = None
        self._held: list[IncomingDelivery] = []

    def grant(self, credit: int) -> None:
        """Lets the peer have `credit` deliveries under way from now on, renewed as they are answered."""
        if self.state == ATTACHED:
            self.session.granted(credit - self.granted)
            self.granted = credit
            self._renew()

    def settle_incoming(self, delivery_id: int, outcome: bytes | DeliveryState) -> None:
        """Answers a delivery of the peer; nothing leaves if the peer has settled it or is gone."""
        session = self.session
        if self.state != ATTACHED or session.incoming.get(delivery_id) is not self:
            return
        del session.incoming[delivery_id]
        session.answers.add(delivery_id, outcome if isinstance(outcome, bytes) else outcome.encoded())
        session.mark_dirty()
        self.forget_one()

    def forget_one(self) -> None:
        """One delivery less waits for an answer."""
        self.unsettled -= 1
        self._renew_if_half_used()

    def _renew_if_half_used(self) -> None:
        if self.granted and 2 * (self.credit + self.unsettled) <= self.granted:
            self._renew()

    def _renew(self) -> None:
        self.credit = max(self.granted - self.unsettled, 0)
        self.session.flow_wanted(self)

    def write_flow(self) -> None:
        self.session.write_flow(self.handle, self.delivery_count, max(self.credit, 0), False)

    def on_transfer(
        self, delivery_id: int, tag: bytes, tail: TransferTail, payload: bytes, events: list[ProtocolEvent]
    ) -> None:
        if (
            self.state != ATTACHED
            or tail.more
            or tail.aborted
            or delivery_id < 0
            or self._assembly is not None
            or len(payload) > self.message_limit
        ):
            self._on_unusual_transfer(delivery_id, tag, tail, payload, events)
            return
        self.delivery_count = (self.delivery_count + 1) & UINT_MAX
        self.credit -= 1
        if tail.settled:
            self._renew_if_half_used()
        elif not self._owe(delivery_id, events):
            return
        events.append(
            IncomingDelivery(self, delivery_id, tag, tail.message_format, payload, tail.settled, tail.state, False)
        )

    def _owe(self, delivery_id: int, events: list[ProtocolEvent]) -> bool:
        """Notes that the delivery waits for an answer; false when that ended the session.

        The Python SDK numbers the transfers of several threads alike. An id that a request shares is left to the
        other delivery, whose answer is then the only one: with two sends nobody could say which one is meant.
        """
        session = self.session
        incoming = session.incoming
        other = incoming.get(delivery_id)
        if other is not None:
            if self.carries_requests:
                return True
            if not other.carries_requests:
                session.fail("amqp:invalid-field", "the delivery-id is still in use", events)
                return False
            other.forget_one()
        if len(incoming) >= session.incoming_limit:
            session.fail("amqp:session:window-violation", "too many deliveries wait for an answer", events)
            return False
        incoming[delivery_id] = self
        self.unsettled += 1
        return True

    def _on_unusual_transfer(
        self, delivery_id: int, tag: bytes, tail: TransferTail, payload: bytes, events: list[ProtocolEvent]
    ) -> None:
        """Many frames, a pending or detaching link, an aborted or oversized delivery."""
        if step(LINK, self.state, "transfer")[0] == "nothing":
            return
        assembly = self._assembly
        if assembly is None:
            if delivery_id < 0:
                self.fail("amqp:invalid-field", "a delivery begins with its delivery-id", events)
                return
            self._count(1)
            assembly = Assembly(delivery_id, tag, tail.message_format, self.message_limit)
        elif 0 <= delivery_id != assembly.delivery_id:
            self.fail("amqp:invalid-field", "a delivery begins before the last one ended", events)
            return
        if tail.aborted:
            self._drop_assembly()
            self._renew_if_half_used()
            return
        self._assembly = assembly
        self.session.assembled(assembly.add(tail, payload))
        if tail.more:
            self._check_frames(assembly, events)
        else:
            self._drop_assembly()
            self._complete(assembly, events)

    def _check_frames(self, assembly: Assembly, events: list[ProtocolEvent]) -> None:
        if assembly.frames >= AMQP_FRAMES_PER_DELIVERY:
            self.fail("amqp:link:message-size-exceeded", "the delivery has too many frames", events)

    def _drop_assembly(self) -> None:
        if self._assembly is not None:
            self.session.assembled(-self._assembly.size)
            self._assembly = None

    def _complete(self, whole: Assembly, events: list[ProtocolEvent]) -> None:
        if whole.settled:
            self._renew_if_half_used()
        elif not self._owe(whole.delivery_id, events):
            return
        delivery = IncomingDelivery(
            self,
            whole.delivery_id,
            whole.tag,
            whole.message_format,
            b"".join(whole.chunks),
            whole.settled,
            whole.state,
            whole.oversized,
        )
        if self.state != PENDING:
            events.append(delivery)
        elif len(self._held) < AMQP_HELD_DELIVERIES:
            self.session.assembled(len(delivery.payload))
            self._held.append(delivery)
        else:
            self.fail("amqp:resource-limit-exceeded", "too much was sent before the link was answered", events)

    def on_flow(self, fields: list[object]) -> ProtocolEvent | None:
        """The sender's own count wins; it may have given credit up. AMQP 1.0 §2.6.7."""
        if step(LINK, self.state, "flow")[0] == "nothing":
            return None
        count = uint_at(fields, 5)
        if count is not None:
            ahead = serial_distance(self.delivery_count, count)
            if ahead > 0:
                self._count(ahead)
                self._renew_if_half_used()
        if bool_at(fields, 9):
            self.session.flow_wanted(self)
        return None

    def _accepted(self) -> list[ProtocolEvent]:
        if self.max_message_size is not None and self.max_message_size <= UINT_MAX:
            self.message_limit = self.max_message_size
        held: list[ProtocolEvent] = []
        for delivery in self._held:
            self.session.assembled(-len(delivery.payload))
            if len(delivery.payload) > self.message_limit:
                delivery.oversized = True
                delivery.payload = b""
            held.append(delivery)
        self._held = []
        return held

    def _forget_traffic(self) -> None:
        self._drop_assembly()
        for delivery in self._held:
            self.session.assembled(-len(delivery.payload))
        self._held = []
        self.session.granted(-self.granted)
        self.granted = 0
        self.session.forget_incoming(self)
