"""Messages over HTTP: send, receive, settle, renew, browse (docs/protocol/rest.md#operations).

What curl, API gateways and old clients use. A missing entity is 410 here, and a lost lock 404. A delivery is settled
by its lock's token alone; the id beside it in the URL must only be its own.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Awaitable, Callable
from urllib.parse import quote
from uuid import UUID

from starlette.responses import Response

from polybus import limits
from polybus.asyncio_bridge import from_promise, run
from polybus.errors import (
    ArgumentError,
    BusError,
    EntityDeleted,
    EntityNotFound,
    InvalidOperation,
    MessageLockLost,
    MessageNotFound,
    MessageTooLarge,
    SessionLockLost,
    ShuttingDown,
)
from polybus.gateway.amqp.sent_messages import check_properties
from polybus.gateway.http.auth import authorize
from polybus.gateway.http.errors import not_allowed, refusal
from polybus.gateway.http.properties import (
    BROKER_PROPERTIES,
    broker_properties,
    custom_properties,
    json_properties,
    message_from,
    parse_json,
)
from polybus.gateway.http.receiving import ReceiveTarget, receive_one
from polybus.gateway.http.rendering import DEFAULT_CONTENT_TYPE, http_date, message_headers
from polybus.gateway.http.request import HttpCall
from polybus.gateway.sas import Rights
from polybus.gateway.stats import EntityStats
from polybus.message.columns import body_of, properties_of
from polybus.message.message import MESSAGE_ID, Message, identifier_text
from polybus.message.outcome import ABANDON, RETRY_PROPERTY
from polybus.namespace.delivery import entity_verbs
from polybus.namespace.delivery.source import Delivery
from polybus.namespace.entities.entity import Entity
from polybus.namespace.entities.names import Address, HttpTarget, TargetKind, fold
from polybus.promise import Promise

BATCH_TYPE = "application/vnd.microsoft.servicebus.json"
"""Exactly this is a batch; with a parameter behind it, it is a message of that type."""
ENTRY_TYPE = DEFAULT_CONTENT_TYPE
RETRY_PARAMETER = "retry-seconds"
"""Ours: an unlocked message comes again only after so long."""
DUPLICATES = "Polybus-Duplicates"
"""Ours: how many of the messages were dropped as duplicates."""
NO_LOCK = "The lock supplied is invalid. Either it has expired, or the message has already been removed."


class MessageCall:
    """A request about messages, taken apart."""

    def __init__(self, call: HttpCall, target: HttpTarget, *, strict: bool = False) -> None:
        self.call = call
        self.target = target
        self.strict = strict
        self.namespace = call.namespace
        self.clock = call.gateway.bus.clock

    @property
    def address(self) -> Address:
        assert self.target.address is not None, "messages belong to an address"
        return self.target.address

    @property
    def entity(self) -> Entity:
        return self.namespace.addressed(self.address)

    @property
    def stats(self) -> EntityStats:
        return self.call.gateway.stats.entity(self.namespace.name, self.address.path)

    @property
    def place(self) -> ReceiveTarget:
        if self.address.management:
            raise ArgumentError(f"'{self.address.path}' has no messages.")
        return ReceiveTarget(self.entity, self.address)

    @property
    def timeout_s(self) -> float:
        text = self.call.query.get("timeout", str(limits.HTTP_RECEIVE_SECONDS)).strip()
        if not text.isascii() or not text.isdigit() or int(text) > limits.HTTP_RECEIVE_SECONDS_MAX:
            longest = limits.HTTP_RECEIVE_SECONDS_MAX
            raise ArgumentError(f"The timeout must be a whole number of seconds from 0 to {longest}.")
        return float(text)


# Sending


async def _send(request: MessageCall) -> Response:
    entity = request.entity
    if request.address != Address(request.address.entity):
        raise InvalidOperation(f"Messages cannot be sent to '{request.address.path}'.")
    messages = await _messages(request, entity)
    if request.call.gateway.stopping:
        raise ShuttingDown("The bus is shutting down. Try again.")
    started_s = time.perf_counter()
    done: Promise[list[int]] = Promise()
    request.namespace.send(entity, messages, done.reply, None)
    dropped = (await from_promise(done)).count(0)
    size = sum(message.size for message in messages)
    request.stats.accepted(len(messages), size, time.perf_counter() - started_s)
    content_type = request.call.headers.get("content-type")
    headers = [] if content_type is None else [("Content-Type", content_type)]
    return _answer(201, [*headers, (DUPLICATES, str(dropped))] if dropped else headers)


async def _messages(request: MessageCall, entity: Entity) -> list[Message]:
    call = request.call
    largest = request.namespace.max_message_bytes(entity)
    text = f"The message is larger than the limit of {largest} bytes on '{entity.name}'."
    content_type = call.headers.get("content-type")
    if (content_type or "").strip().lower() == BATCH_TYPE:
        # JSON and base64 take more room than what they stand for.
        return await _batch(await call.body(2 * min(largest, limits.PREMIUM_MESSAGE_BYTES), MessageTooLarge(text)))
    body = await call.body(largest, MessageTooLarge(text))
    properties = broker_properties(call.headers.get(BROKER_PROPERTIES.lower()))
    application = custom_properties(call.cased_headers, strict=request.strict)
    message = message_from(body, properties, application, content_type)
    check_properties(message)
    return [message]


async def _batch(body: bytes) -> list[Message]:
    """The messages of a batch, made in several turns of the loop."""
    items = parse_json(body, "batch")
    if not isinstance(items, list) or not items:
        raise ArgumentError("A batch is a JSON array of at least one message.")
    if len(items) > limits.HTTP_BATCH_MESSAGES:
        raise ArgumentError(f"A batch may have {limits.HTTP_BATCH_MESSAGES} messages.")
    messages: list[Message] = []
    until_s = 0.0
    for number, item in enumerate(items):
        if time.perf_counter() > until_s:
            await asyncio.sleep(0)
            until_s = time.perf_counter() + limits.AMQP_TURN_SECONDS
        messages.append(_batched(item, number))
        check_properties(messages[-1])
    if len(messages) > limits.AMQP_TURN_MADE:
        await asyncio.sleep(0)  # to store them takes a turn of its own
    return messages


def _batched(item: object, number: int) -> Message:
    if not isinstance(item, dict) or not isinstance(item.get("Body"), str):
        raise ArgumentError(f"Message {number} of the batch must be an object with a Body that is a string.")
    text: str = item["Body"]
    body = text.encode("utf-8", "replace")
    if item.get("IsBodyBase64") is True:
        try:
            body = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise ArgumentError(f"The Body of message {number} of the batch is not base64.") from None
    properties = item.get("BrokerProperties")
    content_type = properties.get("ContentType") if isinstance(properties, dict) else None
    application = json_properties(item.get("UserProperties"))
    return message_from(body, properties, application, content_type if isinstance(content_type, str) else None)


# Receiving


async def _peek_lock(request: MessageCall) -> Response:
    delivery = await _received(request)
    if delivery is None:
        return Response(status_code=204)
    token = UUID(bytes=delivery.token)
    headers = [("Location", _lock_url(request, delivery, token)), *_delivery_headers(delivery, token)]
    return _handed_over(request, delivery, 201, headers)


async def _receive_and_delete(request: MessageCall) -> Response:
    delivery = await _received(request)
    if delivery is None:
        return Response(status_code=204)
    headers = _delivery_headers(delivery, None)
    await _settled(request, delivery)
    request.stats.completed += 1
    return _handed_over(request, delivery, 200, headers)


async def _received(request: MessageCall) -> Delivery | None:
    place, seconds = request.place, request.timeout_s
    await request.call.body(limits.HTTP_DRAINED_BYTES)
    if request.call.gateway.stopping:
        raise ShuttingDown("The bus is shutting down. Try again.")
    return await receive_one(request.call, place, seconds)


async def _settled(request: MessageCall, delivery: Delivery) -> None:
    done: Promise[None] = Promise()
    delivery.partition.complete(delivery, request.clock.now(), done.reply, None)
    await from_promise(done)


def _delivery_headers(delivery: Delivery, token: UUID | None) -> list[tuple[str, str]]:
    count = delivery.delivery_count + 1
    options = {"expires_ms": delivery.expires_ms, "delivery_count": count}
    return message_headers(delivery.message, delivery, token=token, **options)


def _handed_over(request: MessageCall, delivery: Delivery, status: int, headers: list[tuple[str, str]]) -> Response:
    body = body_of(delivery.message)
    stats = request.stats
    stats.outgoing_messages += 1
    stats.outgoing_bytes += delivery.size
    return _answer(status, headers, body)


def _lock_url(request: MessageCall, delivery: Delivery, token: UUID) -> str:
    """Where the delivery is settled: in lower case, by number, as the cloud writes it."""
    return f"{_messages_url(request)}/{delivery.sequence}/{token}"


def _messages_url(request: MessageCall) -> str:
    return f"{request.call.base_url}/{quote(fold(request.address.path), safe='/$')}/messages"


# Settling


async def _complete(request: MessageCall) -> Response:
    await _settled(request, await _delivery(request))
    request.stats.completed += 1
    return Response(status_code=200)


async def _unlock(request: MessageCall) -> Response:
    delivery = await _delivery(request)
    done: Promise[None] = Promise()
    later = request.call.query.get(RETRY_PARAMETER)
    properties: dict[str, object] | None = None if later is None else {RETRY_PROPERTY: later}
    delivery.partition.settle(delivery, request.clock.now(), ABANDON, None, None, properties, done.reply, None)
    await from_promise(done)
    request.stats.abandoned += 1
    return Response(status_code=200)


async def _renew(request: MessageCall) -> Response:
    until_ms = await from_promise(entity_verbs.renew_lock(await _delivery(request)))
    text = f'{{"LockedUntilUtc":"{http_date(until_ms)}"}}'
    return _answer(200, [("Content-Type", ENTRY_TYPE), (BROKER_PROPERTIES, text)])


async def _delivery(request: MessageCall) -> Delivery:
    """The delivery behind the token in the URL; MessageNotFound where there is none, or it is another message's."""
    target, place = request.target, request.place
    try:
        token = UUID(target.lock_token or "").bytes
        delivery = await from_promise(request.namespace.delivery_of(place.entity, place.log_id, token))
    except (ValueError, MessageLockLost, SessionLockLost):
        raise MessageNotFound(NO_LOCK) from None
    message_id = identifier_text(properties_of(delivery.message, delivery)[MESSAGE_ID])
    if target.message_id not in (str(delivery.sequence), message_id):
        raise MessageNotFound("The lock supplied does not belong to this message.")
    return delivery


# Browsing


async def _browse(request: MessageCall) -> Response:
    """The message after a number, only looked at; portals page through a queue with it."""
    place = request.place
    if place.entity.is_topic and place.subscription is None and request.address.sub_queue is None:
        raise InvalidOperation(f"The topic '{place.entity.name}' itself holds no messages to look at.")
    text = request.call.query.get("previoussequencenumber", "").strip() or "0"
    if not text.isascii() or not text.isdigit() or int(text) >= 1 << 63:
        raise ArgumentError("PreviousSequenceNumber must be a sequence number.")
    first = int(text) + 1
    peeked = await run(entity_verbs.peek(request.namespace, place.entity, place.log_id, first, 1))
    if not peeked:
        return Response(status_code=204)
    message, marks = peeked[0].message, peeked[0].marks
    expires_ms = marks.enqueued_ms + message.ttl_ms if message.ttl_ms >= 0 else 0
    count = marks.delivery_count
    headers = message_headers(message, marks, expires_ms=expires_ms, delivery_count=count, token=None)
    following = f"{_messages_url(request)}?PreviousSequenceNumber={marks.sequence}"
    return _answer(200, [("Next-Message", following), *headers], body_of(message))


def _answer(status: int, headers: list[tuple[str, str]], body: bytes = b"") -> Response:
    """A response whose headers keep the case of their names, and their text in UTF-8."""
    response = Response(body, status)
    length = [item for item in response.raw_headers if item[0] == b"content-length"]
    response.raw_headers = [(name.encode("ascii"), value.encode("utf-8")) for name, value in headers] + length
    return response


Handler = Callable[[MessageCall], Awaitable[Response]]
_HANDLERS: dict[TargetKind, dict[str, tuple[Handler, Rights]]] = {
    TargetKind.MESSAGES: {"POST": (_send, Rights.SEND), "GET": (_browse, Rights.LISTEN)},
    TargetKind.HEAD: {"POST": (_peek_lock, Rights.LISTEN), "DELETE": (_receive_and_delete, Rights.LISTEN)},
    TargetKind.MESSAGE: {
        "DELETE": (_complete, Rights.LISTEN),
        "PUT": (_unlock, Rights.LISTEN),
        "POST": (_renew, Rights.LISTEN),
    },
}


async def handle_messages(call: HttpCall, target: HttpTarget, *, strict: bool = False) -> Response:
    """Answers a request about messages."""
    found = _HANDLERS[target.kind].get(call.method)
    if found is None:
        raise not_allowed(call.method)
    handler, needed = found
    request = MessageCall(call, target, strict=strict)
    authorize(call, _path_of(target), needed)
    try:
        return await handler(request)
    except BusError as error:
        if request.namespace.find(request.address.entity) is not None:
            request.stats.refused(error)
        if isinstance(error, EntityNotFound) and not isinstance(error, EntityDeleted):
            raise EntityDeleted(error.description) from error
        if isinstance(error, MessageLockLost | SessionLockLost):
            raise refusal(404, error.description or NO_LOCK) from error
        raise


def _path_of(target: HttpTarget) -> str:
    assert target.address is not None, "messages belong to an address"
    path = f"{target.address.path}/messages"
    if target.kind is TargetKind.HEAD:
        return f"{path}/head"
    if target.kind is TargetKind.MESSAGE:
        return f"{path}/{quote(target.message_id or '', safe='')}/{quote(target.lock_token or '', safe='')}"
    return path
