"""Declared entities back to the text of a configuration file, so that a live namespace can be exported."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from polybus.gateway.config.model import (
    EMULATOR_DEFAULTS,
    ConfigFile,
    NamespaceConfig,
    SubscriptionConfig,
    TopicConfig,
)
from polybus.gateway.config.rules import rule_to_json
from polybus.gateway.durations import duration_text
from polybus.namespace.entities.description import (
    AuthorizationRule,
    Description,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.properties import AUTHORIZATION_RULES, Shape, properties_of
from polybus.namespace.entities.rule import DEFAULT_RULE, FALSE_FILTER, RuleDescription

_BARE: dict[type[Description], Description] = {
    QueueDescription: QueueDescription(path="x", **EMULATOR_DEFAULTS[QueueDescription]),
    TopicDescription: TopicDescription(path="x", **EMULATOR_DEFAULTS[TopicDescription]),
    SubscriptionDescription: SubscriptionDescription(
        topic="x", name="x", **EMULATOR_DEFAULTS[SubscriptionDescription]
    ),
}
"""What an entity is whose name is all that the file says; only what differs from it is written."""


def dump(config: ConfigFile, *, with_keys: bool = True) -> str:
    """The text that `load` turns back into an equal ConfigFile. Without keys, new ones are made on loading."""
    namespaces = [_namespace(namespace, with_keys) for namespace in config.namespaces]
    document = {"UserConfig": {"Namespaces": namespaces, "Logging": {"Type": "Console"}}}
    return json.dumps(document, indent=2) + "\n"


def declared_subscription(
    description: SubscriptionDescription, rules: Sequence[RuleDescription]
) -> SubscriptionConfig:
    """A live subscription as a file would declare it; one that has lost all its rules lets nothing through."""
    plain = tuple(replace(rule, created_at_ms=0) for rule in rules)
    if not plain:
        plain = (RuleDescription(name="none", filter=FALSE_FILTER),)
    elif plain == (DEFAULT_RULE,):
        plain = ()
    return SubscriptionConfig(replace(description, created_at_ms=0, updated_at_ms=0), plain)


def _namespace(namespace: NamespaceConfig, with_keys: bool) -> dict[str, Any]:
    keys = namespace.authorization_rules if with_keys else ()
    rules = {AUTHORIZATION_RULES: [_authorization_rule(rule, True) for rule in keys]} if keys else {}
    return {
        "Name": namespace.name,
        **rules,
        "Queues": [{"Name": queue.path, **_properties(queue, with_keys)} for queue in namespace.queues],
        "Topics": [_topic(topic, with_keys) for topic in namespace.topics],
    }


def _topic(topic: TopicConfig, with_keys: bool) -> dict[str, Any]:
    return {
        "Name": topic.description.path,
        **_properties(topic.description, with_keys),
        "Subscriptions": [_subscription(each) for each in topic.subscriptions],
    }


def _subscription(subscription: SubscriptionConfig) -> dict[str, Any]:
    data = {"Name": subscription.description.name, **_properties(subscription.description, False)}
    if subscription.rules:
        data["Rules"] = [rule_to_json(rule) for rule in subscription.rules]
    return data


def _properties(description: Description, with_keys: bool) -> dict[str, Any]:
    bare = _BARE[type(description)]
    properties: dict[str, Any] = {}
    for item in properties_of(description):
        value = getattr(description, item.attribute)
        if value is not None and value != getattr(bare, item.attribute):
            properties[item.element] = _plain(item.shape, value)
    if not isinstance(description, SubscriptionDescription) and description.authorization_rules:
        rules = description.authorization_rules
        properties[AUTHORIZATION_RULES] = [_authorization_rule(rule, with_keys) for rule in rules]
    return {"Properties": properties} if properties else {}


def _plain(shape: Shape, value: Any) -> Any:
    if shape is Shape.DURATION:
        return duration_text(value)
    return value.value if isinstance(value, EntityStatus) else value


def _authorization_rule(rule: AuthorizationRule, with_keys: bool) -> dict[str, Any]:
    data: dict[str, Any] = {"KeyName": rule.key_name, "Rights": [right.value for right in rule.rights]}
    if with_keys and rule.primary_key:
        data["PrimaryKey"] = rule.primary_key
    if with_keys and rule.secondary_key:
        data["SecondaryKey"] = rule.secondary_key
    return data
