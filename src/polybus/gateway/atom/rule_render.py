"""Rules to the XML inside of an entry's `content` (docs/protocol/atom.md#rules).

The prefix of a value's type is written with exactly four letters, because the JavaScript SDK cuts five
characters off; durations and guids belong to .NET's serialization namespace, the rest to XML Schema.
"""

from __future__ import annotations

from polybus.gateway.atom.xml import boolean_text, described_xml, escape, escape_attribute
from polybus.gateway.durations import date_time_text
from polybus.namespace.entities.rule import (
    CorrelationFilterDescription,
    FilterDescription,
    RuleDescription,
    SqlActionDescription,
    SqlFilterDescription,
    TypedValues,
)
from polybus.namespace.entities.typed_value import TypedValue

SCHEMA = "http://www.w3.org/2001/XMLSchema"
SERIALIZATION = "http://schemas.microsoft.com/2003/10/Serialization/"
_SERIALIZATION_TYPES = ("duration", "guid", "char")


def rule_xml(rule: RuleDescription) -> str:
    """The `RuleDescription` element; an action is always there, for the JavaScript SDK looks into it."""
    return described_xml(
        "RuleDescription",
        f"{_filter(rule.filter)}{_action(rule.action)}"
        f"<CreatedAt>{date_time_text(rule.created_at_ms)}</CreatedAt><Name>{escape(rule.name)}</Name>",
    )


def _filter(filter_: FilterDescription) -> str:
    inside = _sql(filter_) if isinstance(filter_, SqlFilterDescription) else _correlation(filter_)
    return f'<Filter i:type="{filter_.kind.value}">{inside}</Filter>'


def _correlation(filter_: CorrelationFilterDescription) -> str:
    fields = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in filter_.fields)
    return fields + _typed_values("Properties", filter_.properties)


def _action(action: SqlActionDescription | None) -> str:
    if action is None:
        return '<Action i:type="EmptyRuleAction"></Action>'
    return f'<Action i:type="SqlRuleAction">{_sql(action)}</Action>'


def _sql(sql: SqlFilterDescription | SqlActionDescription) -> str:
    preprocessing = ""
    if sql.requires_preprocessing is not None:
        value = boolean_text(sql.requires_preprocessing)
        preprocessing = f"<RequiresPreprocessing>{value}</RequiresPreprocessing>"
    return (
        f"<SqlExpression>{escape(sql.expression)}</SqlExpression>"
        f"<CompatibilityLevel>{sql.compatibility_level}</CompatibilityLevel>"
        f"{preprocessing}{_typed_values('Parameters', sql.parameters)}"
    )


def _typed_values(name: str, values: TypedValues) -> str:
    if not values:
        return ""
    return f"<{name}>{''.join(_key_and_value(key, value) for key, value in values)}</{name}>"


def _key_and_value(key: str, value: TypedValue) -> str:
    space = SERIALIZATION if value.type in _SERIALIZATION_TYPES else SCHEMA
    return (
        f"<KeyValueOfstringanyType><Key>{escape(key)}</Key>"
        f'<Value i:type="d6p1:{escape_attribute(value.type)}" xmlns:d6p1="{space}">'
        f"{escape(value.text)}</Value>"
        "</KeyValueOfstringanyType>"
    )
