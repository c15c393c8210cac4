"""The four kinds of filter. Each is made once, checked whole at its making, and then only asked.

A filter matches only on true: neither false nor unknown will do. What fails on a message raises
`RuleEvaluationError`; to count it as no match is the rule set's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from polybus.errors import ArgumentError
from polybus.rules.compiler import compile_predicate
from polybus.rules.evaluation import Evaluation, IdSource, no_ids
from polybus.rules.nodes import ConstantNode
from polybus.rules.parser import parse_filter
from polybus.rules.values import Value, checked_all, identity, literal, quoted_name
from polybus.rules.view import MessageView


class Filter:
    """`verdict` is the answer where it is the same for every message, otherwise None."""

    def __init__(self, text: str, verdict: bool | None) -> None:
        self.text = text
        self.verdict = verdict

    def matches(self, view: MessageView, ids: IdSource = no_ids) -> bool:
        """Whether the message is selected; `ids` is where newid() takes its ids from."""
        return self.holds(Evaluation(view, ids))

    def holds(self, message: Evaluation) -> bool:
        """As `matches`, for one who asks many filters about the same message."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"


class TrueFilter(Filter):
    def __init__(self) -> None:
        super().__init__("1=1", True)

    def holds(self, message: Evaluation) -> bool:  # noqa: ARG002
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrueFilter)

    def __hash__(self) -> int:
        return hash(self.text)


class FalseFilter(Filter):
    def __init__(self) -> None:
        super().__init__("1=0", False)

    def holds(self, message: Evaluation) -> bool:  # noqa: ARG002
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FalseFilter)

    def __hash__(self) -> int:
        return hash(self.text)


class SqlFilter(Filter):
    """A filter in the SQL subset of docs/protocol/rules.md#sql; RuleSyntaxError says what is wrong with its text.

    Strings compare by their characters; with `ignore_case`, in `=`, `<`, IN and LIKE alike, in lower case.
    """

    def __init__(
        self, expression: str, parameters: Mapping[str, object] | None = None, ignore_case: bool = False
    ) -> None:
        self.expression = expression
        self.parameters = checked_all(parameters or {}, "The parameter")
        self.ignore_case = ignore_case
        self.node = compile_predicate(parse_filter(expression, self.parameters), ignore_case)
        verdict = self.node.value is True if isinstance(self.node, ConstantNode) else None
        super().__init__(expression, verdict)

    def holds(self, message: Evaluation) -> bool:
        return self.node.holds(message)

    def truth(self, view: MessageView, ids: IdSource = no_ids) -> bool | None:
        """The three-valued answer, None for unknown: what helps to explain why a filter does not match."""
        value = self.node.evaluate(Evaluation(view, ids))
        return value if isinstance(value, bool) else None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SqlFilter)
            and self.expression == other.expression
            and self.ignore_case == other.ignore_case
            and same_values(self.parameters, other.parameters)
        )

    def __hash__(self) -> int:
        return hash(self.expression)


CORRELATION_FIELDS: Final[dict[str, str]] = {
    "correlation_id": "correlationid",
    "message_id": "messageid",
    "to": "to",
    "reply_to": "replyto",
    "label": "label",
    "session_id": "sessionid",
    "reply_to_session_id": "replytosessionid",
    "content_type": "contenttype",
}
"""The fields of a correlation filter, in the order of its wire form, with their system properties."""


class CorrelationFilter(Filter):
    """Equality, by exact name and typed value, of every field and user property that is given; one at least.

    Numbers are equal by their value, whatever their type; a boolean is no number; a null is not given.
    """

    def __init__(
        self,
        *,
        correlation_id: str | None = None,
        message_id: str | None = None,
        to: str | None = None,
        reply_to: str | None = None,
        label: str | None = None,
        session_id: str | None = None,
        reply_to_session_id: str | None = None,
        content_type: str | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        self.correlation_id = correlation_id
        self.message_id = message_id
        self.to = to
        self.reply_to = reply_to
        self.label = label
        self.session_id = session_id
        self.reply_to_session_id = reply_to_session_id
        self.content_type = content_type
        given = checked_all(properties or {}, "The property")
        self.properties = {name: value for name, value in given.items() if value is not None}
        self.names, self.wanted = self._conditions()
        super().__init__(self._described(), None)

    def fields(self) -> dict[str, str]:
        """The system properties that are compared, by canonical name."""
        values = (
            self.correlation_id,
            self.message_id,
            self.to,
            self.reply_to,
            self.label,
            self.session_id,
            self.reply_to_session_id,
            self.content_type,
        )
        return {
            name: value for name, value in zip(CORRELATION_FIELDS.values(), values, strict=True) if value is not None
        }

    def _conditions(self) -> tuple[tuple[tuple[bool, str], ...], tuple[object, ...]]:
        """What is compared, as (is it a system property, name) in one fixed order, and with which keys."""
        fields = self.fields()
        if not fields and not self.properties:
            raise ArgumentError("A correlation filter needs at least one field or property to compare.")
        pairs: list[tuple[tuple[bool, str], object]] = [
            ((True, name), value) for name, value in sorted(fields.items())
        ]
        for name in sorted(self.properties):
            pairs.append(((False, name), correlation_key(self.properties[name])))
        return tuple(name for name, _ in pairs), tuple(key for _, key in pairs)

    def _described(self) -> str:
        parts = [f"sys.{name} = {literal(value)}" for name, value in self.fields().items()]
        parts += [f"{quoted_name(name)} = {literal(value)}" for name, value in self.properties.items()]
        return " AND ".join(parts)

    def holds(self, message: Evaluation) -> bool:
        for (system, name), wanted in zip(self.names, self.wanted, strict=True):
            value = message.system(name) if system else message.user.get(name)
            key = correlation_key(value)
            if key is None or key != wanted:
                return False
        return True

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, CorrelationFilter)
            and self.fields() == other.fields()
            and same_values(self.properties, other.properties)
        )

    def __hash__(self) -> int:
        return hash(self.names)


def correlation_key(value: Value) -> object:
    """Equal, and of equal hash, for what a correlation filter holds equal; None for what equals nothing."""
    if isinstance(value, bool):
        return (value,)
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, Decimal) and value.is_nan():
        return None
    return value


def same_values(one: Mapping[str, Value], other: Mapping[str, Value]) -> bool:
    """Whether both hold the same names with the same values of the same types, in whatever order."""
    return {name: identity(value) for name, value in one.items()} == {
        name: identity(value) for name, value in other.items()
    }
