"""One message under evaluation: its properties, found once by name however many rules ask, and what they may cost.

Lives for one message. User names in SQL match in any case, an exact match first (docs/protocol/rules.md#sql);
correlation filters use `user` and with it exact names. The source of new ids is given, so that whoever
evaluates stays deterministic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias
from uuid import UUID

from polybus.errors import BugError
from polybus.limits import RULE_BUDGET
from polybus.rules.failure import budget_spent
from polybus.rules.values import Value
from polybus.rules.view import MessageView

IdSource: TypeAlias = Callable[[], UUID]


def no_ids() -> UUID:
    """The source of those who give none."""
    raise BugError("newid() was evaluated, but no source of ids was given.")


class RuleBudget:
    """How much work the rules of a topic may still be for one message, in steps; see `limits.RULE_BUDGET`.

    It counts work, not time, so that the same message is judged the same way each time.
    """

    def __init__(self) -> None:
        self.left = RULE_BUDGET

    def spend(self, steps: int) -> None:
        """RuleEvaluationError where it is spent."""
        self.left -= steps
        if self.left < 0:
            raise budget_spent()


class Evaluation:
    def __init__(self, view: MessageView, ids: IdSource = no_ids, budget: RuleBudget | None = None) -> None:
        self.ids = ids
        self.budget = RuleBudget() if budget is None else budget
        self.user = view.user()
        self.names = dict(self.user)
        """User properties by every name that was asked for, None for those that the message lacks."""
        self._view = view
        self._system: dict[str, Value] = {}
        self._folded: dict[str, str] = {}

    def system(self, name: str) -> Value:
        """The system property of that canonical name."""
        if name not in self._system:
            self._system[name] = self._view.system(name)
        return self._system[name]

    def find(self, name: str) -> Value:
        """The user property of that name in any case; nodes look into `names` first."""
        exact = self.exact_name(name)
        value = None if exact is None else self.user[exact]
        self.names[name] = value
        return value

    def exact_name(self, name: str) -> str | None:
        """How the message spells that name, None if it has no such property."""
        if name in self.user:
            return name
        if len(self._folded) == 0:
            for spelled in self.user:
                self._folded.setdefault(spelled.lower(), spelled)
        return self._folded.get(name.lower())


class _NoMessage:
    """The view for expressions that ask for nothing."""

    def system(self, name: str) -> Value:
        raise BugError(f"A constant expression asked for sys.{name}.")

    def user(self) -> dict[str, Value]:
        return {}


def without_message() -> Evaluation:
    """For what the compiler evaluates beforehand."""
    return Evaluation(_NoMessage())
