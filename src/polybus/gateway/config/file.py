"""The file of declared entities: the official emulator's `config.json`, with everything else that we know besides.

What the file leaves out gets the emulator's defaults, which are not the cloud's (docs/protocol/emulator.md#config),
so that a bus started with it behaves as the emulator does. Ranges are the cloud's; a value that the emulator would
refuse is taken with a warning, an unknown key is left alone with a warning unless it looks like a known one, and
everything else that is wrong stops the start with a message that says where.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from polybus.errors import ConfigError
from polybus.gateway.config.dump import declared_subscription, dump
from polybus.gateway.config.jsonc import read_jsonc
from polybus.gateway.config.model import (
    EMULATOR_DEFAULTS,
    EMULATOR_NAMESPACE,
    HOUR_MS,
    ConfigFile,
    NamespaceConfig,
    SubscriptionConfig,
    TopicConfig,
)
from polybus.gateway.config.rules import read_rule
from polybus.gateway.config.value import ConfigValue, MisspelledKey
from polybus.gateway.durations import duration_text
from polybus.namespace.entities import admission
from polybus.namespace.entities.description import (
    AccessRight,
    AuthorizationRule,
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.names import fold
from polybus.namespace.entities.properties import AUTHORIZATION_RULES, PROPERTIES
from polybus.namespace.entities.tiers import STANDARD, Tier
from polybus.namespace.entities.validation import Violation, authorization_violations, violations

__all__ = [
    "EMULATOR_NAMESPACE",
    "ConfigFile",
    "NamespaceConfig",
    "SubscriptionConfig",
    "TopicConfig",
    "declared_subscription",
    "dump",
    "load",
]

_EMULATOR_MOST = {
    "DefaultMessageTimeToLive": HOUR_MS,
    "DuplicateDetectionHistoryTimeWindow": 300_000,
    "MaxDeliveryCount": 10,
}
_EMULATOR_NAMESPACES = 1
_EMULATOR_ENTITIES = 50
_EMULATOR_SUBSCRIPTIONS = 50
_EMULATOR_RULES = 1_000


def load(text: str, source_name: str, tier: Tier = STANDARD) -> ConfigFile:
    """What a file declares, and what there is to say about it; ConfigError if it cannot be done in `tier`."""
    try:
        return _read(text, source_name, tier)
    except MisspelledKey as error:
        found = re.search(rf'"{re.escape(error.key)}"\s*:', text)
        line = 1 if found is None else text.count("\n", 0, found.start()) + 1
        raise ConfigError(f"{source_name}: line {line}: {error}") from None


def _read(text: str, source_name: str, tier: Tier) -> ConfigFile:
    warnings: list[str] = []
    root = ConfigValue(source_name, "", read_jsonc(text, source_name), warnings)
    root.warn_of_unknown_keys(("UserConfig", "$schema"))
    user_config = root.required("UserConfig")
    user_config.warn_of_unknown_keys(("Namespaces", "Logging"))
    cursor = user_config.required("Namespaces")
    namespaces = tuple(_namespace(item, tier) for item in cursor.items())
    _check_distinct(cursor.items(), (namespace.name for namespace in namespaces), "namespace")
    _warn_of_count(cursor, len(namespaces), _EMULATOR_NAMESPACES, "namespaces")
    return ConfigFile(namespaces, tuple(warnings))


def _namespace(cursor: ConfigValue, tier: Tier) -> NamespaceConfig:
    cursor.warn_of_unknown_keys(("Name", "Queues", "Topics", AUTHORIZATION_RULES))
    name = cursor.required("Name").text()
    if not name:
        raise cursor.error("Name is empty")
    queue_cursors, topic_cursors = _items(cursor, "Queues"), _items(cursor, "Topics")
    queues = tuple(_queue(item, tier) for item in queue_cursors)
    topics = tuple(_topic(item, tier) for item in topic_cursors)
    paths = [queue.path for queue in queues] + [topic.description.path for topic in topics]
    _check_distinct([*queue_cursors, *topic_cursors], paths, "queue or topic")
    _warn_of_count(cursor, len(paths), _EMULATOR_ENTITIES, "queues and topics")
    return NamespaceConfig(name, queues, topics, _namespace_keys(cursor))


def _namespace_keys(cursor: ConfigValue) -> tuple[AuthorizationRule, ...]:
    """The keys of a namespace alone; a key that nobody knows would open it to nobody, so each must be there."""
    items = _items(cursor, AUTHORIZATION_RULES)
    for item in items:
        item.required("PrimaryKey")
    rules = tuple(_authorization_rule(item) for item in items)
    for violation in authorization_violations(rules):
        raise cursor.required(AUTHORIZATION_RULES).error(violation.text)
    return rules


def _queue(cursor: ConfigValue, tier: Tier) -> QueueDescription:
    cursor.warn_of_unknown_keys(("Name", "Properties"))
    path = cursor.required("Name").text()
    queue = QueueDescription(path=path, **_properties(cursor, QueueDescription))
    _check(cursor, admission.prepared(queue, tier), tier)
    return queue


def _topic(cursor: ConfigValue, tier: Tier) -> TopicConfig:
    cursor.warn_of_unknown_keys(("Name", "Properties", "Subscriptions"))
    path = cursor.required("Name").text()
    topic = TopicDescription(path=path, **_properties(cursor, TopicDescription))
    _check(cursor, admission.prepared(topic, tier), tier)
    items = _items(cursor, "Subscriptions")
    subscriptions = tuple(_subscription(item, path, tier) for item in items)
    _check_distinct(items, (each.description.name for each in subscriptions), "subscription")
    _warn_of_count(cursor, len(items), _EMULATOR_SUBSCRIPTIONS, "subscriptions")
    return TopicConfig(topic, subscriptions)


def _subscription(cursor: ConfigValue, topic: str, tier: Tier) -> SubscriptionConfig:
    cursor.warn_of_unknown_keys(("Name", "Properties", "Rules"))
    name = cursor.required("Name").text()
    values = _properties(cursor, SubscriptionDescription)
    subscription = SubscriptionDescription(topic=topic, name=name, **values)
    _check(cursor, admission.prepared(subscription, tier), tier)
    items = _items(cursor, "Rules")
    rules = tuple(read_rule(item) for item in items)
    _check_distinct(items, (rule.name for rule in rules), "rule")
    _warn_of_count(cursor, len(items), _EMULATOR_RULES, "rules")
    return SubscriptionConfig(subscription, rules)


def _items(cursor: ConfigValue, key: str) -> list[ConfigValue]:
    child = cursor.child(key)
    return [] if child is None else child.items()


def _properties(cursor: ConfigValue, kind: type[Description]) -> dict[str, Any]:
    """The arguments for a description, the emulator's defaults among them."""
    values = dict(EMULATOR_DEFAULTS[kind])
    properties = cursor.child("Properties")
    if properties is None:
        return values
    known = [item.element for item in PROPERTIES[kind]]
    for item in PROPERTIES[kind]:
        child = properties.child(item.element)
        if child is not None:
            values[item.attribute] = child.scalar(item.shape)
            _warn_of_value(child, item.element, values[item.attribute])
    if kind is not SubscriptionDescription:
        known.append(AUTHORIZATION_RULES)
        rules = _items(properties, AUTHORIZATION_RULES)
        values["authorization_rules"] = tuple(_authorization_rule(rule) for rule in rules)
    properties.warn_of_unknown_keys(known)
    return values


def _authorization_rule(cursor: ConfigValue) -> AuthorizationRule:
    cursor.warn_of_unknown_keys(("KeyName", "Rights", "PrimaryKey", "SecondaryKey"))
    primary, secondary = cursor.child("PrimaryKey"), cursor.child("SecondaryKey")
    return AuthorizationRule(
        key_name=cursor.required("KeyName").text(),
        rights=tuple(_right(item) for item in cursor.required("Rights").items()),
        primary_key="" if primary is None else primary.text(),
        secondary_key="" if secondary is None else secondary.text(),
    )


def _right(cursor: ConfigValue) -> AccessRight:
    for right in AccessRight:
        if right.value.lower() == cursor.text().lower():
            return right
    raise cursor.not_allowed("Manage, Send, Listen")


def _check(cursor: ConfigValue, description: Description, tier: Tier) -> None:
    for violation in violations(description, tier, from_file=True):
        raise _located(cursor, violation)


def _located(cursor: ConfigValue, violation: Violation) -> ConfigError:
    """The complaint at the key that it is about, or at the entity if the value came from a default."""
    properties = cursor.child("Properties")
    place = cursor.child(violation.property)
    if place is None and properties is not None:
        place = properties.child(violation.property)
    if place is None or violation.property == AUTHORIZATION_RULES:
        return (place or cursor).error(violation.text)
    return place.not_allowed(f"{violation.allowed}. {violation.text}")


def _check_distinct(cursors: list[ConfigValue], names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for cursor, name in zip(cursors, names, strict=True):
        if fold(name) in seen:
            raise cursor.error(f"there is another {what} called {name!a}; names must differ by more than case")
        seen.add(fold(name))


def _warn_of_count(cursor: ConfigValue, count: int, most: int, what: str) -> None:
    if count > most:
        cursor.warn(f"{count} {what}; the emulator allows {most}")


def _warn_of_value(cursor: ConfigValue, name: str, value: Any) -> None:
    most = _EMULATOR_MOST.get(name)
    if most is not None and value > most:
        allowed = str(most) if name == "MaxDeliveryCount" else duration_text(most)
        cursor.warn(f"the value is beyond the emulator's maximum of {allowed}")
