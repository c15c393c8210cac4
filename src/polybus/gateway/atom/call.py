"""What the handlers of the management API have in common: a request taken apart, and the forms of its answers."""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

from starlette.responses import Response

from polybus import limits
from polybus.asyncio_bridge import from_promise
from polybus.errors import ArgumentError, BusError, EntityNotFound
from polybus.gateway.atom import documents as atom
from polybus.gateway.atom.documents import AtomContext, FeedPage, Moment, RuntimeInfo, Sent
from polybus.gateway.atom.filter import Filter, parse_filter
from polybus.gateway.durations import etag
from polybus.gateway.http.auth import allow, authorize
from polybus.gateway.http.errors import refusal, without_sub_code
from polybus.gateway.http.request import HttpCall
from polybus.gateway.sas import Rights
from polybus.namespace.entities.description import EntityAvailability, QueueDescription, SubscriptionDescription
from polybus.namespace.entities.entity import Entity, Subscription
from polybus.namespace.entities.names import Address, HttpTarget, fold, parse_forward_target
from polybus.namespace.entities.rule import FilterKind
from polybus.namespace.management.changes import Management

MISSING_PARTITIONS = "x-polybus-missing-partitions"
"""Names the partitions that an entity is Limited by; the SDKs look at no header that they do not know."""
NOT_MANAGEABLE = "The verb GET is not valid for this resource: it is not an entity of its own."

_KEYS = (
    ("forward_to", "servicebussupplementaryauthorization"),
    ("forward_dead_lettered_messages_to", "servicebusdlqsupplementaryauthorization"),
)


class AtomCall:
    """A management request, taken apart."""

    def __init__(self, call: HttpCall, target: HttpTarget) -> None:
        self.call = call
        self.target = target
        self.namespace = call.namespace
        self.context = AtomContext(
            base_url=call.base_url,
            query=call.raw_query,
            namespace=call.namespace.name,
            tier=call.namespace.tier,
            api_version=call.api_version,
            now_ms=call.gateway.bus.clock.now().wall_ms,
        )

    @property
    def management(self) -> Management:
        return self.namespace.management

    @property
    def address(self) -> Address:
        assert self.target.address is not None, "the target has an address"
        return self.target.address

    @property
    def subscription_name(self) -> str:
        assert self.address.subscription is not None, "the target is inside a subscription"
        return self.address.subscription

    @property
    def is_update(self) -> bool:
        return "if-match" in self.call.headers

    def check_match(self, updated_at_ms: int) -> None:
        """Clients only ever send `*`; an etag of ours is honoured, too."""
        asked = self.call.headers["if-match"].strip().strip('"')
        if asked not in ("*", etag(updated_at_ms)):
            raise refusal(412, "The entity has been changed since it was read: the ETag does not match.")

    async def body(self) -> bytes:
        return await self.call.body(limits.XML_BODY_BYTES)

    def find(self) -> Entity | None:
        return self.namespace.find(self.address.entity)

    def find_topic(self) -> Entity | None:
        found = self.find()
        return found if found is not None and found.is_topic else None

    # Answers

    def entry(self, document: bytes, entity: Entity | None, moment: Moment) -> Response:
        status = 201 if moment is Moment.CREATED else 200
        headers = {"Content-Type": atom.ENTRY_TYPE}
        if entity is not None:
            headers["ETag"] = etag(entity.description.updated_at_ms)
            if entity.availability is EntityAvailability.LIMITED:
                headers[MISSING_PARTITIONS] = ",".join(map(str, entity.missing_partitions()))
        return Response(document, status, headers)

    def not_found_feed(self) -> Response:
        document = atom.not_found_feed(self.context, str(uuid4()))
        return Response(document, 200, {"Content-Type": atom.FEED_TYPE})

    def feed(self, document: bytes) -> Response:
        return Response(document, 200, {"Content-Type": atom.FEED_TYPE})

    def page(self, path: str, count: int) -> FeedPage:
        skip, top = atom.parse_page(self.call.query.get("$skip"), self.call.query.get("$top"))
        more = skip + top < count and top > 0
        return FeedPage(path, skip, top, more, self.call.query.get("$filter", ""))

    def filter(self) -> Filter | None:
        """What the list is to show, where the client does not want all of it."""
        return parse_filter(self.call.query.get("$filter"))

    def deleted(self, entity: Entity) -> Response:
        return Response(status_code=200, headers={"ETag": etag(entity.description.updated_at_ms)})

    def missing(self, *names: str) -> BusError:
        """Not found, in the words that the cloud has for what is inside of a topic (docs/protocol/atom.md#not-found)."""
        full = "|".join([self.address.entity, *names])
        text = f"Entity '{self.namespace.name}:Topic:{full}' was not found."
        return without_sub_code(EntityNotFound(text))


async def entity_info(entity: Entity) -> RuntimeInfo:
    """What a queue or a topic holds now; counting costs the same however many messages that is."""
    counts = await from_promise(entity.counts())
    kinds = _filter_kinds(entity)
    return RuntimeInfo(
        size_bytes=counts.size_bytes,
        active_count=counts.active + counts.deferred,
        dead_letter_count=counts.dead_letter,
        scheduled_count=counts.scheduled,
        transfer_count=counts.transfer,
        transfer_dead_letter_count=counts.transfer_dead_letter,
        subscription_count=len(entity.subscriptions),
        sql_filter_count=len(kinds) - kinds.count(FilterKind.CORRELATION),
        correlation_filter_count=kinds.count(FilterKind.CORRELATION),
        accessed_at_ms=entity.last_accessed_ms() or None,
        availability=entity.availability,
    )


def _filter_kinds(entity: Entity) -> list[FilterKind]:
    """The filters of a topic's subscriptions. The constant ones count as SQL, the default rule's too, as in the cloud."""
    return [
        rule.filter.kind for subscription in entity.subscriptions.values() for _, rule in subscription.rules.values()
    ]


async def subscription_info(entity: Entity, subscription: Subscription) -> RuntimeInfo:
    counts = await from_promise(entity.counts(subscription.number))
    return RuntimeInfo(
        active_count=counts.active + counts.deferred,
        dead_letter_count=counts.dead_letter,
        transfer_count=counts.transfer,
        transfer_dead_letter_count=counts.transfer_dead_letter,
        accessed_at_ms=subscription.last_accessed_ms() or None,
        availability=entity.availability,
    )


def check_forwarding(
    request: AtomCall, sent: Sent, before: QueueDescription | SubscriptionDescription | None
) -> None:
    """Whoever lets an entity forward must be allowed to send to where it forwards to, else Manage on one entity
    would be Send on all of them.

    Right is shown by a token for the destination, where the client sends one, else by the request's own. What an
    entity forwards to already was allowed to whoever set it, so it may be told again with the other settings
    (docs/protocol/sas.md#forwarding-tokens).
    """
    for attribute, header in _KEYS:
        path = _forwards_to(sent.description, attribute)
        if path is None:
            continue
        token = request.call.headers.get(header)
        if token is not None:
            allow(request.call, token, path, Rights.SEND)
        elif path != _forwards_to(before, attribute):
            authorize(request.call, path, Rights.SEND)


def _forwards_to(description: object, attribute: str) -> str | None:
    """The folded path that a description forwards to. What is no path is refused, by name, before it is used."""
    target = getattr(description, attribute, None)
    with suppress(ArgumentError):
        return None if target is None else fold(parse_forward_target(target))
    return None
