"""The resource manager's API for `Microsoft.ServiceBus`: what `azure-mgmt-servicebus` and templates talk to.

Which Azure subscription and resource group a path names does not matter: the namespace counts. A token is a shared
access signature of the namespace with the right to manage, behind the word Bearer or not.
"""

from __future__ import annotations

from starlette.responses import Response

from polybus.errors import EntityNotFound, InvalidOperation, PolybusError
from polybus.gateway.arm.call import ArmCall, answer, refused, time_text
from polybus.gateway.arm.entities import KINDS, entities, entity, rule, rules, subscription, subscriptions
from polybus.gateway.arm.keys import authorization_rule, authorization_rules, list_keys, regenerate_keys
from polybus.gateway.arm.network import network_rule_set, network_rule_sets
from polybus.gateway.arm.resources import PROVIDER, Json
from polybus.gateway.http.auth import authorize
from polybus.gateway.http.errors import not_allowed
from polybus.gateway.http.request import HttpCall
from polybus.gateway.sas import Rights
from polybus.namespace.namespace import Namespace

_OPERATIONS = ("namespaces", "queues", "topics", "subscriptions", "rules", "authorizationRules")


async def handle_arm(call: HttpCall) -> Response:
    """Answers a request of the resource manager's API, refusals included.

    IP rules are not for it, as in the cloud: whoever shut himself out could not undo it.
    """
    call.judges_address = False
    try:
        return await _answer(ArmCall(call))
    except PolybusError as error:
        return refused(call, error)


async def _answer(request: ArmCall) -> Response:
    names = request.names
    words = [name.lower() for name in names]
    if words[:1] != ["namespaces"] or len(names) < 2:
        authorize(request.call, "", Rights.MANAGE)
        return await _above(request, words)
    request.enter(names[1])
    if len(names) == 2:
        return await _namespace(request)
    if "authorizationrules" in words[2:]:
        return await _keys(request, words)
    if words[2] == "networkrulesets" and len(names) <= 4:
        return await (network_rule_sets(request) if len(names) == 3 else network_rule_set(request, names[3]))
    if words[2] not in KINDS:
        raise EntityNotFound(f"There is nothing at '{request.call.path[:300]}'.")
    return await _inside(request, words)


async def _inside(request: ArmCall, words: list[str]) -> Response:
    names = request.names
    if len(names) <= 4:
        return await (entities(request, words[2]) if len(names) == 3 else entity(request, words[2], names[3]))
    if words[2] == "topics" and words[4] == "subscriptions":
        if len(names) == 5:
            return await subscriptions(request, names[3])
        if len(names) == 6:
            return await subscription(request, names[3], names[5])
        if words[6] == "rules" and len(names) <= 8:
            if len(names) == 7:
                return await rules(request, names[3], names[5])
            return await rule(request, names[3], names[5], names[7])
    raise EntityNotFound(f"There is nothing at '{request.call.path[:300]}'.")


async def _keys(request: ArmCall, words: list[str]) -> Response:
    at = words.index("authorizationrules", 2)
    if at not in (2, 4) or (at == 4 and words[2] not in KINDS) or len(words) > at + 3:
        raise EntityNotFound(f"There is nothing at '{request.call.path[:300]}'.")
    owner, rest = request.names[:at], request.names[at + 1 :]
    if not rest:
        return await authorization_rules(request, owner)
    if len(rest) == 1:
        return await authorization_rule(request, owner, rest[0])
    verbs = {"listkeys": list_keys, "regeneratekeys": regenerate_keys}
    verb = verbs.get(rest[1].lower())
    if verb is None:
        raise EntityNotFound(f"There is nothing at '{request.call.path[:300]}'.")
    return await verb(request, owner, rest[0])


# Namespaces


async def _above(request: ArmCall, words: list[str]) -> Response:
    """What belongs to no namespace."""
    method, bus = request.call.method, request.call.gateway.bus
    if words == ["operations"] and method == "GET":
        named = [{"name": f"{PROVIDER}/{word}/write", "display": {"resource": word}} for word in _OPERATIONS]
        return answer({"value": named})
    if words == ["namespaces"] and method == "GET":
        return answer(request.page([_namespace_json(request, each) for each in bus.namespaces.values()]))
    if words == ["checknameavailability"] and method == "POST":
        taken = str((await request.json()).get("name", "")).lower() in bus.namespaces
        reason = (
            {"reason": "NameInUse", "message": "The name is in use on this bus."} if taken else {"reason": "None"}
        )
        return answer({"nameAvailable": not taken, **reason})
    raise EntityNotFound(f"There is nothing at '{request.call.path[:300]}'.")


async def _namespace(request: ArmCall) -> Response:
    method = request.call.method
    if method in ("PUT", "PATCH"):
        await _check_sku(request)
    elif method == "DELETE":
        raise InvalidOperation("A namespace is declared where the bus is started, and cannot be deleted from here.")
    elif method != "GET":
        raise not_allowed(method)
    return answer(_namespace_json(request, request.namespace))


async def _check_sku(request: ArmCall) -> None:
    """A namespace is what the bus was started with: what is asked for must be that."""
    sku = (await request.json()).get("sku")
    asked = sku.get("name") if isinstance(sku, dict) else None
    tier = request.namespace.tier.name.value
    if asked is not None and str(asked).lower() != tier.lower():
        raise InvalidOperation(f"The bus was started with the tier {tier}; it cannot become '{str(asked)[:40]}'.")


def _namespace_json(request: ArmCall, namespace: Namespace) -> Json:
    tier = namespace.tier.name.value
    created = time_text(namespace.created_ms)
    network = request.call.gateway.bus.access_rules.network_of(namespace)
    properties: Json = {
        "provisioningState": "Succeeded",
        "status": "Active",
        "createdAt": created,
        "updatedAt": created,
        "serviceBusEndpoint": f"{request.call.base_url}/",
        "disableLocalAuth": False,
        "publicNetworkAccess": "Enabled" if network.public else "Disabled",
    }
    return request.resource(["namespaces", namespace.name], properties, sku={"name": tier, "tier": tier}, tags={})
