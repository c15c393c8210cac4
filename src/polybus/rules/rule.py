"""A rule, and what it makes of a message: the words between the rule set and the broker."""

from __future__ import annotations

from polybus.rules.actions import PropertyChange, SqlAction
from polybus.rules.failure import RuleEvaluationError
from polybus.rules.filters import Filter


class Rule:
    """A named filter, with or without an action. Not to be changed."""

    def __init__(self, name: str, filter: Filter, action: SqlAction | None, created_ms: int) -> None:  # noqa: A002
        self.name = name
        self.filter = filter
        self.action = action
        self.created_ms = created_ms

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Rule)
            and self.name == other.name
            and self.filter == other.filter
            and self.action == other.action
            and self.created_ms == other.created_ms
        )

    def __hash__(self) -> int:
        return hash((self.name, self.created_ms))

    def __repr__(self) -> str:
        return f"Rule({self.name!r}, {self.filter!r}, {self.action!r}, {self.created_ms})"


class Copy:
    """One copy of a message for one subscription. Read only: those that every message makes are shared.

    Without a `rule_name` it stands for all matching rules that have no action. With one, it is that rule's
    own, with its action's changes; the broker adds the property RuleName. With an `error`, that rule failed,
    and the message is for the dead-letter queue if the subscription says so.
    """

    def __init__(
        self,
        subscription: int,
        rule_name: str | None,
        changes: list[PropertyChange],
        error: RuleEvaluationError | None,
    ) -> None:
        self.subscription = subscription
        self.rule_name = rule_name
        self.changes = changes
        self.error = error

    def __repr__(self) -> str:
        return f"Copy({self.subscription}, {self.rule_name!r}, {self.changes!r}, {self.error!r})"
