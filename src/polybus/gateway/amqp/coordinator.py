"""The link over which a client begins and ends transactions: declare and discharge.

docs/protocol/transactions.md#coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polybus.amqp.events import IncomingDelivery
from polybus.amqp.incoming import IncomingLink
from polybus.amqp.outcomes import ACCEPTED_BYTES, Declare, Declared, transaction_request
from polybus.errors import PolybusError
from polybus.gateway.amqp.errors import new_tracking_id, rejected
from polybus.gateway.amqp.link_end import LinkEnd
from polybus.gateway.amqp.requests import ANY_RIGHT, UNLIMITED_SIZE, value_of
from polybus.limits import AMQP_REQUEST_CREDIT
from polybus.message.message import Message
from polybus.promise import Promise, spawn

if TYPE_CHECKING:
    from polybus.gateway.amqp.endpoint import AmqpEndpoint


class CoordinatorLink(LinkEnd):
    """Transactions declared here are rolled back when the link goes."""

    __slots__ = ("_incoming",)

    def __init__(self, endpoint: AmqpEndpoint, link: IncomingLink) -> None:
        super().__init__(endpoint, link, None, ANY_RIGHT)
        self._incoming = link
        self.shared.coordinators += 1

    def start(self) -> None:
        events = self.link.accept(max_message_size=UNLIMITED_SIZE)
        self._incoming.grant(AMQP_REQUEST_CREDIT)
        self.endpoint.handle(events)

    def delivered(self, delivery: IncomingDelivery) -> None:
        try:
            request = transaction_request(value_of(Message(delivery.payload)))
            if isinstance(request, Declare):
                transaction = self.endpoint.transactions.declare(self)
                self._incoming.settle_incoming(delivery.delivery_id, Declared(transaction.id))
            else:
                work = self.endpoint.transactions.discharge(request.txn_id, request.fail)
                self._follow(spawn(work), delivery.delivery_id)
        except PolybusError as error:
            self._refuse(delivery.delivery_id, error)

    def _follow(self, promise: Promise[None], delivery_id: int) -> None:
        self.endpoint.begun(0)

        def discharged(promise: Promise[None]) -> None:
            try:
                promise.result()
                self._incoming.settle_incoming(delivery_id, ACCEPTED_BYTES)
                self.endpoint.wake()
            except Exception as error:
                self._refuse(delivery_id, error)
            self.endpoint.ended(0)

        promise.then(discharged)

    def _refuse(self, delivery_id: int, error: Exception) -> None:
        tracking_id = new_tracking_id(self.endpoint.id)
        self.report(error, tracking_id, "a transaction was refused")
        self._incoming.settle_incoming(delivery_id, rejected(error, tracking_id))
        self.endpoint.wake()

    def gone(self) -> None:
        super().gone()
        self.shared.coordinators -= 1
        self.endpoint.transactions.roll_back(self)
