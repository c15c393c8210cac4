"""Entities as the resource manager writes them: JSON with camel case names, to descriptions and back.

The names are those of the ATOM API with a small first letter, and the values are JSON's own. Reading judges only whether
a value can be read; whether it is allowed is for `polybus.namespace`.
"""

from __future__ import annotations

import json
from typing import Any

from polybus.errors import ArgumentError, ConfigError
from polybus.gateway.config.jsonc import read_jsonc
from polybus.gateway.config.rules import read_rule
from polybus.gateway.config.value import ConfigValue
from polybus.gateway.durations import duration_text
from polybus.namespace.entities.description import (
    AccessRight,
    Description,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.properties import PROPERTIES, EntityProperty, Shape, properties_of
from polybus.namespace.entities.rule import (
    COMPATIBILITY_LEVEL,
    CorrelationFilterDescription,
    RuleDescription,
    SqlActionDescription,
    SqlFilterDescription,
)

PROVIDER = "Microsoft.ServiceBus"
_HIDDEN = ("IsAnonymousAccessible", "FilteringMessagesBeforePublishing", "EnableSubscriptionPartitioning")
"""What the ATOM API has and the resource manager does not show."""
Json = dict[str, Any]


def camel(element: str) -> str:
    return element[0].lower() + element[1:]


# Writing


def properties_json(description: Description) -> Json:
    """What can be set, as it is; sizes are those of all partitions together, as users see them."""
    shown: Json = {}
    for item in properties_of(description):
        value = getattr(description, item.attribute)
        if value is not None and item.element not in _HIDDEN:
            shown[camel(item.element)] = _plain(item, value)
    if not isinstance(description, SubscriptionDescription):
        shown["maxSizeInMegabytes"] = description.shown_size_in_megabytes
        if description.partition_count > 1:
            shown["partitionCount"] = description.partition_count
    return shown


def _plain(item: EntityProperty, value: Any) -> object:
    if item.shape is Shape.DURATION:
        return duration_text(value)
    return value.value if isinstance(value, EntityStatus) else value


def rule_json(rule: RuleDescription) -> Json:
    described = rule.filter
    shown: Json = {"action": {} if rule.action is None else _sql(rule.action)}
    if isinstance(described, CorrelationFilterDescription):
        fields: Json = {camel(element): value for element, value in described.fields}
        fields["properties"] = {name: _text(value.python) for name, value in described.properties}
        return {**shown, "filterType": "CorrelationFilter", "correlationFilter": fields}
    return {**shown, "filterType": "SqlFilter", "sqlFilter": _sql(described)}


def _sql(described: SqlFilterDescription | SqlActionDescription) -> Json:
    level = described.compatibility_level
    return {"sqlExpression": described.expression, "compatibilityLevel": level or COMPATIBILITY_LEVEL}


def _text(value: object) -> str:
    """The resource manager knows properties of correlation filters as text only."""
    return str(value).lower() if isinstance(value, bool) else str(value)


# Reading


def queue_from(path: str, properties: Json) -> tuple[QueueDescription, frozenset[str]]:
    """The queue that is asked for, and the names of the elements that were given."""
    values, given = _values(QueueDescription, properties)
    return QueueDescription(path=path, **values), given


def topic_from(path: str, properties: Json) -> tuple[TopicDescription, frozenset[str]]:
    values, given = _values(TopicDescription, properties)
    return TopicDescription(path=path, **values), given


def subscription_from(topic: str, name: str, properties: Json) -> tuple[SubscriptionDescription, frozenset[str]]:
    values, given = _values(SubscriptionDescription, properties)
    return SubscriptionDescription(topic=topic, name=name, **values), given


def _values(kind: type[Description], properties: Json) -> tuple[dict[str, Any], frozenset[str]]:
    cursor = _cursor(properties)
    values: dict[str, Any] = {}
    given: set[str] = set()
    try:
        for item in PROPERTIES[kind]:
            child = cursor.child(item.element)
            if child is not None and child.value is not None:
                values[item.attribute] = child.scalar(item.shape)
                given.add(item.element)
    except ConfigError as error:
        raise ArgumentError(str(error)) from None
    return values, frozenset(given)


def rule_from(name: str, properties: Json) -> RuleDescription:
    """The rule that is asked for; without a filter it lets everything through."""
    folded = {key.lower() for key, value in properties.items() if value is not None}
    kept = {key: value for key, value in properties.items() if value not in (None, {})}
    if "filtertype" not in folded:
        kind = "CorrelationFilter" if "correlationfilter" in folded else "SqlFilter"
        kept["filterType"] = kind if folded & {"correlationfilter", "sqlfilter"} else "TrueFilter"
    try:
        return read_rule(_cursor({"Name": name, "Properties": kept}))
    except ConfigError as error:
        raise ArgumentError(str(error)) from None


def _cursor(value: Json) -> ConfigValue:
    return ConfigValue("the request", "properties", read_jsonc(json.dumps(value), "the request"), [])


def rights_from(properties: Json) -> tuple[AccessRight, ...]:
    given = properties.get("rights")
    if not isinstance(given, list) or not given:
        raise ArgumentError("'rights' must be a list of Manage, Send and Listen.")
    found = [right for text in given for right in AccessRight if right.value.lower() == str(text).lower()]
    if len(found) != len(given):
        raise ArgumentError("'rights' must be a list of Manage, Send and Listen.")
    return tuple(found)
