"""SQL actions: what a matching rule does to its own copy of the message (docs/protocol/rules.md#actions).

Statements run in order, each on what its forerunners left. The message itself is never touched: the result
is a list of changes, for the broker to lay over its copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from polybus.limits import KEY_CHARACTERS
from polybus.rules import tree
from polybus.rules.compiler import compile_expression
from polybus.rules.convert import converted
from polybus.rules.evaluation import Evaluation, IdSource, RuleBudget, no_ids
from polybus.rules.failure import action_failed, out_of_range
from polybus.rules.filters import same_values
from polybus.rules.nodes import SyntaxNode
from polybus.rules.statements import parse_action
from polybus.rules.values import Value, checked_all, identity
from polybus.rules.view import KEY_PROPERTIES, SETTABLE_PROPERTIES, MessageView

Scope: TypeAlias = Literal["sys", "user"]


class RemovedValue:
    """The type of `REMOVED`, what a change holds for a property that is taken away."""

    def __repr__(self) -> str:
        return "REMOVED"


REMOVED: Final = RemovedValue()


class PropertyChange:
    """One property of the copy. `name` is canonical in the scope sys, as the message spells it in user."""

    def __init__(self, scope: Scope, name: str, value: Value | RemovedValue) -> None:
        self.scope = scope
        self.name = name
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PropertyChange) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, str, tuple[str, str]]:
        value = ("", "") if isinstance(self.value, RemovedValue) else identity(self.value)
        return self.scope, self.name, value

    def __repr__(self) -> str:
        return f"Change({self.scope!r}, {self.name!r}, {self.value!r})"


class SqlAction:
    """An action in the language of docs/protocol/rules.md#actions; RuleSyntaxError says what is wrong with its text."""

    def __init__(self, expression: str, parameters: Mapping[str, object] | None = None) -> None:
        self.expression = expression
        self.parameters = checked_all(parameters or {}, "The parameter")
        self._steps = [_ActionStep(statement) for statement in parse_action(expression, self.parameters)]

    @property
    def text(self) -> str:
        return self.expression

    def apply(
        self, view: MessageView, ids: IdSource = no_ids, budget: RuleBudget | None = None
    ) -> list[PropertyChange]:
        """The changes, one for each property that was set or removed; RuleEvaluationError if one fails."""
        budget = RuleBudget() if budget is None else budget
        draft = _Draft(view)
        for step in self._steps:
            # Each statement sees the properties as the one before left them: they are laid out anew.
            budget.spend(4 + len(draft.user()))
            step.run(draft, Evaluation(draft, ids, budget))
        return list(draft.changes.values())

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SqlAction)
            and self.expression == other.expression
            and same_values(self.parameters, other.parameters)
        )

    def __hash__(self) -> int:
        return hash(self.expression)

    def __repr__(self) -> str:
        return f"SqlAction({self.expression!r})"


class _Draft:
    """The copy while the action runs: itself a view, so that later statements see what earlier ones did."""

    def __init__(self, view: MessageView) -> None:
        self._view = view
        self._user = dict(view.user())
        self._system: dict[str, Value] = {}
        self.changes: dict[tuple[Scope, str], PropertyChange] = {}

    def system(self, name: str) -> Value:
        return self._system[name] if name in self._system else self._view.system(name)

    def user(self) -> dict[str, Value]:
        return self._user

    def change_system(self, name: str, value: Value) -> None:
        """None removes it: an unset system property and one that is null are the same on the wire."""
        self._system[name] = value
        self.changes["sys", name] = PropertyChange("sys", name, REMOVED if value is None else value)

    def set_user(self, name: str, value: Value) -> None:
        self._user[name] = value
        self.changes["user", name] = PropertyChange("user", name, value)

    def remove_user(self, name: str) -> None:
        del self._user[name]
        self.changes["user", name] = PropertyChange("user", name, REMOVED)


class _ActionStep:
    """One statement, compiled; without a value it is REMOVE."""

    def __init__(self, statement: tree.Statement) -> None:
        self._system = statement.target.system
        self._name = statement.target.name
        self._value: SyntaxNode | None = None
        self._nulls = False
        if isinstance(statement, tree.Set):
            self._value = compile_expression(statement.value, ignore_case=False)
            self._nulls = isinstance(statement.value, tree.Constant) and statement.value.value is None

    def run(self, draft: _Draft, message: Evaluation) -> None:
        if self._value is None:
            self._remove(draft, message)
            return
        value = self._value.evaluate(message)
        # An unknown value leaves the property as it is; only a written NULL is stored.
        if value is None and not self._nulls:
            return
        if self._system:
            draft.change_system(self._name, self._fitting(value))
        else:
            self._set(draft, message, value)

    def _remove(self, draft: _Draft, message: Evaluation) -> None:
        if self._system:
            draft.change_system(self._name, None)
            return
        spelled = message.exact_name(self._name)
        if spelled is not None:
            draft.remove_user(spelled)

    def _set(self, draft: _Draft, message: Evaluation, value: Value) -> None:
        """Keeps the type that the property has, where the value can take it."""
        spelled = message.exact_name(self._name)
        if spelled is None:
            draft.set_user(self._name, value)
            return
        present = message.user[spelled]
        alike = None if present is None else converted(value, type(present))
        draft.set_user(spelled, value if alike is None else alike)

    def _fitting(self, value: Value) -> Value:
        """The value in the type that the system property has."""
        kind = SETTABLE_PROPERTIES[self._name]
        fitting = converted(value, kind)
        if fitting is None and value is not None:
            found = type(value).__name__
            raise action_failed(f"sys.{self._name} takes a {kind.__name__}, which no {found} converts to.")
        if self._name in KEY_PROPERTIES and isinstance(fitting, str) and len(fitting) > KEY_CHARACTERS:
            raise out_of_range(f"sys.{self._name} has more than {KEY_CHARACTERS} characters.")
        return fitting
