"""What a client decides on a message that it was given: its outcome becomes one verb of the partition.

The answer has the outcome's own type and leaves after the commit; a decision that comes settled gets none. A failure
is rejected with an error, whatever was asked for. docs/protocol/amqp.md#outcomes, docs/protocol/amqp.md#confirmations.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from polybus.amqp.events import OutgoingDelivery
from polybus.amqp.outcomes import (
    ACCEPTED_BYTES,
    MODIFIED_BYTES,
    REJECTED_BYTES,
    RELEASED_BYTES,
    Accepted,
    DeliveryState,
    Modified,
    Rejected,
    TransactionalState,
)
from polybus.amqp.outgoing import OutgoingLink
from polybus.amqp.types import AmqpArray, Described
from polybus.clock import Now
from polybus.errors import ArgumentError, InvalidOperation, PolybusError
from polybus.gateway.amqp.addresses import LinkNode
from polybus.gateway.amqp.errors import new_tracking_id, rejected
from polybus.gateway.amqp.link_end import LinkEnd
from polybus.gateway.sas import Rights
from polybus.gateway.stats import EntityStats
from polybus.message.outcome import ABANDON, COMPLETE, DEAD_LETTER, DEFER
from polybus.message.overlay import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from polybus.namespace.delivery.source import Delivery
from polybus.promise import C, Promise, Reply

if TYPE_CHECKING:
    from polybus.gateway.amqp.endpoint import AmqpEndpoint

CONFIRMATIONS: Final[dict[str, bytes]] = {
    COMPLETE: ACCEPTED_BYTES,
    ABANDON: MODIFIED_BYTES,
    DEFER: MODIFIED_BYTES,
    DEAD_LETTER: REJECTED_BYTES,
}


class Decision:
    """An outcome in the bus's words."""

    __slots__ = ("description", "outcome", "properties", "reason")

    def __init__(
        self,
        outcome: str,
        properties: dict[str, object] | None = None,
        reason: str | None = None,
        description: str | None = None,
    ) -> None:
        self.outcome = outcome
        self.properties = properties
        self.reason = reason
        self.description = description


def decision_of(state: DeliveryState | None) -> Decision | None:
    """What an outcome asks for; None where the message is only given back."""
    if isinstance(state, Accepted):
        return Decision(COMPLETE)
    if isinstance(state, Modified):
        outcome = DEFER if state.undeliverable_here else ABANDON
        return Decision(outcome, properties_of(state.message_annotations))
    if isinstance(state, Rejected):
        return _dead_letter(state)
    return None


def _dead_letter(state: Rejected) -> Decision:
    """Reason and description travel in the error's details, beside properties to be changed."""
    properties = None if state.error is None else properties_of(state.error.info)
    if not properties:
        return Decision(DEAD_LETTER)
    reason = text_of(properties.pop(DEAD_LETTER_REASON, None))
    description = text_of(properties.pop(DEAD_LETTER_DESCRIPTION, None))
    return Decision(DEAD_LETTER, properties, reason, description)


def text_of(value: object) -> str | None:
    """A reason or a description; what is no text counts as missing."""
    return str(value) if isinstance(value, str) else None


def properties_of(given: object) -> dict[str, object] | None:
    """Properties to be changed, whose names may come as symbols or strings; only plain values may be set."""
    if not given:
        return None
    if not isinstance(given, dict):
        raise ArgumentError("The properties to modify are not a map.")
    for value in given.values():
        if isinstance(value, (list, dict, AmqpArray, Described)):
            raise ArgumentError("A property can be set to a plain value only.")
    return {str(name): value for name, value in given.items()}


def settle(held: Delivery, decision: Decision, now: Now, reply: Reply[C, None] | None, context: C) -> None:
    """Carries a decision out; replies after the commit, or raises at once and nothing has happened."""
    held.partition.settle(
        held,
        now,
        decision.outcome,
        decision.reason,
        decision.description,
        decision.properties,
        reply,
        context,
    )


class SettlingLink(LinkEnd):
    """A link whose deliveries the client decides on."""

    __slots__ = ("full", "in_transactions", "outgoing", "stats", "telemetry")

    def __init__(self, endpoint: AmqpEndpoint, link: OutgoingLink, place: LinkNode) -> None:
        super().__init__(endpoint, link, place, Rights.LISTEN)
        self.outgoing = link
        self.in_transactions: dict[int, SettlementInTransaction] = {}
        """By delivery-id: what waits for the end of a transaction."""
        self.full = False
        """The client has so many decisions to make that it gets no more messages."""
        self.stats = endpoint.gateway.stats.entity(place.namespace.name, place.stats_path())
        self.telemetry = endpoint.gateway.telemetry  # asked for once, for that costs

    def disposed(self, outgoing: OutgoingDelivery, state: DeliveryState | None, settled: bool, now: Now) -> None:
        held = outgoing.context
        assert isinstance(held, Delivery), "a delivery of a receiving link holds the namespace's own"
        try:
            if settled:
                self._settle_quietly(outgoing, held, state, now)
            elif isinstance(state, Accepted):
                held.partition.complete(held, now, _completed, outgoing)
                self.endpoint.begun(0)
            elif isinstance(state, TransactionalState):
                self._settle_in_transaction(outgoing, held, state, False)
            else:
                self._settle_otherwise(outgoing, held, state, now)
        except Exception as error:
            self.refuse_settlement(outgoing, error, settled)
        if self.full:
            self.resume()

    def _settle_quietly(
        self, outgoing: OutgoingDelivery, held: Delivery, state: DeliveryState | None, now: Now
    ) -> None:
        """The client has settled on its side and waits for nothing."""
        if isinstance(state, TransactionalState):
            self._settle_in_transaction(outgoing, held, state, True)
        else:
            self.settle_without_answer(held, state, now)

    def settle_without_answer(self, held: Delivery, state: DeliveryState | None, now: Now) -> None:
        decision = decision_of(state)
        if decision is None:
            held.partition.release(held, now, None, None)
        else:
            settle(held, decision, now, None, None)
            count(self.stats, decision.outcome)

    def _settle_otherwise(
        self, outgoing: OutgoingDelivery, held: Delivery, state: DeliveryState | None, now: Now
    ) -> None:
        decision = decision_of(state)
        if decision is None:
            held.partition.release(held, now, self._released, outgoing)
            return
        reply = self._dead_lettered
        if decision.outcome == ABANDON:
            reply = self._abandoned
        elif decision.outcome == DEFER:
            reply = self._deferred
        settle(held, decision, now, reply, outgoing)
        self.endpoint.begun(0)

    def completed(self, context: OutgoingDelivery, error: PolybusError | None) -> None:
        if error is None:
            self.stats.completed += 1
            if self.telemetry is not None:
                self._trace_settled(context, COMPLETE)
            context.settle(ACCEPTED_BYTES)
            self.endpoint.wake()
        else:
            self.refuse_settlement(context, error, False)
        self.endpoint.ended(0)

    def _trace_settled(self, outgoing: OutgoingDelivery, outcome: str) -> None:
        telemetry, held = self.telemetry, outgoing.context
        if telemetry is not None and self.place is not None and isinstance(held, Delivery):
            telemetry.settled(self.place.path, held.message, outcome)

    def _released(self, context: OutgoingDelivery, result: None, error: PolybusError | None) -> None:
        del result
        if error is None:
            context.settle(RELEASED_BYTES)
            self.endpoint.wake()
        else:
            self.refuse_settlement(context, error, False)

    def _abandoned(self, context: OutgoingDelivery, result: None, error: PolybusError | None) -> None:
        del result
        self._confirm(context, ABANDON, error)

    def _deferred(self, context: OutgoingDelivery, result: None, error: PolybusError | None) -> None:
        del result
        self._confirm(context, DEFER, error)

    def _dead_lettered(self, context: OutgoingDelivery, result: None, error: PolybusError | None) -> None:
        del result
        self._confirm(context, DEAD_LETTER, error)

    def _confirm(self, context: OutgoingDelivery, outcome: str, error: PolybusError | None) -> None:
        if error is None:
            count(self.stats, outcome)
            if self.telemetry is not None:
                self._trace_settled(context, outcome)
            context.settle(CONFIRMATIONS[outcome])
            self.endpoint.wake()
        else:
            self.refuse_settlement(context, error, False)
        self.endpoint.ended(0)

    def refuse_settlement(self, outgoing: OutgoingDelivery, error: Exception, settled: bool) -> None:
        tracking_id = self._note_refusal(error)
        if not settled:
            outgoing.settle(rejected(error, tracking_id))
        self.endpoint.wake()

    def _note_refusal(self, error: Exception) -> str:
        tracking_id = new_tracking_id(self.endpoint.id)
        self.report(error, tracking_id, "a settlement was rejected")
        if isinstance(error, PolybusError):
            self.stats.refused(error)
        return tracking_id

    # Transactions

    def _settle_in_transaction(
        self, outgoing: OutgoingDelivery, held: Delivery, state: TransactionalState, settled: bool
    ) -> None:
        """Until the end of the transaction the delivery is unsettled; a client may say later that it has settled it."""
        before = self.in_transactions.get(outgoing.delivery_id)
        if before is not None and before.txn_id == state.txn_id:
            before.settled = before.settled or settled
            if not settled:
                outgoing.hold(before.answer)
            return
        answer = TransactionalState(state.txn_id, confirmation_of(state.outcome))
        waiting = SettlementInTransaction(self, outgoing, held, answer, settled)
        self._hold_in_transaction(held, state).then(waiting.held_by_partition)

    def _hold_in_transaction(self, held: Delivery, state: TransactionalState) -> Promise[None]:
        decision = decision_of(state.outcome)
        if decision is None:
            raise InvalidOperation("A message cannot be released inside a transaction.")
        place = self.place
        assert place is not None, "messages are received from a place"
        return self.endpoint.transactions.settle(state.txn_id, place.entity, held, decision)


class SettlementInTransaction:
    """A delivery whose settlement waits for its transaction.

    Committed, it is settled. Rolled back, a delivery that the client has not settled is as it was before: its receiver
    still holds the lock, and may decide anew. One that the client has settled it has forgotten, and so has the Java SDK
    in any case: the message is given back at once, as one that was delivered in vain
    (docs/protocol/transactions.md#rollback).
    """

    __slots__ = ("_held", "_link", "_outgoing", "answer", "settled")

    def __init__(
        self,
        link: SettlingLink,
        outgoing: OutgoingDelivery,
        held: Delivery,
        answer: TransactionalState,
        settled: bool,
    ) -> None:
        self._link = link
        self._outgoing = outgoing
        self._held = held
        self.answer = answer
        self.settled = settled

    @property
    def txn_id(self) -> bytes:
        return self.answer.txn_id

    def held_by_partition(self, promise: Promise[None]) -> None:
        """The partition has taken the settlement into the transaction, or has not."""
        try:
            promise.result()
        except PolybusError as error:
            self._link.refuse_settlement(self._outgoing, error, self.settled)
            return
        self._link.in_transactions[self._outgoing.delivery_id] = self
        if not self.settled:
            self._outgoing.hold(self.answer)
        self._link.endpoint.transactions.follow(self.txn_id, self)
        self._link.endpoint.wake()

    def _forget(self) -> None:
        if self._link.in_transactions.get(self._outgoing.delivery_id) is self:
            del self._link.in_transactions[self._outgoing.delivery_id]

    def committed(self) -> None:
        self._forget()
        if not self.settled:
            self._outgoing.settle_held(self.answer)
            self._link.endpoint.wake()

    def rolled_back(self) -> None:
        self._forget()
        endpoint = self._link.endpoint
        if not self.settled and not endpoint.is_java_sdk:
            return
        with contextlib.suppress(PolybusError):  # its lock may have ended meanwhile
            settle(self._held, Decision(ABANDON), endpoint.clock.now(), None, None)
        self._outgoing.settle_held(MODIFIED_BYTES)
        endpoint.wake()


def _completed(context: OutgoingDelivery, result: None, error: PolybusError | None) -> None:
    """The partition's reply. A function, for a method of the link would be made anew for each message."""
    del result
    end = context.owner
    assert isinstance(end, SettlingLink), "who completes was given the message by a receiving link"
    end.completed(context, error)


def confirmation_of(outcome: DeliveryState | None) -> DeliveryState | None:
    """The outcome as it is confirmed: without its error, which some SDKs would take for a failure.

    docs/protocol/amqp.md#bare-rejected.
    """
    if isinstance(outcome, Rejected):
        return Rejected()
    return Modified() if isinstance(outcome, Modified) else outcome


def count(stats: EntityStats, outcome: str) -> None:
    if outcome == COMPLETE:
        stats.completed += 1
    elif outcome == ABANDON:
        stats.abandoned += 1
    elif outcome == DEFER:
        stats.deferred += 1
    else:
        stats.dead_lettered += 1
