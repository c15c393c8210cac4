"""Queues, topics, subscriptions and rules in the resource manager's API: PUT creates or updates."""

from __future__ import annotations

from starlette.responses import Response

from polybus.asyncio_bridge import run
from polybus.errors import EntityNotFound
from polybus.gateway.arm.call import ArmCall, answer, time_text
from polybus.gateway.arm.resources import (
    Json,
    properties_json,
    queue_from,
    rule_from,
    rule_json,
    subscription_from,
    topic_from,
)
from polybus.gateway.atom.call import entity_info, subscription_info
from polybus.gateway.atom.render import RuntimeInfo
from polybus.gateway.http.errors import not_allowed
from polybus.namespace.entities.description import EntityDescription, QueueDescription, TopicDescription
from polybus.namespace.entities.entity import Entity, Subscription
from polybus.namespace.entities.names import fold
from polybus.namespace.entities.rule import RuleDescription

KINDS: dict[str, type[EntityDescription]] = {"queues": QueueDescription, "topics": TopicDescription}


def path_of(name: str) -> str:
    """The path of an entity; the resource manager writes the slashes in it as tildes."""
    return name.replace("~", "/")


def found_entity(request: ArmCall, kind: str, name: str) -> Entity:
    entity = request.namespace.find(path_of(name))
    if entity is None or not isinstance(entity.description, KINDS[kind]):
        raise EntityNotFound(f"The {kind[:-1]} '{name[:300]}' could not be found.")
    return entity


def _times(created_ms: int, updated_ms: int, info: RuntimeInfo) -> Json:
    return {
        "createdAt": time_text(created_ms),
        "updatedAt": time_text(updated_ms),
        "accessedAt": time_text(info.accessed_at_ms or 0),
        "countDetails": {
            "activeMessageCount": info.active_count,
            "deadLetterMessageCount": info.dead_letter_count,
            "scheduledMessageCount": info.scheduled_count,
            "transferMessageCount": info.transfer_count,
            "transferDeadLetterMessageCount": info.transfer_dead_letter_count,
        },
    }


async def entity_json(request: ArmCall, kind: str, entity: Entity) -> Json:
    described, info = entity.description, await entity_info(entity)
    properties = {
        **properties_json(described),
        **_times(described.created_at_ms, described.updated_at_ms, info),
        "sizeInBytes": info.size_bytes,
    }
    if kind == "queues":
        properties["messageCount"] = info.message_count
    else:
        properties["subscriptionCount"] = info.subscription_count
    names = ["namespaces", request.namespace.name, kind, described.path.replace("/", "~")]
    return request.resource(names, properties)


async def entities(request: ArmCall, kind: str) -> Response:
    """The list of queues, or of topics."""
    if request.call.method != "GET":
        raise not_allowed(request.call.method)
    found = [entity for _, entity in sorted(request.namespace.entities.items())]
    rows = [await entity_json(request, kind, each) for each in found if isinstance(each.description, KINDS[kind])]
    return answer(request.page(rows))


async def entity(request: ArmCall, kind: str, name: str) -> Response:
    method = request.call.method
    if method == "GET":
        return answer(await entity_json(request, kind, found_entity(request, kind, name)))
    if method == "DELETE":
        if request.namespace.find(path_of(name)) is None:
            return Response(status_code=204)
        await run(request.management.delete(found_entity(request, kind, name).name))
        return Response(status_code=200)
    if method != "PUT":
        raise not_allowed(method)
    read = queue_from if kind == "queues" else topic_from
    asked, given = read(path_of(name), await request.properties())
    if request.namespace.find(asked.path) is None:
        made = await run(request.management.create(asked))
    else:
        made = await run(request.management.update(asked, given))
    return answer(await entity_json(request, kind, made))


# Subscriptions and rules


async def subscription_json(request: ArmCall, topic: Entity, subscription: Subscription) -> Json:
    described, info = subscription.description, await subscription_info(topic, subscription)
    properties = {
        **properties_json(described),
        **_times(described.created_at_ms, described.updated_at_ms, info),
        "messageCount": info.message_count,
    }
    return request.resource(_under(request, topic, subscription), properties)


def _under(request: ArmCall, topic: Entity, subscription: Subscription) -> list[str]:
    name = topic.name.replace("/", "~")
    return ["namespaces", request.namespace.name, "topics", name, "subscriptions", subscription.description.name]


async def subscriptions(request: ArmCall, topic: str) -> Response:
    if request.call.method != "GET":
        raise not_allowed(request.call.method)
    entity = found_entity(request, "topics", topic)
    rows = [await subscription_json(request, entity, each) for _, each in sorted(entity.subscriptions.items())]
    return answer(request.page(rows))


async def subscription(request: ArmCall, topic: str, name: str) -> Response:
    method, entity = request.call.method, found_entity(request, "topics", topic)
    if method == "GET":
        return answer(await subscription_json(request, entity, entity.subscription(name)))
    if method == "DELETE":
        if fold(name) not in entity.subscriptions:
            return Response(status_code=204)
        await run(request.management.delete_subscription(entity.name, name))
        return Response(status_code=200)
    if method != "PUT":
        raise not_allowed(method)
    asked, given = subscription_from(entity.name, name, await request.properties())
    if fold(name) in entity.subscriptions:
        made = await run(request.management.update_subscription(asked, given))
    else:
        made = await run(request.management.create_subscription(asked))
    return answer(await subscription_json(request, entity, made))


def _rule_json(request: ArmCall, topic: Entity, subscription: Subscription, rule: RuleDescription) -> Json:
    return request.resource([*_under(request, topic, subscription), "rules", rule.name], rule_json(rule))


async def rules(request: ArmCall, topic: str, name: str) -> Response:
    if request.call.method != "GET":
        raise not_allowed(request.call.method)
    entity = found_entity(request, "topics", topic)
    found = entity.subscription(name)
    return answer(request.page([_rule_json(request, entity, found, rule) for _, rule in found.rules.values()]))


async def rule(request: ArmCall, topic: str, subscription_name: str, name: str) -> Response:
    method, entity = request.call.method, found_entity(request, "topics", topic)
    subscription = entity.subscription(subscription_name)
    management, own = request.management, subscription.description.name
    if method == "GET":
        return answer(_rule_json(request, entity, subscription, management.rule(subscription, name)[1]))
    if method == "DELETE":
        if fold(name) not in subscription.rules:
            return Response(status_code=204)
        await run(management.delete_rule(entity.name, own, name))
        return Response(status_code=200)
    if method != "PUT":
        raise not_allowed(method)
    asked = rule_from(name, await request.properties())
    verb = management.update_rule if fold(name) in subscription.rules else management.create_rule
    made = await run(verb(entity.name, own, asked))
    return answer(_rule_json(request, entity, subscription, made))
