"""What a resource of a template would change on a bus: it is compared with what is there, before anything is done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from polybus.errors import ArgumentError, TemplateError
from polybus.gateway.arm.resources import (
    Json,
    camel,
    properties_json,
    queue_from,
    rights_from,
    rule_from,
    rule_json,
    subscription_from,
    topic_from,
)
from polybus.namespace.entities.description import Description
from polybus.namespace.entities.properties import properties_of
from polybus.templates.template import Resource

CREATE, UPDATE, SAME, REFUSED = "create", "update", "no change", "refused"
_NAMESPACE = "namespaces"
_ENTITIES = ("namespaces/queues", "namespaces/topics", "namespaces/topics/subscriptions")
_RULE = "namespaces/topics/subscriptions/rules"
_KEYS = (
    "namespaces/authorizationrules",
    "namespaces/queues/authorizationrules",
    "namespaces/topics/authorizationrules",
)
_ADDRESSES = ("forwardTo", "forwardDeadLetteredMessagesTo")


@dataclass
class PlannedChange:
    resource: Resource
    action: str
    differences: list[tuple[str, Any, Any]] = field(default_factory=list)
    """Property, what it is, what it would be."""
    reason: str | None = None
    """Why it is refused."""


def check_kinds(resources: list[Resource]) -> None:
    """TemplateError where a bus has no such thing."""
    known = (_NAMESPACE, *_ENTITIES, _RULE, *_KEYS)
    for each in resources:
        if each.kind.lower() not in known:
            raise TemplateError(f"{each.path}: a resource of the type {each.kind} cannot be had on a bus")


def change_for(resource: Resource, existing: Json | None) -> PlannedChange:
    """What making the resource so would do; `existing` is how the bus shows it now."""
    try:
        asked, fixed = _asked(resource)
    except ArgumentError as error:
        return PlannedChange(resource, REFUSED, reason=error.description)
    if existing is None:
        if resource.kind.lower() == _NAMESPACE:
            return PlannedChange(resource, REFUSED, reason="the bus has no such namespace")
        return PlannedChange(
            resource, CREATE, [(name, None, value) for name, value in _given(resource, asked).items()]
        )
    there = existing.get("sku", {}) if resource.kind.lower() == _NAMESPACE else existing.get("properties", {})
    differences = [
        (name, there.get(name), value) for name, value in asked.items() if not _same(name, value, there, resource)
    ]
    refused = [name for name, _, _ in differences if name in fixed]
    if refused:
        return PlannedChange(
            resource, REFUSED, differences, f"{', '.join(refused)} cannot be changed once it is there"
        )
    return PlannedChange(resource, UPDATE if differences else SAME, differences)


def _asked(resource: Resource) -> tuple[Json, set[str]]:
    """The properties as they would be, defaults included, and those that can never change."""
    kind, names, properties = resource.kind.lower(), resource.names, resource.properties
    if kind == _NAMESPACE:
        tier = resource.sku.get("name")
        return ({} if tier is None else {"name": tier}), {"name"}
    if kind in _KEYS:
        return {"rights": sorted(right.value for right in rights_from(properties))}, set()
    if kind == _RULE:
        return rule_json(rule_from(names[-1], properties)), set()
    described, given = _description(kind, names, properties)
    shown = properties_json(described)
    for item in properties_of(described):
        if item.fixed and item.element not in given:
            shown.pop(camel(item.element), None)
    return shown, {camel(item.element) for item in properties_of(described) if item.fixed}


def _description(kind: str, names: tuple[str, ...], properties: Json) -> tuple[Description, frozenset[str]]:
    if kind == "namespaces/queues":
        return queue_from(names[-1], properties)
    if kind == "namespaces/topics":
        return topic_from(names[-1], properties)
    return subscription_from(names[1], names[-1], properties)


def _given(resource: Resource, asked: Json) -> Json:
    """What the template says itself, without the defaults."""
    folded = {name.lower() for name in resource.properties}
    return {name: value for name, value in asked.items() if name.lower() in folded}


def _same(name: str, value: Any, there: Json, resource: Resource) -> bool:
    shown = there.get(name)
    if name == "rights":
        return bool(sorted(shown or []) == value)
    if name == "maxSizeInMegabytes":
        return shown in (value, value * there.get("partitionCount", 1))
    if name == "name":
        return str(shown).lower() == str(value).lower()
    if name in _ADDRESSES:
        return (
            str(shown or "").rstrip("/").split("/")[-1].lower() == str(value or "").rstrip("/").split("/")[-1].lower()
        )
    if name == "supportOrdering" and "supportOrdering" not in resource.properties:
        return True
    return bool(shown == value)


def _target(address: Any) -> str:
    """The entity that a forward names: the bus shows whole addresses, templates have names."""
    text = str(address or "").rstrip("/")
    return text.split("://")[-1].partition("/")[2].lower() if "://" in text else text.lower()
