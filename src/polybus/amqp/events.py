"""What a connection tells its owner. Events come in the order of the frames that caused them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polybus.amqp.outcomes import AmqpError, DeliveryState
from polybus.amqp.performatives import Attach, Open

if TYPE_CHECKING:
    from polybus.amqp.incoming import IncomingLink
    from polybus.amqp.link import Link
    from polybus.amqp.outgoing import OutgoingLink
    from polybus.amqp.session import AmqpSession


class ProtocolEvent:
    """Base of all events."""

    __slots__ = ()


class SaslInit(ProtocolEvent):
    """The peer wants to log in; answer with `Connection.sasl_outcome`."""

    def __init__(self, mechanism: str, initial_response: bytes, hostname: str | None) -> None:
        self.mechanism = mechanism
        self.initial_response = initial_response
        self.hostname = hostname


class Opened(ProtocolEvent):
    """The connection is open in both directions."""

    def __init__(self, open_frame: Open) -> None:
        self.open = open_frame


class SessionBegun(ProtocolEvent):
    def __init__(self, session: AmqpSession) -> None:
        self.session = session


class Attached(ProtocolEvent):
    """The peer wants a link; answer, now or later, with `Link.accept` or `Link.refuse`."""

    def __init__(self, link: Link, attach: Attach) -> None:
        self.link = link
        self.attach = attach


class CreditChanged(ProtocolEvent):
    """A link on which we send has other credit, wants to be drained, or can send again."""

    __slots__ = ("link",)

    def __init__(self, link: OutgoingLink) -> None:
        self.link = link


class IncomingDelivery(ProtocolEvent):
    """One message, whole. If it is `oversized` its payload was thrown away; -1 is a null message-format."""

    __slots__ = (
        "delivery_id",
        "link",
        "message_format",
        "oversized",
        "payload",
        "settled",
        "state",
        "tag",
    )

    def __init__(
        self,
        link: IncomingLink,
        delivery_id: int,
        tag: bytes,
        message_format: int,
        payload: bytes,
        settled: bool,
        state: DeliveryState | None,
        oversized: bool,
    ) -> None:
        self.link = link
        self.delivery_id = delivery_id
        self.tag = tag
        self.message_format = message_format
        self.payload = payload
        self.settled = settled
        self.state = state
        self.oversized = oversized


class OutgoingDelivery:
    """A delivery of ours that the peer has not settled; `context` is what the sender of it wants back."""

    __slots__ = ("context", "delivery_id", "link", "owner")

    def __init__(self, link: OutgoingLink, delivery_id: int, context: object) -> None:
        self.link = link
        self.delivery_id = delivery_id
        self.context = context
        self.owner = link.context
        """Whom the link belongs to; it may be cut off from there before the last answer is given."""

    def settle(self, outcome: bytes | DeliveryState) -> None:
        """Confirms the peer's decision, or refuses it; nothing leaves when the link is gone."""
        self.link.settle(self.delivery_id, outcome)

    def hold(self, state: DeliveryState) -> None:
        """Tells the peer what its decision is part of; the delivery stays unsettled, and it may decide anew."""
        self.link.hold(self, state)

    def settle_held(self, outcome: bytes | DeliveryState) -> None:
        """Settles a delivery that was held, unless the peer has done so meanwhile."""
        self.link.settle_held(self, outcome)


class Disposed(ProtocolEvent):
    """The peer has decided on these deliveries of ours; unless `settled`, it waits for `Session.settle`."""

    __slots__ = ("deliveries", "session", "settled", "state")

    def __init__(
        self,
        session: AmqpSession,
        deliveries: list[OutgoingDelivery],
        state: DeliveryState | None,
        settled: bool,
    ) -> None:
        self.session = session
        self.deliveries = deliveries
        self.state = state
        self.settled = settled

    def continues(self, session: AmqpSession, state: DeliveryState | None, settled: bool) -> bool:
        """Whether a decision like this is one more of these."""
        return self.session is session and self.state is state and self.settled == settled


class LinkDetached(ProtocolEvent):
    """The link is gone, also when it was still pending.

    `unsent` are deliveries that never left whole, `unsettled` those that did and on which the peer has not
    decided.
    """

    def __init__(
        self,
        link: Link,
        closed: bool,
        error: AmqpError | None,
        unsent: list[OutgoingDelivery],
        unsettled: list[OutgoingDelivery],
    ) -> None:
        self.link = link
        self.closed = closed
        self.error = error
        self.unsent = unsent
        self.unsettled = unsettled


class SessionEnded(ProtocolEvent):
    """The session is gone; its links were reported one by one before."""

    def __init__(self, session: AmqpSession, error: AmqpError | None) -> None:
        self.session = session
        self.error = error


class Closed(ProtocolEvent):
    """Nothing more will come: write what is left of the output and drop the transport."""

    def __init__(self, error: AmqpError | None) -> None:
        self.error = error
