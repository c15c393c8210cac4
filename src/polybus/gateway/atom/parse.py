"""Request bodies of the management API to descriptions.

The first child of the entry's `content` says by its name what is described. Its elements are read in any order and
under any prefix; what is unknown, read-only or nil is skipped (docs/protocol/atom.md#envelope,
docs/protocol/atom.md#updates). Reading judges only whether a value can be read; whether it is allowed is for
`polybus.namespace`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from polybus.errors import ArgumentError
from polybus.gateway.atom.xml import Element, read_xml
from polybus.gateway.durations import parse_duration
from polybus.namespace.entities.description import (
    AccessRight,
    AuthorizationRule,
    Description,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.properties import AUTHORIZATION_RULES, MESSAGE_SIZE, PROPERTIES, EntityProperty, Shape
from polybus.namespace.entities.rule import (
    COMPATIBILITY_LEVEL,
    CORRELATION_FIELDS,
    DEFAULT_RULE_NAME,
    TRUE_FILTER,
    CorrelationFilterDescription,
    FilterDescription,
    FilterKind,
    RuleDescription,
    SqlActionDescription,
    SqlFilterDescription,
    TypedValues,
)
from polybus.namespace.entities.typed_value import TypedValue

MESSAGE_SIZE_SINCE = "2021-05"
"""The first api-version that has MaxMessageSizeInKilobytes."""
FILTER_COUNTS_SINCE = "2024-05"
"""The first api-version that counts a topic's filters."""
PARTITIONING_SINCE = "2013-10"
"""The first api-version that has partitioned entities (A6)."""

_BITS = {Shape.INT32: 32, Shape.INT64: 64}


@dataclass(frozen=True)
class Sent:
    """What a client sent: the description it asks for, and which elements it wrote."""

    description: Description
    given: frozenset[str]
    default_rule: RuleDescription | None = None
    """The rule that a new subscription begins with instead of `$Default`."""


def parse_entity(body: bytes, path: str, api_version: str = "") -> Sent:
    """The queue or topic that a body describes; its kind is in the body, its path in the URL."""
    element = _described(body, ("QueueDescription", "TopicDescription"))
    given = _given(element)
    kind = QueueDescription if element.name == "QueueDescription" else TopicDescription
    values = _values(kind, element)
    if api_version and api_version < MESSAGE_SIZE_SINCE and MESSAGE_SIZE.element in given:
        raise ArgumentError(f"The property '{MESSAGE_SIZE.element}' needs api-version {MESSAGE_SIZE_SINCE}.")
    if api_version and api_version < PARTITIONING_SINCE:
        # The element did not exist then. Who asks for partitions all the same must not get a plain entity (A6).
        if values.pop("enable_partitioning", False):
            raise ArgumentError(f"The property 'EnablePartitioning' needs api-version {PARTITIONING_SINCE}.")
        given -= {"EnablePartitioning"}
    return Sent(kind(path=path, **values), given)


def parse_subscription(body: bytes, topic: str, name: str) -> Sent:
    """The subscription that a body describes, with the rule it is to begin with, if the body has one."""
    element = _described(body, ("SubscriptionDescription",))
    values = _values(SubscriptionDescription, element)
    rule = element.child("DefaultRuleDescription")
    default_rule = None if rule is None else _rule(rule, _text_of(rule, "Name") or DEFAULT_RULE_NAME)
    return Sent(SubscriptionDescription(topic=topic, name=name, **values), _given(element), default_rule)


def parse_rule(body: bytes, name: str) -> RuleDescription:
    """The rule that a body describes. The name in the URL counts, not the one in the body."""
    return _rule(_described(body, ("RuleDescription",)), name)


def _described(body: bytes, kinds: tuple[str, ...]) -> Element:
    root = read_xml(body)
    content = root.child("content") if root.name == "entry" else None
    described = content.children[0] if content is not None and content.children else None
    if described is None or described.name not in kinds:
        expected = " or ".join(kinds)
        raise ArgumentError(f"The request body must be an Atom entry whose content is a {expected}.")
    return described


def _given(element: Element) -> frozenset[str]:
    return frozenset(child.name for child in element.present())


def _values(cls: type[Description], element: Element) -> dict[str, Any]:
    """The arguments for a description, of those properties that the element has."""
    values: dict[str, Any] = {}
    for item in PROPERTIES[cls]:
        child = element.child(item.element)
        if child is not None:
            _read_property(values, item, child)
    rules = element.child(AUTHORIZATION_RULES)
    if rules is not None and cls is not SubscriptionDescription:
        values["authorization_rules"] = tuple(_authorization_rule(rule) for rule in rules.present())
    return values


def _read_property(values: dict[str, Any], item: EntityProperty, child: Element) -> None:
    if item.shape is Shape.TEXT:
        # An empty element is how some clients write "none".
        values[item.attribute] = child.text or None
        return
    text = child.text.strip()
    if not text:
        return
    try:
        values[item.attribute] = _scalar(item.shape, text)
    except ArgumentError as error:
        raise ArgumentError(f"{error.description}\r\nParameter name: {item.element}") from None


def _scalar(shape: Shape, text: str) -> object:
    if shape is Shape.DURATION:
        return parse_duration(text)
    if shape is Shape.BOOLEAN:
        return _boolean(text)
    if shape is Shape.STATUS:
        return _status(text)
    return _integer(text, _BITS[shape])


def _boolean(text: str) -> bool:
    value = {"true": True, "1": True, "false": False, "0": False}.get(text.lower())
    if value is None:
        raise ArgumentError(f"The value {text[:40]!a} is not a valid boolean.")
    return value


def _status(text: str) -> EntityStatus:
    for status in EntityStatus:
        if status.value.lower() == text.lower():
            return status
    raise ArgumentError(f"The value {text[:40]!a} is not a valid status.")


def _integer(text: str, bits: int) -> int:
    digits = text[1:] if text[0] in "+-" else text
    if digits.isascii() and digits.isdigit() and len(digits) <= 19:
        value = int(text)
        if -(1 << bits - 1) <= value < 1 << bits - 1:
            return value
    raise ArgumentError(f"The value {text[:40]!a} is not a valid integer of {bits} bits.")


def _text_of(element: Element, name: str) -> str:
    child = element.child(name)
    return "" if child is None else child.text


def _authorization_rule(element: Element) -> AuthorizationRule:
    rights = element.child("Rights")
    return AuthorizationRule(
        key_name=_text_of(element, "KeyName"),
        rights=tuple(_right(child.text) for child in rights.present()) if rights is not None else (),
        primary_key=_text_of(element, "PrimaryKey"),
        secondary_key=_text_of(element, "SecondaryKey"),
    )


def _right(text: str) -> AccessRight:
    for right in AccessRight:
        if right.value.lower() == text.strip().lower():
            return right
    raise ArgumentError(f"The value {text[:40]!a} is not a valid access right.")


def _rule(element: Element, name: str) -> RuleDescription:
    filter_element, action_element = element.child("Filter"), element.child("Action")
    return RuleDescription(
        name=name,
        filter=TRUE_FILTER if filter_element is None else _filter(filter_element),
        action=None if action_element is None else _action(action_element),
    )


def _filter(element: Element) -> FilterDescription:
    kind = _kind_of(element)
    if kind is FilterKind.CORRELATION:
        fields = {attribute: _text_of(element, name) or None for name, attribute in CORRELATION_FIELDS}
        return CorrelationFilterDescription(**fields, properties=_typed_values(element.child("Properties")))
    default = "1=1" if kind is FilterKind.TRUE else "1=0" if kind is FilterKind.FALSE else ""
    return SqlFilterDescription(kind=kind, **_sql(element, default))


def _kind_of(element: Element) -> FilterKind:
    # A filter without a type is what a hand-written request has; its children tell what is meant.
    name = _local_type(element) or ("SqlFilter" if element.child("SqlExpression") else "CorrelationFilter")
    for kind in FilterKind:
        if kind.value == name:
            return kind
    raise ArgumentError(f"There is no filter of type {name[:40]!a}.")


def _action(element: Element) -> SqlActionDescription | None:
    name = _local_type(element) or ("SqlRuleAction" if element.child("SqlExpression") else "EmptyRuleAction")
    if name == "EmptyRuleAction":
        return None
    if name != "SqlRuleAction":
        raise ArgumentError(f"There is no action of type {name[:40]!a}.")
    return SqlActionDescription(**_sql(element, ""))


def _sql(element: Element, default: str) -> dict[str, Any]:
    level, preprocessing = element.child("CompatibilityLevel"), element.child("RequiresPreprocessing")
    return {
        "expression": _text_of(element, "SqlExpression") or default,
        "parameters": _typed_values(element.child("Parameters")),
        "compatibility_level": COMPATIBILITY_LEVEL if level is None else _integer(level.text.strip() or "-", 32),
        "requires_preprocessing": None if preprocessing is None else _boolean(preprocessing.text.strip()),
    }


def _local_type(element: Element) -> str:
    """The local part of an `i:type`, whose value has a prefix of the client's own choice."""
    return element.attributes.get("type", "").strip().rsplit(":", 1)[-1]


def _typed_values(element: Element | None) -> TypedValues:
    pairs: Iterable[Element] = () if element is None else element.present()
    return tuple(_typed_value(pair) for pair in pairs)


def _typed_value(pair: Element) -> tuple[str, TypedValue]:
    key, value = _text_of(pair, "Key"), pair.child("Value")
    if value is None:
        raise ArgumentError(f"The key {key[:40]!a} has no value.")
    type_name = _local_type(value) or "string"
    text = value.text if type_name == "string" else value.text.strip()
    try:
        return key, TypedValue(type_name, text)
    except ValueError as error:
        raise ArgumentError(f"The value of {key[:40]!a} cannot be read: {error}.") from None
