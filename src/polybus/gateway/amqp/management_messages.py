"""Management of messages: peek, deferred messages, locks, settling by token, schedules, deleting in bulk.

docs/protocol/management.md#messages, docs/protocol/management.md#batch-delete.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from polybus.amqp.types import AmqpArray, Int, Timestamp
from polybus.errors import ArgumentError, ArgumentOutOfRange, InvalidOperation
from polybus.gateway.amqp.call import ManagementCall, ManagementReply, nothing
from polybus.gateway.amqp.sent_messages import check_properties, client_message
from polybus.gateway.amqp.settling import Decision, count, properties_of, settle
from polybus.limits import AMQP_DELETED_PREMIUM, AMQP_DELETED_STANDARD, AMQP_PEEKED_MESSAGES, AMQP_TURN_MADE
from polybus.message.message import Message
from polybus.message.outcome import ABANDON, COMPLETE, DEAD_LETTER, DEFER
from polybus.message.peeked import Peeked
from polybus.message.rendering import STATE_SCHEDULED, render
from polybus.namespace.delivery import entity_verbs
from polybus.namespace.delivery.source import Delivery
from polybus.promise import Promise, pause

_LONG: Final = 0x81
_TIMESTAMP: Final = 0x83
_NO_BODY: Final = b"\x00\x53\x75\xa0\x00"
_REMOVE_AT_ONCE: Final = 0

_OUTCOMES: Final = {
    "completed": COMPLETE,
    "abandoned": ABANDON,
    "defered": DEFER,
    "deferred": DEFER,
    "suspended": DEAD_LETTER,
}
_RELEASE: Final = "unlocked"


async def peek(call: ManagementCall) -> ManagementReply:
    first = max(call.number("from-sequence-number", 0), 0)
    wanted = call.number("message-count", 1)
    if wanted < 1:
        raise ArgumentOutOfRange("The field 'message-count' must be 1 or more.")
    session = call.session_id()
    found = await _peek(call, first, min(wanted, AMQP_PEEKED_MESSAGES), session)
    if not found:
        return nothing()
    without_body = call.get("omit-message-body") is True
    messages: list[object] = [{"message": _rendered(item, without_body)} for item in found]
    return ManagementReply({"messages": messages})


async def _peek(call: ManagementCall, first: int, wanted: int, session: str | None) -> list[Peeked]:
    log_id = call.place.log_id()
    only_scheduled = call.entity.is_topic and call.place.subscription is None and call.place.address.sub_queue is None
    while True:
        found = await entity_verbs.peek(call.namespace, call.entity, log_id, first, wanted, session)
        if not found or not only_scheduled:
            return found
        scheduled = [item for item in found if item.marks.state == STATE_SCHEDULED]
        if scheduled:
            return scheduled
        first = found[-1].marks.sequence + 1


def _rendered(item: Peeked, without_body: bool) -> bytes:
    message = item.message
    if without_body and message.body_at:
        message = Message(message.raw[: message.body_at] + _NO_BODY)
    return render(message, item.marks)


async def receive_deferred(call: ManagementCall) -> ManagementReply:
    call.entity.check_receivable(call.place.address)
    held = call.held_session() if call.entity.requires_session(call.place.address) else None
    lock = call.number("receiver-settle-mode", 1) != _REMOVE_AT_ONCE
    deliveries = await entity_verbs.receive_deferred(
        call.namespace, call.entity, call.place.log_id(), call.numbers("sequence-numbers"), lock, held
    )
    stats = call.stats()
    messages: list[object] = []
    for delivery in deliveries:
        messages.append(_deferred(delivery, lock))
        stats.outgoing_messages += 1
        stats.outgoing_bytes += delivery.size
    return ManagementReply({"messages": messages})


def _deferred(delivery: Delivery, lock: bool) -> dict[str, object]:
    """The token stands beside the message and inside it: SDKs differ in where they look.

    docs/protocol/management.md#token-in-both-places.
    """
    if not lock:
        return {"message": render(delivery.message, delivery)}
    token = delivery.lock_token = delivery.token
    return {"message": render(delivery.message, delivery), "lock-token": UUID(bytes=token)}


async def renew_locks(call: ManagementCall) -> ManagementReply:
    if call.entity.requires_session(call.place.address):
        raise InvalidOperation("The lock of a message in a session cannot be renewed; renew the session's lock.")
    expirations: list[object] = []
    for delivery in await call.deliveries():
        expirations.append(Timestamp(await entity_verbs.renew_lock(delivery)))
    return ManagementReply({"expirations": AmqpArray(_TIMESTAMP, expirations)})


async def update_disposition(call: ManagementCall) -> ManagementReply:
    """Settles by token, whichever link the messages went out on (docs/protocol/amqp.md#settle-by-token)."""
    if call.entity.requires_session(call.place.address) and call.get("session-id") is not None:
        call.held_session()
    status = call.text("disposition-status")
    deliveries = await call.deliveries()
    if status == _RELEASE:
        now = call.namespace.bus.clock.now()
        for delivery in deliveries:
            released: Promise[None] = Promise()
            delivery.partition.release(delivery, now, released.reply, None)
            await released
        return ManagementReply()
    decision = _decision(call, status)
    txn_id = call.txn_id
    if txn_id is not None:
        for delivery in deliveries:
            await call.endpoint.transactions.settle(txn_id, call.entity, delivery, decision)
        return ManagementReply()
    await _settle_all(call, deliveries, decision)
    return ManagementReply()


def _decision(call: ManagementCall, status: str) -> Decision:
    outcome = _OUTCOMES.get(status)
    if outcome is None:
        raise ArgumentError(f"The disposition status '{status[:100]}' is not known.")
    properties = properties_of(call.get("properties-to-modify"))
    # The Python SDK sends empty strings for what it was not given.
    reason = call.text_or_none("deadletter-reason") or None
    description = call.text_or_none("deadletter-description") or None
    return Decision(outcome, properties, reason, description)


async def _settle_all(call: ManagementCall, deliveries: list[Delivery], decision: Decision) -> None:
    now = call.namespace.bus.clock.now()
    promises: list[Promise[None]] = []
    for delivery in deliveries:
        promise: Promise[None] = Promise()
        settle(delivery, decision, now, promise.reply, None)
        promises.append(promise)
    for promise in promises:
        await promise
        count(call.stats(), decision.outcome)


async def schedule(call: ManagementCall) -> ManagementReply:
    messages: list[Message] = []
    for item in call.items("messages"):
        messages.append(_scheduled(item))
        check_properties(messages[-1])
        if len(messages) % AMQP_TURN_MADE == 0:
            await pause(call.namespace.bus.loop, 0)
    txn_id = call.txn_id
    if txn_id is None:
        numbers = await entity_verbs.schedule(call.namespace, call.entity, messages)
    else:
        numbers = await call.endpoint.transactions.schedule(txn_id, call.shared, call.entity, messages)
    stats = call.stats()
    stats.incoming_messages += len(messages)
    stats.incoming_bytes += sum(message.size for message in messages)
    return ManagementReply({"sequence-numbers": AmqpArray(_LONG, list(numbers))})


def _scheduled(item: object) -> Message:
    encoded = item.get("message") if isinstance(item, dict) else None
    if not isinstance(encoded, bytes):
        raise ArgumentError("A message to be scheduled is not an encoded message.")
    return client_message(encoded)


async def cancel_scheduled(call: ManagementCall) -> ManagementReply:
    await entity_verbs.cancel_scheduled(call.namespace, call.entity, call.numbers("sequence-numbers"))
    return ManagementReply()


async def batch_delete(call: ManagementCall) -> ManagementReply:
    held = None
    if call.entity.requires_session(call.place.address) and call.names_session:
        held = call.held_session()
    most = AMQP_DELETED_PREMIUM if call.namespace.tier.is_premium else AMQP_DELETED_STANDARD
    wanted = call.number("message-count")
    if not 1 <= wanted <= most:
        raise ArgumentOutOfRange(f"The field 'message-count' must be between 1 and {most}.")
    before_ms = call.number("enqueued-time-utc", call.namespace.bus.clock.now().wall_ms)
    log_id = call.place.log_id()
    deleted = await entity_verbs.delete_messages(call.namespace, call.entity, log_id, wanted, before_ms, held)
    return ManagementReply({"message-count": Int(deleted)}) if deleted else nothing()
