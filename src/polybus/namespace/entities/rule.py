"""A subscription's rule as plain data: which filter, which action, with their typed values.

Nothing here knows the filter language; `polybus.rules` parses the texts.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from polybus.namespace.entities.typed_value import TypedValue

DEFAULT_RULE_NAME = "$Default"
COMPATIBILITY_LEVEL = 20

TypedValues = tuple[tuple[str, TypedValue], ...]
"""Names and values in the sender's order."""


class FilterKind(enum.Enum):
    """The kinds by their name on the wire. They are told apart by it, never by the expression's text."""

    TRUE = "TrueFilter"
    FALSE = "FalseFilter"
    SQL = "SqlFilter"
    CORRELATION = "CorrelationFilter"


@dataclass(frozen=True, kw_only=True)
class SqlFilterDescription:
    """A filter in the SQL language, or one of its two constants."""

    kind: FilterKind = FilterKind.SQL
    expression: str
    parameters: TypedValues = ()
    compatibility_level: int = COMPATIBILITY_LEVEL
    requires_preprocessing: bool | None = None
    """Sent by the Python SDK and echoed; it has no meaning of its own."""


@dataclass(frozen=True, kw_only=True)
class CorrelationFilterDescription:
    """Equality over the fields that are set and over the properties, all of them together."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: TypedValues = ()

    @property
    def kind(self) -> FilterKind:
        return FilterKind.CORRELATION

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """The fields that are set, as (element name, value)."""
        pairs = ((element, getattr(self, attribute)) for element, attribute in CORRELATION_FIELDS)
        return tuple((element, value) for element, value in pairs if value is not None)


CORRELATION_FIELDS = (
    ("CorrelationId", "correlation_id"),
    ("MessageId", "message_id"),
    ("To", "to"),
    ("ReplyTo", "reply_to"),
    ("Label", "label"),
    ("SessionId", "session_id"),
    ("ReplyToSessionId", "reply_to_session_id"),
    ("ContentType", "content_type"),
)

FilterDescription = SqlFilterDescription | CorrelationFilterDescription

TRUE_FILTER = SqlFilterDescription(kind=FilterKind.TRUE, expression="1=1")
FALSE_FILTER = SqlFilterDescription(kind=FilterKind.FALSE, expression="1=0")


@dataclass(frozen=True, kw_only=True)
class SqlActionDescription:
    """What happens to the copy that the rule lets through."""

    expression: str
    parameters: TypedValues = ()
    compatibility_level: int = COMPATIBILITY_LEVEL
    requires_preprocessing: bool | None = None


@dataclass(frozen=True, kw_only=True)
class RuleDescription:
    """One rule of a subscription. No action means that the copy stays as it came."""

    name: str
    filter: FilterDescription = TRUE_FILTER
    action: SqlActionDescription | None = None
    created_at_ms: int = 0


DEFAULT_RULE = RuleDescription(name=DEFAULT_RULE_NAME)
"""What a subscription gets that is created without a rule of its own."""
