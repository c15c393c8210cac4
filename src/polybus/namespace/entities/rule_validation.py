"""Whether a rule may exist, apart from the grammar of its SQL texts, which `polybus.rules` knows."""

from __future__ import annotations

from collections.abc import Iterator

from polybus import limits
from polybus.errors import ArgumentError
from polybus.namespace.entities import names
from polybus.namespace.entities.rule import (
    RuleDescription,
    SqlActionDescription,
    SqlFilterDescription,
    TypedValues,
)
from polybus.namespace.entities.validation import Violation, xml_violations


def validate_rule(rule: RuleDescription) -> None:
    """Raise ArgumentError for the first thing in a rule that cannot be, apart from its SQL texts' grammar."""
    for violation in rule_violations(rule):
        raise violation.error()


def rule_violations(rule: RuleDescription) -> Iterator[Violation]:
    """What is wrong with a rule, apart from the grammar of its SQL texts."""
    try:
        names.check_rule_name(rule.name)
    except ArgumentError as error:
        yield Violation("Name", error.description, allowed="a valid name")
    if isinstance(rule.filter, SqlFilterDescription):
        yield from _sql_violations("Filter", rule.filter)
    else:
        fields = rule.filter.fields
        if not fields and not rule.filter.properties:
            yield Violation("Filter", "A correlation filter must have at least one field or property.")
        for element, value in fields:
            yield from xml_violations(element, value)
        yield from _typed_values_violations("Properties", rule.filter.properties)
    if rule.action is not None:
        yield from _sql_violations("Action", rule.action)


def _sql_violations(name: str, sql: SqlFilterDescription | SqlActionDescription) -> Iterator[Violation]:
    length = len(sql.expression)
    if not 1 <= length <= limits.RULE_TEXT_CHARACTERS:
        text = f"The SQL expression must have 1 to {limits.RULE_TEXT_CHARACTERS} characters."
        yield Violation(name, text, f"{length} characters", f"1 to {limits.RULE_TEXT_CHARACTERS} characters", True)
    yield from xml_violations(name, sql.expression)
    yield from _typed_values_violations("Parameters", sql.parameters)


def _typed_values_violations(name: str, values: TypedValues) -> Iterator[Violation]:
    if len(values) > limits.RULE_PROPERTIES:
        text = f"At most {limits.RULE_PROPERTIES} values are allowed."
        yield Violation(name, text, f"{len(values)} values", f"at most {limits.RULE_PROPERTIES}", True)
    keys = [key for key, _ in values]
    if "" in keys or len(set(keys)) != len(keys):
        yield Violation(name, "Every key must be given once and not be empty.", allowed="distinct keys")
    for key, value in values:
        yield from xml_violations(name, key + value.text)
