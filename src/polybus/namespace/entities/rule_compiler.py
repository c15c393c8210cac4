"""A rule's description made into the rule that is evaluated; bad text is refused here, when the rule is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from polybus import rules
from polybus.errors import BugError
from polybus.namespace.entities.rule import (
    CorrelationFilterDescription,
    FilterKind,
    RuleDescription,
    SqlFilterDescription,
    TypedValues,
)
from polybus.partition.rule_changes import lay_over

__all__ = ["check_room", "compile_rule", "lay_over"]


def compile_rule(description: RuleDescription) -> rules.Rule:
    action = description.action
    compiled = None
    if action is not None:
        compiled = rules.SqlAction(action.expression, _values(action.parameters))
    return rules.Rule(description.name, _filter(description), compiled, description.created_at_ms)


def check_room(
    topic: rules.TopicRules, added: Iterable[RuleDescription], removed: Iterable[RuleDescription] = ()
) -> None:
    """QuotaExceeded where the topic cannot take the rules in the place of the others: asked before they are written."""
    kinds = Counter(rule.filter.kind for rule in added)
    kinds.subtract(rule.filter.kind for rule in removed)
    topic.check_room(kinds[FilterKind.SQL], kinds[FilterKind.CORRELATION])


def _filter(description: RuleDescription) -> rules.Filter:
    described = description.filter
    if isinstance(described, CorrelationFilterDescription):
        return rules.CorrelationFilter(
            correlation_id=described.correlation_id,
            message_id=described.message_id,
            to=described.to,
            reply_to=described.reply_to,
            label=described.label,
            session_id=described.session_id,
            reply_to_session_id=described.reply_to_session_id,
            content_type=described.content_type,
            properties=_values(described.properties),
        )
    if isinstance(described, SqlFilterDescription):
        if described.kind is FilterKind.TRUE:
            return rules.TrueFilter()
        if described.kind is FilterKind.FALSE:
            return rules.FalseFilter()
        return rules.SqlFilter(described.expression, _values(described.parameters))
    raise BugError("a rule has a filter of no known kind")


def _values(typed: TypedValues) -> dict[str, object]:
    return {name: value.python for name, value in typed}
