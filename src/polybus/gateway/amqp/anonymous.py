"""A link over which a client sends to whatever each message names: its target is the anonymous terminus.

Rights are asked for each message, and the entity is found for each. Where the bus makes entities on demand, a message
to one that is not there waits until it is. docs/protocol/amqp.md#anonymous-senders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polybus.amqp.events import IncomingDelivery
from polybus.amqp.incoming import IncomingLink
from polybus.errors import ArgumentError, InvalidOperation, MessageTooLarge, Unauthorized
from polybus.gateway.amqp.addresses import parsed, uri_of
from polybus.gateway.amqp.send import SendingLink
from polybus.gateway.sas import Rights, scope_of
from polybus.message.message import TO, Message
from polybus.namespace.entities.entity import Entity
from polybus.namespace.entities.names import Address
from polybus.promise import Promise, spawn

if TYPE_CHECKING:
    from polybus.gateway.amqp.endpoint import AmqpEndpoint

_JMS_DESTINATION: Final = "x-opt-jms-dest"
_JMS_TOPICS: Final = (1, 3)
"""A topic, and a temporary one, in JMS's own count of destinations."""


class AnonymousSendLink(SendingLink):
    """Sends to the address in each message's `to`."""

    __slots__ = ()

    def __init__(self, endpoint: AmqpEndpoint, link: IncomingLink) -> None:
        if not endpoint.access.granted:
            raise Unauthorized("Unauthorized access. Sending needs the right to: no token was shown.")
        super().__init__(endpoint, link, None, endpoint.namespace)

    def start(self) -> None:
        self.accept(self.namespace.tier.message_kilobytes * 1024, {})

    def send(self, delivery: IncomingDelivery, messages: list[Message]) -> None:
        first = messages[0]
        address = self._address(messages)
        scope, uri = scope_of(address.path), uri_of(self.namespace, address)
        self.endpoint.access.require(scope, Rights.SEND, uri)
        if self.endpoint.gateway.on_demand and self.namespace.find(address.entity) is None:
            self.endpoint.access.require(scope, Rights.MANAGE, uri)
            topic = first.annotations().get(_JMS_DESTINATION) in _JMS_TOPICS
            self.endpoint.begun(0)
            making = spawn(self.endpoint.maker.entity(address.entity, topic))
            making.then(lambda made: self._send_to_made(made, delivery, messages))
            return
        self._send_to(self.namespace.entity(address.entity), delivery, messages)

    def _address(self, messages: list[Message]) -> Address:
        names = {message.properties()[TO] for message in messages}
        name = names.pop() if len(names) == 1 else None
        if not isinstance(name, str) or not name:
            raise ArgumentError("Over a link without a target each message says where it goes: 'to' is missing.")
        address = parsed(self.namespace, name)
        if address != Address(address.entity):
            raise InvalidOperation(f"Messages cannot be sent to '{address.path}': it is part of another entity.")
        return address

    def _send_to_made(self, made: Promise[Entity], delivery: IncomingDelivery, messages: list[Message]) -> None:
        try:
            self._send_to(made.result(), delivery, messages)
        except Exception as error:
            self.refuse_delivery(delivery, error)
        self.endpoint.ended(0)

    def _send_to(self, entity: Entity, delivery: IncomingDelivery, messages: list[Message]) -> None:
        entity.check_sendable()
        if len(delivery.payload) > entity.max_message_bytes:
            raise MessageTooLarge(
                f"The message exceeds the limit of {entity.max_message_bytes} bytes on '{entity.name}'."
            )
        self.send_to(entity, self.stats_of(entity), None, delivery, messages)
