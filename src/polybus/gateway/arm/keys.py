"""Authorization rules in the resource manager's API: of namespaces, queues and topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from starlette.responses import Response

from polybus.asyncio_bridge import run
from polybus.errors import ArgumentError, EntityNotFound, InvalidOperation
from polybus.gateway.arm.call import ArmCall, answer
from polybus.gateway.arm.entities import found_entity
from polybus.gateway.arm.resources import Json, rights_from
from polybus.gateway.http.errors import not_allowed
from polybus.namespace.entities.admission import asked_form
from polybus.namespace.entities.description import AuthorizationRule, QueueDescription, TopicDescription
from polybus.namespace.entities.entity import Entity

FIXED = "This key of the namespace was given when the bus was started, and is changed where it was given."


class Owner:
    """Whose rules they are: an entity's, or the namespace's own."""

    def __init__(self, request: ArmCall, names: list[str]) -> None:
        self.request = request
        self.names = names
        self.entity: Entity | None = None
        if len(names) > 2:
            self.entity = found_entity(request, names[2].lower(), names[3])

    @property
    def rules(self) -> Sequence[AuthorizationRule]:
        if self.entity is None:
            return self.request.call.gateway.keys_of(self.request.namespace)
        return self.entity.description.authorization_rules

    def rule(self, name: str) -> AuthorizationRule:
        for rule in self.rules:
            if rule.key_name.lower() == name.lower():
                return rule
        raise EntityNotFound(f"The authorization rule '{name[:60]}' could not be found.")

    async def replace(self, name: str, rule: AuthorizationRule | None) -> None:
        """Puts a rule in the place of the one of that name, or takes that one away."""
        if self.entity is None:
            await self._replace_own(name, rule)
            return
        kept = [each for each in self.rules if each.key_name.lower() != name.lower()]
        rules = tuple(kept if rule is None else [*kept, rule])
        described, management, tier = self.entity.description, self.request.management, self.request.namespace.tier
        asked: QueueDescription | TopicDescription
        if isinstance(described, QueueDescription):
            asked = replace(asked_form(described, tier), authorization_rules=rules)
        else:
            asked = replace(asked_form(described, tier), authorization_rules=rules)
        await run(management.update(asked))

    async def _replace_own(self, name: str, rule: AuthorizationRule | None) -> None:
        """The same for a rule of the namespace."""
        gateway, namespace = self.request.call.gateway, self.request.namespace
        if any(each.key_name.lower() == name.lower() for each in gateway.given_keys(namespace)):
            raise InvalidOperation(FIXED)
        made = gateway.bus.access_rules.of(namespace)
        kept = tuple(each for each in made if each.key_name.lower() != name.lower())
        await run(gateway.bus.access_rules.set_rules(namespace, kept if rule is None else (*kept, rule)))

    def json(self, rule: AuthorizationRule) -> Json:
        names = [*self.names, "authorizationRules", rule.key_name]
        return self.request.resource(names, {"rights": [right.value for right in rule.rights]})

    def keys(self, rule: AuthorizationRule) -> Json:
        host = self.request.call.host
        path = "" if self.entity is None else f";EntityPath={self.entity.name}"
        shown: Json = {"keyName": rule.key_name}
        for which, key in (("primary", rule.primary_key), ("secondary", rule.secondary_key)):
            shown[f"{which}Key"] = key
            start = f"Endpoint=sb://{host}/;SharedAccessKeyName={rule.key_name}"
            shown[f"{which}ConnectionString"] = f"{start};SharedAccessKey={key}{path}"
        return shown


async def authorization_rules(request: ArmCall, names: list[str]) -> Response:
    if request.call.method != "GET":
        raise not_allowed(request.call.method)
    owner = Owner(request, names)
    return answer(request.page([owner.json(rule) for rule in owner.rules]))


async def authorization_rule(request: ArmCall, names: list[str], name: str) -> Response:
    method, owner = request.call.method, Owner(request, names)
    if method == "GET":
        return answer(owner.json(owner.rule(name)))
    if method == "DELETE":
        if not any(rule.key_name.lower() == name.lower() for rule in owner.rules):
            return Response(status_code=204)
        await owner.replace(name, None)
        return Response(status_code=200)
    if method != "PUT":
        raise not_allowed(method)
    rights = rights_from(await request.properties())
    old = [rule for rule in owner.rules if rule.key_name.lower() == name.lower()]
    changed = replace(old[0], rights=rights) if old else AuthorizationRule(key_name=name, rights=rights)
    await owner.replace(name, changed)
    return answer(owner.json(owner.rule(name)))


async def list_keys(request: ArmCall, names: list[str], name: str) -> Response:
    if request.call.method != "POST":
        raise not_allowed(request.call.method)
    owner = Owner(request, names)
    return answer(owner.keys(owner.rule(name)))


async def regenerate_keys(request: ArmCall, names: list[str], name: str) -> Response:
    if request.call.method != "POST":
        raise not_allowed(request.call.method)
    owner, body = Owner(request, names), await request.json()
    which, given = body.get("keyType"), body.get("key")
    if which not in ("PrimaryKey", "SecondaryKey") or not isinstance(given, str | None):
        raise ArgumentError("'keyType' must be PrimaryKey or SecondaryKey.")
    key, rule = given or request.call.gateway.bus.new_key(), owner.rule(name)
    changed = replace(rule, primary_key=key) if which == "PrimaryKey" else replace(rule, secondary_key=key)
    await owner.replace(name, changed)
    return answer(owner.keys(owner.rule(name)))
