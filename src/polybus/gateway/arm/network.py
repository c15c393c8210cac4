"""`networkRuleSets/default` of a namespace in the resource manager's API: from where clients may come."""

from __future__ import annotations

from starlette.responses import Response

from polybus.asyncio_bridge import run
from polybus.errors import ArgumentError, EntityNotFound
from polybus.gateway.arm.call import ArmCall, answer
from polybus.gateway.arm.resources import Json
from polybus.gateway.http.errors import not_allowed
from polybus.namespace.entities.network_rules import NetworkRules

_SWITCH = {"enabled": True, "disabled": False}


async def network_rule_sets(request: ArmCall) -> Response:
    """The list, which has one."""
    if request.call.method != "GET":
        raise not_allowed(request.call.method)
    return answer(request.page([_json(request)]))


async def network_rule_set(request: ArmCall, name: str) -> Response:
    if name.lower() != "default":
        raise EntityNotFound(f"There is no network rule set '{name[:60]}'; its name is default.")
    method, rules = request.call.method, request.call.gateway.bus.access_rules
    if method == "PUT":
        await run(rules.set_network(request.namespace, _asked(await request.properties())))
    elif method != "GET":
        raise not_allowed(method)
    return answer(_json(request))


def _asked(properties: Json) -> NetworkRules:
    if properties.get("virtualNetworkRules"):
        raise ArgumentError("There are no virtual networks here: give addresses in 'ipRules'.")
    items = properties.get("ipRules") or []
    if not isinstance(items, list):
        raise ArgumentError("'ipRules' must be an array.")
    return NetworkRules(
        tuple(_mask(item) for item in items),
        _word(properties, "defaultAction", {"allow": False, "deny": True}, False),
        _word(properties, "publicNetworkAccess", _SWITCH, True),
        properties.get("trustedServiceAccessEnabled") is True,
    )


def _mask(item: object) -> str:
    mask = item.get("ipMask") if isinstance(item, dict) else None
    if (
        not isinstance(item, dict)
        or not isinstance(mask, str)
        or str(item.get("action") or "Allow").lower() != "allow"
    ):
        raise ArgumentError("An IP rule has an 'ipMask', and its 'action' is Allow.")
    return mask


def _word(properties: Json, name: str, words: dict[str, bool], default: bool) -> bool:
    value = properties.get(name)
    if value is None:
        return default
    meant = words.get(str(value).lower())
    if meant is None:
        raise ArgumentError(f"'{name}' must be one of {', '.join(word.capitalize() for word in words)}.")
    return meant


def _json(request: ArmCall) -> Json:
    rules = request.call.gateway.bus.access_rules.network_of(request.namespace)
    properties: Json = {
        "trustedServiceAccessEnabled": rules.trusts_services,
        "publicNetworkAccess": "Enabled" if rules.public else "Disabled",
        "defaultAction": "Deny" if rules.denies_others else "Allow",
        "virtualNetworkRules": [],
        "ipRules": [{"ipMask": mask, "action": "Allow"} for mask in rules.masks],
    }
    return request.resource(["namespaces", request.namespace.name, "networkRuleSets", "default"], properties)
