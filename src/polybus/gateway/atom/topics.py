"""Subscriptions and rules in the management API (docs/protocol/atom.md#topics, docs/protocol/atom.md#rules).

What is missing under a topic that exists is 404; a topic that does not exist is the feed that means "not there".
"""

from __future__ import annotations

from starlette.responses import Response

from polybus.asyncio_bridge import run
from polybus.errors import EntityNotFound
from polybus.gateway.atom import documents as atom
from polybus.gateway.atom.call import NOT_MANAGEABLE, AtomCall, check_forwarding, subscription_info
from polybus.gateway.atom.documents import Moment
from polybus.gateway.http.errors import refusal
from polybus.namespace.entities.description import SubscriptionDescription
from polybus.namespace.entities.entity import Entity, Subscription
from polybus.namespace.entities.rule import RuleDescription


async def get_subscriptions(request: AtomCall) -> Response:
    entity = request.find_topic()
    if entity is None:
        return request.not_found_feed()
    subscriptions = [subscription for _, subscription in sorted(entity.subscriptions.items())]
    keeps = request.filter()
    if keeps is not None:
        subscriptions = [
            each for each in subscriptions if keeps(each.description, await subscription_info(entity, each))
        ]
    page = request.page(f"{entity.name}/Subscriptions", len(subscriptions))
    part = subscriptions[page.skip : page.skip + page.top]
    shown = [(each.description, await subscription_info(entity, each)) for each in part]
    return request.feed(atom.subscription_feed(shown, request.context, page))


async def put_subscription(request: AtomCall) -> Response:
    topic, name = request.address.entity, request.subscription_name
    sent = atom.parse_subscription(await request.body(), topic, name)
    described = sent.description
    assert isinstance(described, SubscriptionDescription), "a subscription was parsed"
    entity = request.find_topic()
    if entity is None:
        raise request.missing(name)
    found = _subscription(request, entity) if request.is_update else None
    check_forwarding(request, sent, None if found is None else found.description)
    if found is None:
        rules = None if sent.default_rule is None else [sent.default_rule]
        subscription = await run(request.management.create_subscription(described, rules))
        return await _subscription_entry(request, entity, subscription, Moment.CREATED)
    request.check_match(entity.description.updated_at_ms)
    subscription = await run(request.management.update_subscription(described, sent.given))
    return await _subscription_entry(request, entity, subscription, Moment.UPDATED)


def _subscription(request: AtomCall, entity: Entity) -> Subscription:
    try:
        return entity.subscription(request.subscription_name)
    except EntityNotFound:
        raise request.missing(request.subscription_name) from None


async def _subscription_entry(
    request: AtomCall, entity: Entity, subscription: Subscription, moment: Moment
) -> Response:
    info = await subscription_info(entity, subscription)
    document = atom.subscription_entry(subscription.description, info, request.context, moment)
    return request.entry(document, entity, moment)


async def get_subscription(request: AtomCall) -> Response:
    if request.address.sub_queue is not None:
        raise refusal(400, NOT_MANAGEABLE, 40000)
    entity = request.find_topic()
    if entity is None:
        return request.not_found_feed()
    return await _subscription_entry(request, entity, _subscription(request, entity), Moment.READ)


async def delete_subscription(request: AtomCall) -> Response:
    entity = request.find_topic()
    if entity is None:
        raise request.missing(request.subscription_name)
    subscription = _subscription(request, entity)
    await run(request.management.delete_subscription(entity.name, subscription.description.name))
    return request.deleted(entity)


# Rules


async def get_rules(request: AtomCall) -> Response:
    entity = request.find_topic()
    if entity is None:
        return request.not_found_feed()
    subscription = _subscription(request, entity)
    rules = [rule for _, rule in subscription.rules.values()]
    name = subscription.description.name
    page = request.page(f"{entity.name}/Subscriptions/{name}/Rules", len(rules))
    part = rules[page.skip : page.skip + page.top]
    return request.feed(atom.rule_feed(part, entity.name, name, request.context, page))


async def put_rule(request: AtomCall) -> Response:
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


async def get_rule(request: AtomCall) -> Response:
    if request.find_topic() is None:
        return request.not_found_feed()
    entity, subscription, name = _rule_place(request)
    rule = _rule(request, subscription, name)
    described = subscription.description
    document = atom.rule_entry(rule, entity.name, described.name, request.context, Moment.READ)
    return request.entry(document, entity, Moment.READ)


async def delete_rule(request: AtomCall) -> Response:
    entity, subscription, name = _rule_place(request)
    rule = _rule(request, subscription, name)
    await run(request.management.delete_rule(entity.name, subscription.description.name, rule.name))
    return request.deleted(entity)
