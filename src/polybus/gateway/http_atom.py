"""The management API: entities, subscriptions and rules, created, read, changed, listed and deleted (spec/http.md §1).

What a path is directed at and the method choose a handler from one table; what is missing in it is an error. A
handler asks for rights first, then for existence. Reading never waits for a store; changing waits for the catalogue.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import uuid4

from starlette.responses import Response

from polybus import limits
from polybus.errors import ArgumentError, BusError, EntityNotFound
from polybus.gateway import atom
from polybus.gateway.atom import AtomContext, Moment, Page, RuntimeInfo, Sent
from polybus.gateway.durations import etag
from polybus.gateway.http_auth import allow, authorize, authorize_any
from polybus.gateway.http_errors import refusal, without_sub_code
from polybus.gateway.http_promises import run
from polybus.gateway.http_request import Call
from polybus.gateway.sas import Rights
from polybus.namespace.description import (
    EntityAvailability,
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entity import Entity, Subscription
from polybus.namespace.management import Management
from polybus.namespace.names import Address, HttpTarget, TargetKind, parse_forward_target
from polybus.namespace.rule_description import RuleDescription

PARTITIONING_SINCE = "2013-10"
"""The first api-version that knows partitioned entities (A6)."""
MISSING_PARTITIONS = "x-polybus-missing-partitions"
"""Names the partitions that an entity is Limited by; the SDKs look at no header that they do not know."""

_KEYS = (
    ("forward_to", "servicebussupplementaryauthorization"),
    ("forward_dead_lettered_messages_to", "servicebusdlqsupplementaryauthorization"),
)


class AtomCall:
    """A management request, taken apart."""

    def __init__(self, call: Call, target: HttpTarget) -> None:
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

    def page(self, path: str, count: int) -> Page:
        skip, top = atom.parse_page(self.call.query.get("$skip"), self.call.query.get("$top"))
        return Page(path, skip, top, more=skip + top < count and top > 0)

    def deleted(self, entity: Entity) -> Response:
        return Response(status_code=200, headers={"ETag": etag(entity.description.updated_at_ms)})

    def missing(self, *names: str) -> BusError:
        """Not found, in the words that the cloud has for what is inside of a topic (§1.15)."""
        full = "|".join([self.address.entity, *names])
        text = f"Entity '{self.namespace.name}:Topic:{full}' was not found."
        return without_sub_code(EntityNotFound(text))


def entity_info(entity: Entity) -> RuntimeInfo:
    """What a queue or a topic holds now; counting costs the same whatever it holds."""
    counts = entity.counts()
    return RuntimeInfo(
        size_bytes=counts.size_bytes,
        active_count=counts.active + counts.deferred,
        dead_letter_count=counts.dead_letter,
        scheduled_count=counts.scheduled,
        transfer_count=counts.transfer,
        transfer_dead_letter_count=counts.transfer_dead_letter,
        subscription_count=len(entity.subscriptions),
        accessed_at_ms=entity.last_accessed_ms() or None,
        availability=entity.availability,
    )


def subscription_info(entity: Entity, subscription: Subscription) -> RuntimeInfo:
    counts = entity.counts(subscription.number)
    return RuntimeInfo(
        active_count=counts.active + counts.deferred,
        dead_letter_count=counts.dead_letter,
        transfer_count=counts.transfer,
        transfer_dead_letter_count=counts.transfer_dead_letter,
        accessed_at_ms=subscription.accessed_ms or None,
        availability=entity.availability,
    )


# The namespace


async def _get_namespace_info(request: AtomCall) -> Response:
    created_ms = request.namespace.created_ms
    document = atom.namespace_entry(request.context, created_ms, created_ms)
    return request.entry(document, None, Moment.READ)


async def _get_queues(request: AtomCall) -> Response:
    return _listed(request, QueueDescription, "$Resources/Queues")


async def _get_topics(request: AtomCall) -> Response:
    return _listed(request, TopicDescription, "$Resources/Topics")


def _listed(request: AtomCall, kind: type[EntityDescription], path: str) -> Response:
    items = sorted(request.namespace.entities.items())
    entities = [entity for _, entity in items if isinstance(entity.description, kind)]
    page = request.page(path, len(entities))
    shown = [(each.description, entity_info(each)) for each in entities[page.skip : page.skip + page.top]]
    return request.feed(atom.entity_feed(shown, request.context, kind, page))


# Queues and topics


async def _put_entity(request: AtomCall) -> Response:
    _check_plain(request)
    sent = atom.parse_entity(await request.body(), request.address.entity, request.context.api_version)
    sent = _without_partitioning(sent, request.context.api_version)
    described = sent.description
    assert not isinstance(described, SubscriptionDescription), "an entity was parsed"
    _check_forwarding(request, sent)
    if not request.is_update:
        entity = await run(request.management.create(described))
        return _entity_entry(request, entity, Moment.CREATED)
    found = request.find()
    if found is None:
        raise EntityNotFound(f"Entity '{request.namespace.name}:{described.path}' was not found.")
    request.check_match(found.description.updated_at_ms)
    entity = await run(request.management.update(described, sent.given))
    return _entity_entry(request, entity, Moment.UPDATED)


def _check_plain(request: AtomCall) -> None:
    if request.address != Address(request.address.entity):
        raise ArgumentError(f"'{request.address.path}' is not an entity that can be managed.")


def _without_partitioning(sent: Sent, api_version: str) -> Sent:
    """Clients of old api-versions do not know the element: what they send of it does not count (A6)."""
    if not api_version or api_version >= PARTITIONING_SINCE:
        return sent
    described = sent.description
    if not isinstance(described, SubscriptionDescription):
        described = replace(described, enable_partitioning=False)
    return replace(sent, description=described, given=sent.given - {"EnablePartitioning"})


def _check_forwarding(request: AtomCall, sent: Sent) -> None:
    """A token for the destination is verified where the client sends one (§1.12)."""
    for attribute, header in _KEYS:
        target = getattr(sent.description, attribute, None)
        token = request.call.headers.get(header)
        if target is not None and token is not None:
            allow(request.call, token, parse_forward_target(target), Rights.SEND)


def _entity_entry(request: AtomCall, entity: Entity, moment: Moment) -> Response:
    document = atom.entity_entry(entity.description, entity_info(entity), request.context, moment)
    return request.entry(document, entity if moment is not Moment.CREATED else None, moment)


async def _get_entity(request: AtomCall) -> Response:
    if request.address.sub_queue is not None or request.address.management:
        raise refusal(400, "The verb GET is not valid for this resource: it is not an entity of its own.", 40000)
    entity = request.find()
    return request.not_found_feed() if entity is None else _entity_entry(request, entity, Moment.READ)


async def _delete_entity(request: AtomCall) -> Response:
    _check_plain(request)
    entity = request.find()
    if entity is None:
        text = f"Entity '{request.namespace.name}:{request.address.entity}' was not found."
        raise without_sub_code(EntityNotFound(text))
    await run(request.management.delete(entity.name))
    return request.deleted(entity)


# Subscriptions


async def _get_subscriptions(request: AtomCall) -> Response:
    entity = request.find_topic()
    if entity is None:
        return request.not_found_feed()
    subscriptions = [subscription for _, subscription in sorted(entity.subscriptions.items())]
    page = request.page(f"{entity.name}/Subscriptions", len(subscriptions))
    shown = [(each.description, subscription_info(entity, each)) for each in subscriptions]
    part = shown[page.skip : page.skip + page.top]
    return request.feed(atom.subscription_feed(part, request.context, page))


async def _put_subscription(request: AtomCall) -> Response:
    topic, name = request.address.entity, request.subscription_name
    sent = atom.parse_subscription(await request.body(), topic, name)
    described = sent.description
    assert isinstance(described, SubscriptionDescription), "a subscription was parsed"
    _check_forwarding(request, sent)
    entity = request.find_topic()
    if entity is None:
        raise request.missing(name)
    if not request.is_update:
        rules = None if sent.default_rule is None else [sent.default_rule]
        subscription = await run(request.management.create_subscription(described, rules))
        return _subscription_entry(request, entity, subscription, Moment.CREATED)
    found = _subscription(request, entity)
    request.check_match(entity.description.updated_at_ms if found else 0)
    subscription = await run(request.management.update_subscription(described, sent.given))
    return _subscription_entry(request, entity, subscription, Moment.UPDATED)


def _subscription(request: AtomCall, entity: Entity) -> Subscription:
    try:
        return entity.subscription(request.subscription_name)
    except EntityNotFound:
        raise request.missing(request.subscription_name) from None


def _subscription_entry(request: AtomCall, entity: Entity, subscription: Subscription, moment: Moment) -> Response:
    info = subscription_info(entity, subscription)
    document = atom.subscription_entry(subscription.description, info, request.context, moment)
    return request.entry(document, entity, moment)


async def _get_subscription(request: AtomCall) -> Response:
    if request.address.sub_queue is not None:
        raise refusal(400, "The verb GET is not valid for this resource: it is not an entity of its own.", 40000)
    entity = request.find_topic()
    if entity is None:
        return request.not_found_feed()
    return _subscription_entry(request, entity, _subscription(request, entity), Moment.READ)


async def _delete_subscription(request: AtomCall) -> Response:
    entity = request.find_topic()
    if entity is None:
        raise request.missing(request.subscription_name)
    subscription = _subscription(request, entity)
    await run(request.management.delete_subscription(entity.name, subscription.description.name))
    return request.deleted(entity)


# Rules


async def _get_rules(request: AtomCall) -> Response:
    entity = request.find_topic()
    if entity is None:
        return request.not_found_feed()
    subscription = _subscription(request, entity)
    rules = [rule for _, rule in subscription.rules.values()]
    name = subscription.description.name
    page = request.page(f"{entity.name}/Subscriptions/{name}/Rules", len(rules))
    part = rules[page.skip : page.skip + page.top]
    return request.feed(atom.rule_feed(part, entity.name, name, request.context, page))


async def _put_rule(request: AtomCall) -> Response:
    entity, subscription, name = _rule_place(request)
    rule = atom.parse_rule(await request.body(), name)
    described = subscription.description
    if request.is_update:
        _rule(request, subscription, name)
        request.check_match(entity.description.updated_at_ms)
        rule = await run(request.management.update_rule(entity.name, described.name, rule))
        moment = Moment.UPDATED
    else:
        rule = await run(request.management.create_rule(entity.name, described.name, rule))
        moment = Moment.CREATED
    document = atom.rule_entry(rule, entity.name, described.name, request.context, moment)
    return request.entry(document, entity, moment)


def _rule_place(request: AtomCall) -> tuple[Entity, Subscription, str]:
    name = request.target.rule
    assert name is not None, "the target is a rule"
    entity = request.find_topic()
    if entity is None:
        raise request.missing(request.subscription_name, name)
    return entity, _subscription(request, entity), name


def _rule(request: AtomCall, subscription: Subscription, name: str) -> RuleDescription:
    try:
        return request.management.rule(subscription, name)[1]
    except EntityNotFound:
        raise request.missing(request.subscription_name, name) from None


async def _get_rule(request: AtomCall) -> Response:
    if request.find_topic() is None:
        return request.not_found_feed()
    entity, subscription, name = _rule_place(request)
    rule = _rule(request, subscription, name)
    described = subscription.description
    document = atom.rule_entry(rule, entity.name, described.name, request.context, Moment.READ)
    return request.entry(document, entity, Moment.READ)


async def _delete_rule(request: AtomCall) -> Response:
    entity, subscription, name = _rule_place(request)
    rule = _rule(request, subscription, name)
    await run(request.management.delete_rule(entity.name, subscription.description.name, rule.name))
    return request.deleted(entity)


Handler = Callable[[AtomCall], Awaitable[Response]]
_HANDLERS: dict[TargetKind, dict[str, Handler]] = {
    TargetKind.NAMESPACE_INFO: {"GET": _get_namespace_info},
    TargetKind.QUEUES: {"GET": _get_queues},
    TargetKind.TOPICS: {"GET": _get_topics},
    TargetKind.ENTITY: {"PUT": _put_entity, "GET": _get_entity, "DELETE": _delete_entity},
    TargetKind.SUBSCRIPTIONS: {"GET": _get_subscriptions},
    TargetKind.SUBSCRIPTION: {
        "PUT": _put_subscription,
        "GET": _get_subscription,
        "DELETE": _delete_subscription,
    },
    TargetKind.RULES: {"GET": _get_rules},
    TargetKind.RULE: {"PUT": _put_rule, "GET": _get_rule, "DELETE": _delete_rule},
}
_PATHS = {
    TargetKind.NAMESPACE_INFO: "$namespaceinfo",
    TargetKind.QUEUES: "$Resources/Queues",
    TargetKind.TOPICS: "$Resources/Topics",
}
_TAILS = {TargetKind.SUBSCRIPTIONS: "/Subscriptions", TargetKind.RULES: "/Rules"}


async def manage(call: Call, target: HttpTarget) -> Response:
    """Answers a management request."""
    handler = _HANDLERS[target.kind].get(call.method)
    if handler is None:
        raise not_allowed(call.method)
    path = _path_of(target)
    if target.kind is TargetKind.NAMESPACE_INFO:
        authorize_any(call, path)
    else:
        authorize(call, path, Rights.MANAGE)
    return await handler(AtomCall(call, target))


def not_allowed(method: str) -> BusError:
    return refusal(405, f"The HTTP verb '{method[:20]}' is not valid for this resource.")


def _path_of(target: HttpTarget) -> str:
    """The canonical path of a target: what its token must cover."""
    if target.address is None:
        return _PATHS[target.kind]
    rule = "" if target.rule is None else f"/Rules/{target.rule}"
    return target.address.path + _TAILS.get(target.kind, "") + rule
