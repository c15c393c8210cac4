"""Rules of a subscription over AMQP: from the maps that clients send, and back as described types.

The numbers of the described types are the cloud's own and look alike: those of filters have one hexadecimal zero
less than those of rules and actions (docs/protocol/management.md#rule-codes). docs/protocol/management.md#rules.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

from polybus.amqp.types import Decimal32, Decimal64, Decimal128, Described, Int, Timestamp, ULong
from polybus.errors import ArgumentError, ArgumentOutOfRange, InvalidOperation
from polybus.gateway.amqp.call import ManagementCall, ManagementReply, nothing
from polybus.message.decimals import decimal_of
from polybus.namespace.delivery.transaction_rules import RuleChange
from polybus.namespace.entities.description import SubscriptionDescription
from polybus.namespace.entities.rule import (
    COMPATIBILITY_LEVEL,
    CORRELATION_FIELDS,
    CorrelationFilterDescription,
    FilterDescription,
    FilterKind,
    RuleDescription,
    SqlActionDescription,
    SqlFilterDescription,
    TypedValues,
)
from polybus.namespace.entities.rule_compiler import compile_rule
from polybus.namespace.entities.rule_validation import validate_rule
from polybus.namespace.entities.typed_value import Scalar, TypedValue

RULE: Final = 0x13700000004
EMPTY_ACTION: Final = 0x13700000005
SQL_ACTION: Final = 0x13700000006
SQL_FILTER: Final = 0x1370000006
TRUE_FILTER: Final = 0x1370000007
FALSE_FILTER: Final = 0x1370000008
CORRELATION_FILTER: Final = 0x1370000009

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_WIRE_FIELDS: Final = {
    "correlation_id": "correlation-id",
    "message_id": "message-id",
    "to": "to",
    "reply_to": "reply-to",
    "label": "label",
    "session_id": "session-id",
    "reply_to_session_id": "reply-to-session-id",
    "content_type": "content-type",
}


async def add(call: ManagementCall) -> ManagementReply:
    subscription = _subscription(call)
    rule = rule_from(call.text("rule-name"), call.get("rule-description"))
    management = call.namespace.management
    if call.txn_id is None:
        await management.create_rule(subscription.topic, subscription.name, rule)
        return ManagementReply()
    validate_rule(rule)
    compile_rule(rule)
    change = RuleChange(subscription.name, rule.name, rule)
    call.endpoint.transactions.change_rule(call.txn_id, call.entity, change)
    return ManagementReply()


async def remove(call: ManagementCall) -> ManagementReply:
    subscription = _subscription(call)
    name = call.text("rule-name")
    management = call.namespace.management
    if call.txn_id is None:
        await management.delete_rule(subscription.topic, subscription.name, name)
        return ManagementReply()
    change = RuleChange(subscription.name, name, None)
    call.endpoint.transactions.change_rule(call.txn_id, call.entity, change)
    return ManagementReply()


async def enumerate_rules(call: ManagementCall) -> ManagementReply:
    subscription = call.entity.subscription(_subscription(call).name)
    skip, top = call.number("skip", 0), call.number("top", 100)
    if skip < 0 or top < 0:
        raise ArgumentOutOfRange("The fields 'skip' and 'top' must not be negative.")
    rules = [rule for _, rule in subscription.rules.values()][skip : skip + top]
    if not rules:
        return nothing()
    described: list[object] = [{"rule-description": described_rule(rule)} for rule in rules]
    return ManagementReply({"rules": described})


def _subscription(call: ManagementCall) -> SubscriptionDescription:
    found = call.place.subscription
    if found is None or call.place.address.sub_queue is not None:
        raise InvalidOperation(f"'{call.place.path}' has no rules: only subscriptions have.")
    return found.description


def rule_from(name: str, given: object) -> RuleDescription:
    """The rule that a client's map describes; ArgumentError where it is none."""
    if not isinstance(given, dict):
        raise ArgumentError("The field 'rule-description' is not a map.")
    return RuleDescription(name=name, filter=_filter_from(given), action=_action_from(given.get("sql-rule-action")))


def _filter_from(given: dict[object, object]) -> FilterDescription:
    sql, correlation = given.get("sql-filter"), given.get("correlation-filter")
    if isinstance(sql, dict):
        return SqlFilterDescription(expression=_expression(sql))
    if isinstance(correlation, dict):
        return _correlation_from(correlation)
    raise ArgumentError("The rule has neither an SQL filter nor a correlation filter.")


def _expression(given: dict[object, object]) -> str:
    text = given.get("expression")
    if not isinstance(text, str):
        raise ArgumentError("The expression of a filter or an action is not a string.")
    return str(text)


def _action_from(given: object) -> SqlActionDescription | None:
    if not isinstance(given, dict) or not given.get("expression"):
        return None
    return SqlActionDescription(expression=_expression(given))


def _correlation_from(given: dict[object, object]) -> CorrelationFilterDescription:
    fields: dict[str, str | None] = {}
    for attribute, name in _WIRE_FIELDS.items():
        value = given.get(name)
        if value is not None and not isinstance(value, str):
            raise ArgumentError(f"The field '{name}' of a correlation filter is not a string.")
        fields[attribute] = None if value is None else str(value)
    return CorrelationFilterDescription(**fields, properties=_typed_values(given.get("properties")))


def _typed_values(given: object) -> TypedValues:
    if given is None:
        return ()
    if not isinstance(given, dict):
        raise ArgumentError("The properties of a correlation filter are not a map.")
    return tuple((str(name), _typed_value(str(name), value)) for name, value in given.items())


def _typed_value(name: str, value: object) -> TypedValue:
    try:
        return TypedValue.of(_scalar(value))
    except (ValueError, OverflowError):
        raise ArgumentOutOfRange(f"The property '{name[:100]}' of a correlation filter is out of range.") from None


def _scalar(value: object) -> Scalar:
    if isinstance(value, Timestamp):
        return _EPOCH + timedelta(milliseconds=int(value))
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, (Decimal32, Decimal64, Decimal128)):
        return decimal_of(value)
    if isinstance(value, (UUID, bytes)):
        return value
    raise ArgumentError("A property of a correlation filter has a type that cannot be compared.")


def described_rule(rule: RuleDescription) -> Described:
    """The rule as a client unpacks it; its action is never null, which the JavaScript SDK could not read."""
    action = rule.action
    described_action = (
        Described(ULong(EMPTY_ACTION), [])
        if action is None
        else Described(ULong(SQL_ACTION), [action.expression, Int(action.compatibility_level)])
    )
    fields = [_described_filter(rule.filter), described_action, rule.name, Timestamp(rule.created_at_ms)]
    return Described(ULong(RULE), fields)


def _described_filter(rule_filter: FilterDescription) -> Described:
    if isinstance(rule_filter, CorrelationFilterDescription):
        fields: list[object] = [getattr(rule_filter, attribute) for _, attribute in CORRELATION_FIELDS]
        properties = {name: _wire_value(value.python) for name, value in rule_filter.properties}
        return Described(ULong(CORRELATION_FILTER), [*fields, properties])
    if rule_filter.kind is FilterKind.TRUE:
        return Described(ULong(TRUE_FILTER), [])
    if rule_filter.kind is FilterKind.FALSE:
        return Described(ULong(FALSE_FILTER), [])
    return Described(ULong(SQL_FILTER), [rule_filter.expression, Int(COMPATIBILITY_LEVEL)])


def _wire_value(value: Scalar) -> object:
    if isinstance(value, datetime):
        return Timestamp(int(value.timestamp() * 1000))
    if isinstance(value, int) and not isinstance(value, bool):
        return _wire_integer(value)
    return str(value) if isinstance(value, (Decimal, timedelta)) else value


def _wire_integer(value: int) -> object:
    """An integer in the type that clients choose for its size."""
    if -(1 << 31) <= value < 1 << 31:
        return Int(value)
    if value >= 1 << 63:
        return ULong(value)
    return value
