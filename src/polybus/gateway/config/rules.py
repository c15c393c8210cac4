"""Rules in a configuration file, read and written.

Values keep their JSON type: a string, a boolean, an integer or a number. A type that JSON does not have is
written as an object with `Type` and `Value`, which the emulator's own files never contain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polybus.gateway.config.jsonc import JsonObject
from polybus.gateway.config.value import ConfigValue
from polybus.namespace.entities.rule import (
    COMPATIBILITY_LEVEL,
    CORRELATION_FIELDS,
    FALSE_FILTER,
    TRUE_FILTER,
    CorrelationFilterDescription,
    FilterDescription,
    FilterKind,
    RuleDescription,
    SqlActionDescription,
    SqlFilterDescription,
    TypedValues,
)
from polybus.namespace.entities.rule_validation import rule_violations
from polybus.namespace.entities.typed_value import TypedValue

_SQL_KEYS = ("SqlExpression", "Parameters", "CompatibilityLevel", "RequiresPreprocessing")
_CONSTANTS = {FilterKind.TRUE: TRUE_FILTER, FilterKind.FALSE: FALSE_FILTER}


def read_rule(cursor: ConfigValue) -> RuleDescription:
    """The rule at a place in the file; ConfigError if it cannot be."""
    cursor.warn_of_unknown_keys(("Name", "Properties"))
    name, properties = cursor.required("Name").text(), cursor.required("Properties")
    properties.warn_of_unknown_keys(("FilterType", "CorrelationFilter", "SqlFilter", "Action"))
    action = properties.child("Action")
    rule = RuleDescription(
        name=name,
        filter=_FILTERS[_filter_kind(properties)](properties),
        action=None if action is None else _action(action),
    )
    for violation in rule_violations(rule):
        raise cursor.error(violation.text)
    return rule


def _filter_kind(properties: ConfigValue) -> FilterKind:
    cursor = properties.required("FilterType")
    text = cursor.text().lower()
    for kind in FilterKind:
        if text in (kind.value.lower(), kind.value.lower().removesuffix("filter")):
            return kind
    raise cursor.not_allowed("Sql, Correlation, True, False")


def _sql_filter(properties: ConfigValue) -> FilterDescription:
    cursor = properties.required("SqlFilter")
    return SqlFilterDescription(expression=cursor.required("SqlExpression").text(), **_sql_values(cursor))


def _constant_filter(kind: FilterKind) -> Callable[[ConfigValue], FilterDescription]:
    def read(properties: ConfigValue) -> FilterDescription:
        constant, cursor = _CONSTANTS[kind], properties.child("SqlFilter")
        if cursor is None:
            return constant
        expression = cursor.child("SqlExpression")
        text = constant.expression if expression is None else expression.text()
        return SqlFilterDescription(kind=kind, expression=text, **_sql_values(cursor))

    return read


def _correlation_filter(properties: ConfigValue) -> FilterDescription:
    cursor = properties.required("CorrelationFilter")
    cursor.warn_of_unknown_keys([element for element, _ in CORRELATION_FIELDS] + ["Properties"])
    fields: dict[str, Any] = {}
    for element, attribute in CORRELATION_FIELDS:
        child = cursor.child(element)
        fields[attribute] = None if child is None else child.text() or None
    return CorrelationFilterDescription(**fields, properties=_typed_values(cursor.child("Properties")))


_FILTERS: dict[FilterKind, Callable[[ConfigValue], FilterDescription]] = {
    FilterKind.SQL: _sql_filter,
    FilterKind.CORRELATION: _correlation_filter,
    FilterKind.TRUE: _constant_filter(FilterKind.TRUE),
    FilterKind.FALSE: _constant_filter(FilterKind.FALSE),
}


def _action(cursor: ConfigValue) -> SqlActionDescription | None:
    expression = cursor.child("SqlExpression")
    values = _sql_values(cursor)
    if expression is None or not expression.text():
        return None
    return SqlActionDescription(expression=expression.text(), **values)


def _sql_values(cursor: ConfigValue) -> dict[str, Any]:
    cursor.warn_of_unknown_keys(_SQL_KEYS)
    level, preprocessing = cursor.child("CompatibilityLevel"), cursor.child("RequiresPreprocessing")
    return {
        "parameters": _typed_values(cursor.child("Parameters")),
        "compatibility_level": COMPATIBILITY_LEVEL if level is None else level.integer(32),
        "requires_preprocessing": None if preprocessing is None else preprocessing.boolean(),
    }


def _typed_values(cursor: ConfigValue | None) -> TypedValues:
    if cursor is None:
        return ()
    return tuple((key, _typed_value(child)) for key, child in cursor.exact_children())


def _typed_value(cursor: ConfigValue) -> TypedValue:
    try:
        if isinstance(cursor.value, JsonObject):
            return TypedValue(cursor.required("Type").text(), cursor.required("Value").text())
        if isinstance(cursor.value, str | bool | int | float):
            return TypedValue.of(cursor.value)
    except ValueError as error:
        raise cursor.error(str(error)) from None
    raise cursor.not_allowed("a string, a number, true, false, or an object with Type and Value")


def rule_to_json(rule: RuleDescription) -> dict[str, Any]:
    """The object that `read_rule` reads back."""
    properties: dict[str, Any] = {"FilterType": rule.filter.kind.value.removesuffix("Filter")}
    if isinstance(rule.filter, CorrelationFilterDescription):
        correlation: dict[str, Any] = dict(rule.filter.fields)
        if rule.filter.properties:
            correlation["Properties"] = _typed_values_to_json(rule.filter.properties)
        properties["CorrelationFilter"] = correlation
    elif rule.filter != _CONSTANTS.get(rule.filter.kind):
        properties["SqlFilter"] = _sql_to_json(rule.filter)
    if rule.action is not None:
        properties["Action"] = _sql_to_json(rule.action)
    return {"Name": rule.name, "Properties": properties}


def _sql_to_json(sql: SqlFilterDescription | SqlActionDescription) -> dict[str, Any]:
    data: dict[str, Any] = {"SqlExpression": sql.expression}
    if sql.parameters:
        data["Parameters"] = _typed_values_to_json(sql.parameters)
    if sql.compatibility_level != COMPATIBILITY_LEVEL:
        data["CompatibilityLevel"] = sql.compatibility_level
    if sql.requires_preprocessing is not None:
        data["RequiresPreprocessing"] = sql.requires_preprocessing
    return data


def _typed_values_to_json(values: TypedValues) -> dict[str, Any]:
    return {key: _typed_value_to_json(value) for key, value in values}


def _typed_value_to_json(value: TypedValue) -> Any:
    """The plain JSON value if that would be read as the same type and text, or an object that says both."""
    plain = value.python
    finite = not isinstance(plain, float) or plain - plain == 0
    if isinstance(plain, str | bool | int | float) and finite and TypedValue.of(plain) == value:
        return plain
    return {"Type": value.type, "Value": value.text}
