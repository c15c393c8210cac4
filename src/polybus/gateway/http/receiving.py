"""A receive over HTTP: one message, waited for as long as the client says and is there (docs/protocol/rest.md#operations).

A receive is a receiver with a credit of one. Whatever ends it, its time, its client, its entity or the bus, a message
that was locked for it and has not been answered goes back at once, as if it had never been taken (C2). Also where
the message is to be deleted it is locked first, and removed only when its client is known to wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from polybus.asyncio_bridge import from_promise
from polybus.errors import EntityDeleted, EntityNotFound, InvalidOperation, PolybusError, ServerBusy, ShuttingDown
from polybus.gateway.gateway import Gateway
from polybus.gateway.http.request import Disconnected, HttpCall
from polybus.namespace.delivery.entity_verbs import require_one
from polybus.namespace.delivery.source import Delivery, give_back
from polybus.namespace.entities.entity import Entity, Subscription
from polybus.namespace.entities.names import Address
from polybus.namespace.namespace import Namespace

SESSIONS_REFUSED = (
    "Messages of '{0}' belong to sessions, which cannot be accepted over HTTP. Receive them over AMQP with a session"
    " receiver."
)


class WaitingReceive:
    """A receiver that wants one message: what its source, its entity and the gateway know of it."""

    told = False
    """A stop waits for its answer."""

    def __init__(self) -> None:
        self.credit = 1
        self.deletes = False
        self.outcome: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()

    def deliver(self, delivery: Delivery) -> None:
        self.outcome.set_result(delivery)

    def failed(self, error: PolybusError) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)

    def shut_down(self) -> None:
        self.failed(ShuttingDown("The bus is shutting down. Try again."))

    def hang_up(self) -> None:
        """The server closes its socket."""

    def access_changed(self, namespace: Namespace) -> None:
        """Whoever waits asks again, with a key that is looked at again."""
        del namespace
        self.failed(ServerBusy("Keys of the namespace were changed. Try again."))


class ReceiveTarget:
    """Where a request receives from."""

    def __init__(self, entity: Entity, address: Address) -> None:
        self.entity = entity
        self.address = address
        self.log_id = entity.log_id(address)
        self.subscription: Subscription | None = None
        if address.subscription is not None:
            self.subscription = entity.subscription(address.subscription)

    def check(self) -> None:
        """Raises where nothing can be received here, or no longer."""
        if self.entity.deleted or (self.subscription is not None and self.subscription.deleted):
            raise EntityDeleted(f"The messaging entity '{self.address.path}' could not be found. It was deleted.")
        if self.entity.requires_session(self.address):
            raise InvalidOperation(SESSIONS_REFUSED.format(self.address.path))
        self.entity.check_receivable(self.address)


async def receive_one(call: HttpCall, place: ReceiveTarget, seconds: float) -> Delivery | None:
    """The next message, locked; None where none came in time. Raises Disconnected where the client went away."""
    place.check()
    waiting = WaitingReceive()
    gone = asyncio.ensure_future(call.wait_for_disconnect())
    source = place.entity.source(place.address)
    answered = False
    try:
        with _present(call.gateway, place, waiting):
            source.want(waiting)
            await _wait(waiting.outcome, gone, from_promise(source.drained()), seconds)
            # A client that hung up in this very turn is noticed in the next one.
            await asyncio.sleep(0)
            if gone.done():
                raise Disconnected
            answered = waiting.outcome.done()
            if not answered:
                require_one(place.entity.partitions)
            return waiting.outcome.result() if answered else None
    finally:
        gone.cancel()
        source.forget(waiting)
        outcome = waiting.outcome
        if not answered and outcome.done() and not outcome.cancelled() and outcome.exception() is None:
            give_back(outcome.result())


async def _wait(
    outcome: asyncio.Future[Delivery], gone: asyncio.Future[None], drained: asyncio.Future[None], seconds: float
) -> None:
    """Returns when there is an outcome, when the client has gone, or when what is there was looked at and time is up.

    A message that is there is found even where no time is given: pages that are being read are waited for.
    """
    await asyncio.wait((outcome, gone, drained), return_when=asyncio.FIRST_COMPLETED)
    if seconds > 0 and not outcome.done() and not gone.done():
        await asyncio.wait((outcome, gone), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)


@contextmanager
def _present(gateway: Gateway, place: ReceiveTarget, waiting: WaitingReceive) -> Iterator[None]:
    """Shows the receiver to those who count receivers, and to those who can end it."""
    entity, counted = place.entity, place.subscription or place.entity
    now_ms = gateway.bus.clock.now().wall_ms

    def changed() -> None:
        try:
            place.check()
        except EntityNotFound as error:
            waiting.failed(EntityDeleted(error.description))
        except PolybusError as error:
            waiting.failed(error)

    entity.accessed_ms = now_ms
    counted.accessed_ms = now_ms
    counted.receivers += 1
    entity.watchers[waiting] = changed
    gateway.connections[waiting] = None
    try:
        yield
    finally:
        counted.receivers -= 1
        del entity.watchers[waiting]
        del gateway.connections[waiting]
