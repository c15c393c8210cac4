"""Links over which a client sends to a queue or a topic.

Each transfer becomes one send of the namespace, all or nothing, and is accepted when that is committed. Refusals
are rejected with a full error, never released or modified, on which the Python SDK would wait for ever
(docs/protocol/amqp.md#answers-to-sends). Whatever goes wrong with one message ends with that message.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from polybus.amqp.events import IncomingDelivery
from polybus.amqp.incoming import IncomingLink
from polybus.amqp.outcomes import ACCEPTED, ACCEPTED_BYTES, TransactionalState
from polybus.amqp.types import Symbol
from polybus.errors import DuplicateDropped, MessageTooLarge, NotImplementedByBus, PolybusError, ServerBusy
from polybus.gateway.amqp.addresses import LinkNode
from polybus.gateway.amqp.errors import new_tracking_id, rejected
from polybus.gateway.amqp.link_end import LinkEnd
from polybus.gateway.amqp.sent_messages import (
    BATCH_FORMAT,
    Batch,
    batch_messages,
    check_properties,
    client_message,
)
from polybus.gateway.sas import Rights
from polybus.gateway.stats import EntityStats
from polybus.gateway.telemetry import TracedSend
from polybus.limits import AMQP_SEND_CREDIT
from polybus.message.message import Message
from polybus.namespace.entities.entity import Entity
from polybus.namespace.namespace import Namespace
from polybus.promise import Promise, spawn

if TYPE_CHECKING:
    from polybus.gateway.amqp.endpoint import AmqpEndpoint

TRANSFER_DESTINATION: Final = "com.microsoft:transfer-destination-address"
ON_DUPLICATE: Final = "polybus-on-duplicate"
"""A property by which a message asks that its sender hears when it is dropped."""
REJECT: Final = "reject"
_ON_DUPLICATE: Final = ON_DUPLICATE.encode()
BATCH_SIZE: Final = "com.microsoft:max-message-batch-size"


class _Sending:
    """A send that is under way."""

    __slots__ = ("arrived_s", "bytes", "delivery_id", "end", "messages", "stats", "tells_duplicates", "traced")

    def __init__(
        self,
        end: SendingLink,
        stats: EntityStats,
        delivery: IncomingDelivery,
        messages: int,
        tells_duplicates: bool,
    ) -> None:
        self.end = end
        self.stats = stats
        self.delivery_id = -1 if delivery.settled else delivery.delivery_id
        self.messages = messages
        self.bytes = len(delivery.payload)
        self.arrived_s = time.perf_counter()
        self.traced: TracedSend | None = None
        self.tells_duplicates = tells_duplicates
        """Whether the sender wants to hear that something was dropped."""


def _asks_to_hear(messages: list[Message]) -> bool:
    """Whether a message asks that its sender is told when it is dropped as a duplicate."""
    for message in messages:
        if _ON_DUPLICATE in message.raw and message.application_properties().get(ON_DUPLICATE) == REJECT:
            return True
    return False


def _dropped(numbers: object) -> PolybusError | None:
    """What a sender hears who wants to; those that were not dropped are stored all the same."""
    count = numbers.count(0) if isinstance(numbers, list) else 0
    if not count:
        return None
    assert isinstance(numbers, list)
    text = f"{count} of {len(numbers)} messages were dropped as duplicates; the others are stored."
    return DuplicateDropped(text if len(numbers) > 1 else "The message was dropped as a duplicate.")


class SendingLink(LinkEnd):
    """What links to one entity and links without a target have in common."""

    __slots__ = ("_batch", "_incoming", "_sender", "_telemetry", "namespace")

    def __init__(
        self, endpoint: AmqpEndpoint, link: IncomingLink, place: LinkNode | None, namespace: Namespace
    ) -> None:
        super().__init__(endpoint, link, place, Rights.SEND)
        self._incoming = link
        self._batch: Batch | None = None
        """The one that is being taken apart."""
        self.namespace = namespace
        # Asked for once: each of these costs as much as a step of a send.
        self._sender = namespace.sender
        self._telemetry = endpoint.gateway.telemetry

    def accept(self, size: int, properties: dict[object, object]) -> None:
        """Answers the attach and lets the client send."""
        events = self.link.accept(properties={Symbol(BATCH_SIZE): size, **properties}, max_message_size=size)
        self._incoming.grant(AMQP_SEND_CREDIT)
        self.endpoint.handle(events)

    def send(self, delivery: IncomingDelivery, messages: list[Message]) -> None:
        """Sends them to where they are to go."""
        raise NotImplementedError

    def stats_of(self, entity: Entity) -> EntityStats:
        return self.endpoint.gateway.stats.entity(self.namespace.name, entity.name)

    def unpacked(self, delivery: IncomingDelivery, until_s: float) -> bool:
        """Takes a batch apart for as long as the turn lasts; what is wrong with it `delivered` finds again."""
        batch = self._batch
        if batch is None:
            if delivery.oversized:
                return True
            batch = self._batch = Batch(delivery.payload)
        try:
            while not batch.take_apart():
                if time.perf_counter() > until_s:
                    return False
        except PolybusError:
            self._batch = None
        return True

    def delivered(self, delivery: IncomingDelivery) -> None:
        batch, self._batch = self._batch, None
        try:
            messages = self._messages(delivery) if batch is None else batch.messages
            if self.endpoint.stopping:
                raise ServerBusy("The bus is shutting down; try again.")
            self.send(delivery, messages)
        except Exception as error:
            self.refuse_delivery(delivery, error)

    def _messages(self, delivery: IncomingDelivery) -> list[Message]:
        if delivery.oversized:
            size = self.link.max_message_size
            where = "" if self.place is None else f" on '{self.place.path}'"
            raise MessageTooLarge(f"The message exceeds the limit of {size} bytes{where}.")
        if delivery.message_format <= 0:
            message = client_message(delivery.payload)
            check_properties(message)
            return [message]
        if delivery.message_format == BATCH_FORMAT:
            return batch_messages(delivery.payload)
        raise NotImplementedByBus(f"The message format 0x{delivery.message_format:x} is not supported.")

    def send_to(
        self,
        target: Entity,
        stats: EntityStats,
        via: Entity | None,
        delivery: IncomingDelivery,
        messages: list[Message],
    ) -> None:
        sending = _Sending(
            self, stats, delivery, len(messages), target.detects_duplicates and _asks_to_hear(messages)
        )
        if delivery.state is not None or via is not None:
            self._send_otherwise(target, via, delivery, messages, sending)
            return
        if self._telemetry is not None:
            sending.traced = self._telemetry.sending(target.name, messages)
        self.endpoint.begun(sending.bytes)
        try:
            self._sender.send(target, messages, _answered, sending)
        except BaseException:
            self.endpoint.ended(sending.bytes)
            raise

    def answered(self, context: _Sending, result: list[int] | None, error: PolybusError | None) -> None:
        """The namespace's reply, after the commit."""
        if error is None and context.tells_duplicates:
            error = _dropped(result)
        if context.traced is not None and self._telemetry is not None:
            self._telemetry.sent(context.traced, error)
        if error is None:
            _count(context)
            self._incoming.settle_incoming(context.delivery_id, ACCEPTED_BYTES)
            self.endpoint.wake()
        else:
            self._refuse(context.delivery_id, context.stats, error)
        self.endpoint.ended(context.bytes)

    def refuse_delivery(self, delivery: IncomingDelivery, error: Exception) -> None:
        if isinstance(delivery.state, TransactionalState):
            self.endpoint.transactions.note_refused_send(delivery.state.txn_id)
        self._refuse(delivery.delivery_id, self._own_stats(), error)

    def _own_stats(self) -> EntityStats | None:
        """Where refusals count that come before it is known where a message goes."""
        return None

    def _refuse(self, delivery_id: int, stats: EntityStats | None, error: Exception) -> None:
        tracking_id = new_tracking_id(self.endpoint.id)
        self.report(error, tracking_id, "a send was rejected")
        if stats is not None and isinstance(error, PolybusError):
            stats.refused(error)
        self._incoming.settle_incoming(delivery_id, rejected(error, tracking_id))
        self.endpoint.wake()

    # Transactions and send-via

    def _send_otherwise(
        self,
        target: Entity,
        via: Entity | None,
        delivery: IncomingDelivery,
        messages: list[Message],
        sending: _Sending,
    ) -> None:
        state = delivery.state
        if isinstance(state, TransactionalState):
            self.endpoint.transactions.send(state.txn_id, self.shared, target, messages, via)
            _count(sending)
            answer = TransactionalState(state.txn_id, ACCEPTED)
            self._incoming.settle_incoming(sending.delivery_id, answer)
        else:
            self._send_via(target, via, messages, sending)

    def _send_via(self, target: Entity, via: Entity | None, messages: list[Message], sending: _Sending) -> None:
        """A send through another entity's outbox is a transaction of its own."""
        transactions = self.namespace.transactions
        transaction = transactions.declare()
        try:
            transaction.send(target, messages, via)
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
            self.answered(sending, None, error)

        spawn(transactions.discharge(transaction, False)).then(committed)


def _answered(context: _Sending, result: list[int] | None, error: PolybusError | None) -> None:
    """The namespace's reply. A function, for a method of the link would be made anew for each message."""
    context.end.answered(context, result, error)


def _count(sending: _Sending) -> None:
    sending.stats.accepted(sending.messages, sending.bytes, time.perf_counter() - sending.arrived_s)


class SendLink(SendingLink):
    """Sends to `place`, or through its outbox to `destination` where the client asked for that."""

    __slots__ = ("_destination", "_stats", "_target", "_via")

    def __init__(
        self, endpoint: AmqpEndpoint, link: IncomingLink, place: LinkNode, destination: LinkNode | None
    ) -> None:
        super().__init__(endpoint, link, place, place.namespace)
        self.note_entity(place.entity)
        self._destination = destination
        self._target = place.entity if destination is None else destination.entity
        self._via = None if destination is None else place.entity
        self.quick = not self._target.is_topic  # a topic's rules may take their time
        self._stats = self.stats_of(self._target)

    def start(self) -> None:
        properties: dict[object, object] = {}
        if self._destination is not None:
            properties[Symbol(TRANSFER_DESTINATION)] = self._destination.path
        self.accept(self.namespace.max_message_bytes(self._target), properties)

    def check_place(self, place: LinkNode) -> None:
        place.entity.check_sendable()

    def places(self) -> list[LinkNode]:
        found = super().places()
        return found if self._destination is None else [*found, self._destination]

    def send(self, delivery: IncomingDelivery, messages: list[Message]) -> None:
        self.send_to(self._target, self._stats, self._via, delivery, messages)

    def _own_stats(self) -> EntityStats | None:
        return self._stats
