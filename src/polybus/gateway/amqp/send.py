"""A link over which a client sends to a queue or a topic.

Each transfer becomes one send of the namespace, all or nothing, and is accepted when that is committed. Refusals
are rejected with a full error, never released or modified, on which the Python SDK would wait for ever
(docs/protocol/amqp.md#answers-to-sends). Whatever goes wrong with one message ends with that message.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from polybus.amqp.events import Delivery
from polybus.amqp.incoming import IncomingLink
from polybus.amqp.outcomes import ACCEPTED, ACCEPTED_BYTES, TransactionalState
from polybus.amqp.types import Symbol
from polybus.errors import MessageTooLarge, NotImplementedByBus, PolybusError, ServerBusy
from polybus.gateway.amqp.addresses import Place
from polybus.gateway.amqp.batch import BATCH_FORMAT, batch_messages
from polybus.gateway.amqp.errors import new_tracking_id, rejected
from polybus.gateway.amqp.link_end import LinkEnd
from polybus.gateway.amqp.properties import check_properties
from polybus.gateway.amqp.sections import client_message
from polybus.gateway.sas import Rights
from polybus.limits import AMQP_SEND_CREDIT
from polybus.message.message import Message
from polybus.promise import Promise, spawn

if TYPE_CHECKING:
    from polybus.gateway.amqp.endpoint import AmqpEndpoint

TRANSFER_DESTINATION: Final = "com.microsoft:transfer-destination-address"
BATCH_SIZE: Final = "com.microsoft:max-message-batch-size"


class _Sending:
    """A send that is under way."""

    __slots__ = ("arrived_s", "bytes", "delivery_id", "messages")

    def __init__(self, delivery_id: int, messages: int, size: int, arrived_s: float) -> None:
        self.delivery_id = delivery_id
        self.messages = messages
        self.bytes = size
        self.arrived_s = arrived_s


class SendLink(LinkEnd):
    """Sends to `place`, or through its outbox to `destination` where the client asked for that."""

    __slots__ = ("_destination", "_incoming", "_namespace", "_stats", "_target", "_via")

    def __init__(self, endpoint: AmqpEndpoint, link: IncomingLink, place: Place, destination: Place | None) -> None:
        super().__init__(endpoint, link, place, Rights.SEND)
        self.note_entity(place.entity)
        self._incoming = link
        self._namespace = place.namespace
        self._destination = destination
        self._target = place.entity if destination is None else destination.entity
        self._via = None if destination is None else place.entity
        self._stats = endpoint.gateway.stats.entity(place.namespace.name, self._target.name)

    def start(self) -> None:
        size = self._namespace.max_message_bytes(self._target)
        properties: dict[object, object] = {Symbol(BATCH_SIZE): size}
        if self._destination is not None:
            properties[Symbol(TRANSFER_DESTINATION)] = self._destination.path
        events = self.link.accept(properties=properties, max_message_size=size)
        self._incoming.grant(AMQP_SEND_CREDIT)
        self.endpoint.handle(events)

    def check_place(self, place: Place) -> None:
        place.entity.check_sendable()

    def places(self) -> list[Place]:
        found = super().places()
        return found if self._destination is None else [*found, self._destination]

    def delivered(self, delivery: Delivery) -> None:
        endpoint = self.endpoint
        try:
            messages = self._messages(delivery)
            for message in messages:
                check_properties(message)
            if endpoint.stopping:
                raise ServerBusy("The bus is shutting down; try again.")
            sending = _Sending(
                -1 if delivery.settled else delivery.delivery_id,
                len(messages),
                len(delivery.payload),
                time.perf_counter(),
            )
            if delivery.state is not None or self._via is not None:
                self._send_otherwise(delivery, messages, sending)
                return
            endpoint.begun(sending.bytes)
            try:
                self._namespace.send(self._target, messages, self._answered, sending)
            except BaseException:
                endpoint.ended(sending.bytes)
                raise
        except Exception as error:
            if isinstance(delivery.state, TransactionalState):
                endpoint.transactions.note_refused_send(delivery.state.txn_id)
            self._refuse(delivery.delivery_id, error)

    def _messages(self, delivery: Delivery) -> list[Message]:
        if delivery.oversized:
            size = self.link.max_message_size
            raise MessageTooLarge(f"The message exceeds the limit of {size} bytes on '{self._target.name}'.")
        if delivery.message_format <= 0:
            return [client_message(delivery.payload)]
        if delivery.message_format == BATCH_FORMAT:
            return batch_messages(delivery.payload)
        raise NotImplementedByBus(f"The message format 0x{delivery.message_format:x} is not supported.")

    def _answered(self, context: object, result: object, error: PolybusError | None) -> None:
        """The namespace's reply, after the commit."""
        del result
        assert isinstance(context, _Sending)
        if error is None:
            self._count(context)
            self._incoming.settle_incoming(context.delivery_id, ACCEPTED_BYTES)
            self.endpoint.wake()
        else:
            self._refuse(context.delivery_id, error)
        self.endpoint.ended(context.bytes)

    def _count(self, sending: _Sending) -> None:
        self._stats.accepted(sending.messages, sending.bytes, time.perf_counter() - sending.arrived_s)

    def _refuse(self, delivery_id: int, error: Exception) -> None:
        tracking_id = new_tracking_id(self.endpoint.id)
        self.report(error, tracking_id, "a send was rejected")
        if isinstance(error, PolybusError):
            self._stats.refused(error)
        self._incoming.settle_incoming(delivery_id, rejected(error, tracking_id))
        self.endpoint.wake()

    # Transactions and send-via

    def _send_otherwise(self, delivery: Delivery, messages: list[Message], sending: _Sending) -> None:
        state = delivery.state
        if isinstance(state, TransactionalState):
            self.endpoint.transactions.send(state.txn_id, self.shared, self._target, messages, self._via)
            self._count(sending)
            answer = TransactionalState(state.txn_id, ACCEPTED)
            self._incoming.settle_incoming(sending.delivery_id, answer)
        else:
            self._send_via(messages, sending)

    def _send_via(self, messages: list[Message], sending: _Sending) -> None:
        """A send through another entity's outbox is a transaction of its own."""
        transactions = self._namespace.transactions
        transaction = transactions.declare()
        try:
            transaction.send(self._target, messages, self._via)
        except BaseException:
            transaction.roll_back()
            raise
        self.endpoint.begun(sending.bytes)

        def committed(promise: Promise[None]) -> None:
            error: PolybusError | None = None
            try:
                promise.result()
            except PolybusError as raised:
                error = raised
            self._answered(sending, None, error)

        spawn(transactions.discharge(transaction, False)).then(committed)
