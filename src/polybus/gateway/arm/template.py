"""A namespace as a Resource Manager template: what `polybus deploy` and the cloud take."""

from __future__ import annotations

import json
from dataclasses import replace

from polybus.gateway.arm.resources import Json, properties_json, rule_json
from polybus.gateway.config.model import NamespaceConfig, SubscriptionConfig
from polybus.namespace.entities.description import (
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.rule import DEFAULT_RULE_NAME, FALSE_FILTER, RuleDescription

SCHEMA = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
API_VERSION = "2021-11-01"
_NAMESPACE = "Microsoft.ServiceBus/namespaces"
_PARAMETER = "parameters('serviceBusNamespaceName')"
_BARE: dict[type[Description], Description] = {
    QueueDescription: QueueDescription(path="x"),
    TopicDescription: TopicDescription(path="x"),
    SubscriptionDescription: SubscriptionDescription(topic="x", name="x"),
}


def template_text(namespace: NamespaceConfig, tier: str) -> str:
    """The template that makes such a namespace; its name is a parameter, and no key is in it."""
    resources = [_namespace(tier)]
    kinds = dict.fromkeys((queue.path.lower() for queue in namespace.queues), "queues")
    kinds |= dict.fromkeys((topic.description.path.lower() for topic in namespace.topics), "topics")
    for queue in namespace.queues:
        resources += _entity("queues", queue, kinds)
    for topic in namespace.topics:
        resources += _entity("topics", topic.description, kinds)
        for subscription in topic.subscriptions:
            resources += _subscription(topic.description.path, subscription, kinds)
    document = {
        "$schema": SCHEMA,
        "contentVersion": "1.0.0.0",
        "parameters": {
            "serviceBusNamespaceName": {"type": "string", "defaultValue": namespace.name},
            "location": {"type": "string", "defaultValue": "[resourceGroup().location]"},
        },
        "resources": resources,
    }
    return json.dumps(document, indent=2) + "\n"


def _namespace(tier: str) -> Json:
    return {
        "type": _NAMESPACE,
        "apiVersion": API_VERSION,
        "name": f"[{_PARAMETER}]",
        "location": "[parameters('location')]",
        "sku": {"name": tier, "tier": tier},
        "properties": {},
    }


def _resource(kinds: str, names: list[str], properties: Json, parent: str, more: list[str]) -> Json:
    quoted = "".join(f", '/{name}'" for name in names)
    return {
        "type": f"{_NAMESPACE}/{kinds}",
        "apiVersion": API_VERSION,
        "name": f"[concat({_PARAMETER}{quoted})]",
        "dependsOn": [parent, *more],
        "properties": properties,
    }


def _id(kinds: str, names: list[str]) -> str:
    quoted = "".join(f", '{name}'" for name in names)
    kind = f"{_NAMESPACE}/{kinds}" if kinds else _NAMESPACE
    return f"[resourceId('{kind}', {_PARAMETER}{quoted})]"


def _entity(kind: str, described: QueueDescription | TopicDescription, kinds: dict[str, str]) -> list[Json]:
    name = described.path.replace("/", "~")
    made = [_resource(kind, [name], _changed(described), _id("", []), _forwards(described, kinds))]
    for rule in described.authorization_rules:
        rights = {"rights": [right.value for right in rule.rights]}
        made.append(_resource(f"{kind}/authorizationRules", [name, rule.key_name], rights, _id(kind, [name]), []))
    return made


def _changed(described: Description) -> Json:
    """What differs from a new entity of that kind."""
    bare = properties_json(_BARE[type(described)])
    return {name: value for name, value in properties_json(described).items() if bare.get(name) != value}


def _forwards(described: Description, kinds: dict[str, str]) -> list[str]:
    """An entity is created behind those that it forwards to; `kinds` says whether these are queues or topics."""
    if isinstance(described, TopicDescription):
        return []
    own = described.path.lower() if isinstance(described, QueueDescription) else ""
    targets = [described.forward_to, described.forward_dead_lettered_messages_to]
    named = sorted({target for target in targets if target and target.lower() in kinds and target.lower() != own})
    return [_id(kinds[target.lower()], [target.replace("/", "~")]) for target in named]


def _subscription(topic: str, config: SubscriptionConfig, kinds: dict[str, str]) -> list[Json]:
    described, name = config.description, topic.replace("/", "~")
    names = [name, described.name]
    more = _forwards(described, kinds)
    made = [_resource("topics/subscriptions", names, _changed(described), _id("topics", [name]), more)]
    parent = _id("topics/subscriptions", names)
    rules = list(config.rules)
    if rules and not any(rule.name.lower() == DEFAULT_RULE_NAME.lower() for rule in rules):
        # A new subscription has the rule that lets everything through; only one of that name can take its place.
        rules.insert(0, RuleDescription(name=DEFAULT_RULE_NAME, filter=FALSE_FILTER))
    for rule in rules:
        made.append(_resource("topics/subscriptions/rules", [*names, rule.name], _rule(rule), parent, []))
    return made


def _rule(rule: RuleDescription) -> Json:
    shown = rule_json(replace(rule, created_at_ms=0))
    return {name: value for name, value in shown.items() if value}
