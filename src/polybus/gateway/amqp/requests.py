"""Requests and replies over a pair of links, as tokens and management use them.

A request is answered on a reply link of the same session that its `reply-to` names, by target address or by link
name; several clients use one name for all their links, so the session decides first (docs/protocol/amqp.md#replies).
Requests are accepted at once and replies leave settled, for no client settles them
(docs/protocol/amqp.md#management-links). What a request means is the business of whoever it is handed to.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from polybus.amqp.codec import encode_into
from polybus.amqp.events import IncomingDelivery
from polybus.amqp.incoming import IncomingLink
from polybus.amqp.outcomes import ACCEPTED, ACCEPTED_BYTES, TransactionalState
from polybus.amqp.outgoing import OutgoingLink
from polybus.amqp.terminus import Target
from polybus.errors import ArgumentError, MessageTooLarge, NotImplementedByBus, PolybusError, QuotaExceeded
from polybus.gateway.amqp.addresses import LinkNode
from polybus.gateway.amqp.errors import new_tracking_id, rejected
from polybus.gateway.amqp.link_end import LinkEnd
from polybus.gateway.sas import Rights
from polybus.limits import (
    ADDRESS_CHARACTERS,
    AMQP_REPLIES_HELD,
    AMQP_REPLIES_HELD_BYTES,
    AMQP_REQUEST_CREDIT,
    AMQP_STRANGER_BYTES,
    KEY_CHARACTERS,
)
from polybus.message.message import VALUE, Message

if TYPE_CHECKING:
    from polybus.gateway.amqp.endpoint import AmqpEndpoint

log = logging.getLogger(__name__)

ANY_RIGHT = Rights.SEND | Rights.LISTEN
UNLIMITED_SIZE = (1 << 64) - 1
"""What the cloud service announces on its token and management links (docs/protocol/amqp.md#attach)."""

_MESSAGE_ID = 0
_REPLY_TO = 4

NodeKey = tuple[object, ...]
"""What a pair of links belongs to: the token node, or one entity's management."""


class Request:
    """One request, taken apart, and the way back to whoever asked."""

    __slots__ = ("_correlation", "application", "body", "link", "reply_to", "state")

    def __init__(self, link: RequestLink, message: Message, state: TransactionalState | None) -> None:
        fields = message.properties()
        self.link = link
        self._correlation = _repeated(fields[_MESSAGE_ID], KEY_CHARACTERS, "message-id")
        reply_to = _repeated(fields[_REPLY_TO], ADDRESS_CHARACTERS, "reply-to")
        self.reply_to = reply_to if isinstance(reply_to, str) else None
        self.application = message.application_properties()
        self.body = value_of(message)
        self.state = state

    @property
    def operation(self) -> str:
        name = self.application.get("operation")
        return name if isinstance(name, str) else ""

    def reply(self, application: dict[str, object], body: object) -> None:
        """Sends the answer; the request's id goes back as it came, type included (docs/protocol/amqp.md#message-ids)."""
        link = self.link.reply_link(self.reply_to)
        if link is None:
            log.info("a reply has no link to go to", extra={"connection": self.link.endpoint.id})
            return
        out = bytearray(b"\x00\x53\x73")
        fields: list[object] = [None] * 13
        fields[2] = self.reply_to
        fields[5] = self._correlation
        encode_into(out, fields)
        out += b"\x00\x53\x74"
        encode_into(out, application)
        out += b"\x00\x53\x77"
        encode_into(out, body)
        link.send(bytes(out))


def _repeated(value: object, most: int, name: str) -> object:
    """A field that the reply repeats; a long one would let a small request hold a large reply."""
    if isinstance(value, str | bytes) and len(value) > most:
        raise ArgumentError(f"The {name} of the request is longer than {most}.")
    return value


def value_of(message: Message) -> object:
    """The one value in a message's body; None where there is none."""
    sections = message.body()
    if len(sections) != 1 or sections[0][0] != VALUE:
        return None
    return sections[0][1]


class RequestLink(LinkEnd):
    """A link over which requests come."""

    __slots__ = ("incoming", "key")

    def __init__(self, endpoint: AmqpEndpoint, link: IncomingLink, place: LinkNode | None, key: NodeKey) -> None:
        super().__init__(endpoint, link, place, ANY_RIGHT)
        self.incoming = link
        link.carries_requests = True
        self.key = key

    def start(self) -> None:
        events = self.link.accept(max_message_size=UNLIMITED_SIZE)
        self.incoming.grant(AMQP_REQUEST_CREDIT)
        self.endpoint.handle(events)

    def serve(self, request: Request) -> None:
        """Does what is asked, now or later."""
        raise NotImplementedError

    def delivered(self, delivery: IncomingDelivery) -> None:
        state = delivery.state
        try:
            if delivery.oversized:
                raise MessageTooLarge("The request is too large.")
            if delivery.message_format > 0:
                raise NotImplementedByBus("Requests have the message format 0.")
            request = Request(
                self, Message(delivery.payload), state if isinstance(state, TransactionalState) else None
            )
            if not request.operation:
                raise ArgumentError("The request has no operation.")
        except PolybusError as error:
            tracking_id = new_tracking_id(self.endpoint.id)
            self.report(error, tracking_id, "a request was rejected")
            self.incoming.settle_incoming(delivery.delivery_id, rejected(error, tracking_id))
            return
        self.incoming.settle_incoming(delivery.delivery_id, self._taken(request))
        self.serve(request)

    def _taken(self, request: Request) -> bytes | TransactionalState:
        """Inside a transaction the request is taken inside it too (docs/protocol/transactions.md#coordinator)."""
        if request.state is None:
            return ACCEPTED_BYTES
        return TransactionalState(request.state.txn_id, ACCEPTED)

    def reply_link(self, reply_to: str | None) -> ReplyLink | None:
        """The link of this session, else of this connection, that a reply goes to."""
        links = [link for link in self.shared.replies if link.key == self.key]
        if not links:
            links = [link for link in self.endpoint.reply_links() if link.key == self.key]
        for link in reversed(links):
            if reply_to is not None and reply_to in (link.target, link.link.name):
                return link
        return links[-1] if links else None


class ReplyLink(LinkEnd):
    """A link over which replies leave; those without credit wait."""

    __slots__ = ("_counter", "_held", "_outgoing", "key", "target")

    def __init__(self, endpoint: AmqpEndpoint, link: OutgoingLink, place: LinkNode | None, key: NodeKey) -> None:
        super().__init__(endpoint, link, place, ANY_RIGHT)
        target = link.attach.target
        self.target = target.address if isinstance(target, Target) else None
        self.key = key
        self._outgoing = link
        self._held: deque[bytes] | None = None
        self._counter = 0

    def start(self) -> None:
        self.shared.replies.append(self)
        self.endpoint.handle(self.link.accept(max_message_size=UNLIMITED_SIZE))

    def gone(self) -> None:
        super().gone()
        if self in self.shared.replies:
            self.shared.replies.remove(self)
        self._drop_held()

    def send(self, payload: bytes) -> None:
        if self._outgoing.sendable <= 0 or self._held or self.endpoint.blocked:
            self._hold(payload)
            return
        self._counter += 1
        self._outgoing.send(self._counter.to_bytes(8, "big"), payload, True)
        self.endpoint.wake()

    def _hold(self, payload: bytes) -> None:
        if self._held is None:
            self._held = deque()
        endpoint = self.endpoint
        most = AMQP_REPLIES_HELD_BYTES if endpoint.connection.known else AMQP_STRANGER_BYTES
        if len(self._held) >= AMQP_REPLIES_HELD or endpoint.held_reply_bytes + len(payload) > most:
            self.close(QuotaExceeded("Too many replies wait for credit."))
            return
        self._held.append(payload)
        endpoint.held_reply_bytes += len(payload)

    def _drop_held(self) -> None:
        for payload in self._held or ():
            self.endpoint.held_reply_bytes -= len(payload)
        self._held = None

    def resume(self) -> None:
        """Sends what waited for credit, for the session's window or for the transport."""
        held = self._held
        self._held = None
        while held and self._outgoing.sendable > 0 and not self.endpoint.blocked:
            payload = held.popleft()
            self.endpoint.held_reply_bytes -= len(payload)
            self.send(payload)
        if held:
            self._held = held

    def credit_changed(self) -> None:
        self.resume()
        if self._outgoing.drain:
            self._outgoing.drained()
