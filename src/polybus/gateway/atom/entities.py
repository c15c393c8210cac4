"""The management API: entities, subscriptions and rules over HTTP (docs/protocol/atom.md).

What a path is directed at and the method choose a handler from one table; what is missing in it is an error. A
handler asks for rights first, then for existence. Reading never waits for a store; changing waits for the catalogue.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.responses import Response

from polybus.asyncio_bridge import run
from polybus.errors import ArgumentError, EntityNotFound
from polybus.gateway.atom import documents as atom
from polybus.gateway.atom.call import NOT_MANAGEABLE, AtomCall, check_forwarding, entity_info
from polybus.gateway.atom.documents import Moment, Sent
from polybus.gateway.atom.topics import (
    delete_rule,
    delete_subscription,
    get_rule,
    get_rules,
    get_subscription,
    get_subscriptions,
    put_rule,
    put_subscription,
)
from polybus.gateway.http.auth import authorize, authorize_any
from polybus.gateway.http.errors import not_allowed, refusal, without_sub_code
from polybus.gateway.http.request import HttpCall
from polybus.gateway.sas import Rights
from polybus.namespace.entities.description import (
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.entity import Entity
from polybus.namespace.entities.names import Address, HttpTarget, TargetKind

# The namespace


async def _get_namespace_info(request: AtomCall) -> Response:
    created_ms = request.namespace.created_ms
    document = atom.namespace_entry(request.context, created_ms, created_ms)
    return request.entry(document, None, Moment.READ)


async def _get_queues(request: AtomCall) -> Response:
    return await _listed(request, QueueDescription, "$Resources/Queues")


async def _get_topics(request: AtomCall) -> Response:
    return await _listed(request, TopicDescription, "$Resources/Topics")


async def _listed(request: AtomCall, kind: type[EntityDescription], path: str) -> Response:
    items = sorted(request.namespace.entities.items())
    entities = [entity for _, entity in items if isinstance(entity.description, kind)]
    keeps = request.filter()
    if keeps is not None:
        entities = [each for each in entities if keeps(each.description, await entity_info(each))]
    page = request.page(path, len(entities))
    shown = [(each.description, await entity_info(each)) for each in entities[page.skip : page.skip + page.top]]
    return request.feed(atom.entity_feed(shown, request.context, kind, page))


# Queues and topics


async def _put_entity(request: AtomCall) -> Response:
    _check_plain(request)
    sent = await _sent_entity(request)
    described = sent.description
    assert not isinstance(described, SubscriptionDescription), "an entity was parsed"
    found = request.find() if request.is_update else None
    before = None if found is None else found.description
    check_forwarding(request, sent, before if isinstance(before, QueueDescription) else None)
    if not request.is_update:
        entity = await run(request.management.create(described))
        return await _entity_entry(request, entity, Moment.CREATED)
    if found is None:
        raise EntityNotFound(f"Entity '{request.namespace.name}:{described.path}' was not found.")
    request.check_match(found.description.updated_at_ms)
    entity = await run(request.management.update(described, sent.given))
    return await _entity_entry(request, entity, Moment.UPDATED)


def _check_plain(request: AtomCall) -> None:
    if request.address != Address(request.address.entity):
        raise ArgumentError(f"'{request.address.path}' is not an entity that can be managed.")


async def _sent_entity(request: AtomCall) -> Sent:
    return atom.parse_entity(await request.body(), request.address.entity, request.context.api_version)


async def _entity_entry(request: AtomCall, entity: Entity, moment: Moment) -> Response:
    document = atom.entity_entry(entity.description, await entity_info(entity), request.context, moment)
    return request.entry(document, entity if moment is not Moment.CREATED else None, moment)


async def _get_entity(request: AtomCall) -> Response:
    if request.address.sub_queue is not None or request.address.management:
        raise refusal(400, NOT_MANAGEABLE, 40000)
    entity = request.find()
    return request.not_found_feed() if entity is None else await _entity_entry(request, entity, Moment.READ)


async def _delete_entity(request: AtomCall) -> Response:
    _check_plain(request)
    entity = request.find()
    if entity is None:
        text = f"Entity '{request.namespace.name}:{request.address.entity}' was not found."
        raise without_sub_code(EntityNotFound(text))
    await run(request.management.delete(entity.name))
    return request.deleted(entity)


Handler = Callable[[AtomCall], Awaitable[Response]]
_HANDLERS: dict[TargetKind, dict[str, Handler]] = {
    TargetKind.NAMESPACE_INFO: {"GET": _get_namespace_info},
    TargetKind.QUEUES: {"GET": _get_queues},
    TargetKind.TOPICS: {"GET": _get_topics},
    TargetKind.ENTITY: {"PUT": _put_entity, "GET": _get_entity, "DELETE": _delete_entity},
    TargetKind.SUBSCRIPTIONS: {"GET": get_subscriptions},
    TargetKind.SUBSCRIPTION: {
        "PUT": put_subscription,
        "GET": get_subscription,
        "DELETE": delete_subscription,
    },
    TargetKind.RULES: {"GET": get_rules},
    TargetKind.RULE: {"PUT": put_rule, "GET": get_rule, "DELETE": delete_rule},
}
_PATHS = {
    TargetKind.NAMESPACE_INFO: "$namespaceinfo",
    TargetKind.QUEUES: "$Resources/Queues",
    TargetKind.TOPICS: "$Resources/Topics",
}
_TAILS = {TargetKind.SUBSCRIPTIONS: "/Subscriptions", TargetKind.RULES: "/Rules"}


async def manage(call: HttpCall, target: HttpTarget) -> Response:
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


def _path_of(target: HttpTarget) -> str:
    """The canonical path of a target: what its token must cover."""
    if target.address is None:
        return _PATHS[target.kind]
    rule = "" if target.rule is None else f"/Rules/{target.rule}"
    return target.address.path + _TAILS.get(target.kind, "") + rule
