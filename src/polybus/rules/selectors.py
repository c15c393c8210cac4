"""JMS's selectors in the words of our filters: the same language but for some names, and BETWEEN.

A selector names header fields of JMS without a scope; here they are system properties. What has no such property is
refused, for a selector that means something else than it says would be worse. docs/protocol/rules.md#selectors.
"""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from polybus.errors import RuleSyntaxError
from polybus.limits import RULE_TEXT_CHARACTERS
from polybus.rules.failure import RuleEvaluationError
from polybus.rules.filters import SqlFilter
from polybus.rules.lexer import END, NAME, Token, tokenize, wrong
from polybus.rules.view import MessageView

_FIELDS: Final[dict[str, str]] = {
    "JMSMessageID": "sys.MessageId",
    "JMSCorrelationID": "sys.CorrelationId",
    "JMSType": "sys.Label",
    "JMSXGroupID": "sys.SessionId",
    "JMSXDeliveryCount": "sys.DeliveryCount",
    "JMSDeliveryMode": "sys.JMSDeliveryMode",
    "JMSPriority": "sys.JMSPriority",
    "JMSTimestamp": "sys.JMSTimestamp",
}
_UNKNOWN: Final = ("JMSDestination", "JMSReplyTo", "JMSExpiration")
"""JMS itself lets no selector ask for these."""
_BETWEEN: Final = "BETWEEN"
_BEFORE: Final = ("AND", "OR", "NOT", ",")
"""What ends an operand, besides the parenthesis around it."""


_NOTHING: Final[tuple[bytes, int]] = (b"", 0)


class Selector:
    """What one receiver wants, and how far it has looked in each partition."""

    __slots__ = ("_filter", "_looked", "sql")

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self._filter = SqlFilter(sql)
        self._looked: dict[int, tuple[bytes, int]] = {}
        """By partition: in which life of its broker, and up to which rank."""

    def wants(self, view: MessageView) -> bool:
        """What a selector cannot judge it does not want."""
        try:
            return self._filter.matches(view, uuid4)
        except RuleEvaluationError:
            return False

    def looked_to(self, index: int, life: bytes) -> int:
        found_life, rank = self._looked.get(index, _NOTHING)
        return rank if found_life == life else 0

    def looked(self, index: int, life: bytes, rank: int) -> None:
        self._looked[index] = (life, rank)


def selector_sql(text: str) -> str:
    """The selector as the text of an SQL filter; RuleSyntaxError where it can be none."""
    if len(text) > RULE_TEXT_CHARACTERS:
        raise wrong(RULE_TEXT_CHARACTERS, f"{len(text)} characters", f"at most {RULE_TEXT_CHARACTERS}")
    tokens = tokenize(text)
    words = [_word(token, text, tokens[at + 1].position) for at, token in enumerate(tokens[:-1])]
    kinds = [_BETWEEN if _is_between(token) else token.kind for token in tokens]
    while _BETWEEN in kinds:
        _spell_out(words, kinds, kinds.index(_BETWEEN), len(text))
    return " ".join(words)


def _is_between(token: Token) -> bool:
    return token.kind == NAME and token.text.upper() == _BETWEEN


def _word(token: Token, text: str, end: int) -> str:
    if token.kind == NAME and token.text in _FIELDS:
        return _FIELDS[token.text]
    if token.kind == NAME and token.text in _UNKNOWN:
        raise RuleSyntaxError(f"Selectors cannot ask for {token.text}.", token.position + 1)
    return text[token.position : end].strip()


def _spell_out(words: list[str], kinds: list[str], at: int, end: int) -> None:
    """`x BETWEEN a AND b` becomes two comparisons; the operand before it is as long as arithmetic reaches."""
    negated = at > 0 and kinds[at - 1] == "NOT"
    left_end = at - 1 if negated else at
    left = _operand_before(kinds, left_end)
    middle = _operand_after(kinds, at + 1)
    if left == left_end or middle == at + 1 or kinds[middle] != "AND":
        raise wrong(end, _BETWEEN, "a value before it, and two with AND behind it")
    right = _operand_after(kinds, middle + 1)
    operand = " ".join(words[left:left_end])
    low, high = " ".join(words[at + 1 : middle]), " ".join(words[middle + 1 : right])
    spelled = f"({operand} >= {low} AND {operand} <= {high})"
    words[left:right] = [f"NOT {spelled}" if negated else spelled]
    kinds[left:right] = ["condition"]


def _operand_before(kinds: list[str], end: int) -> int:
    depth = 0
    at = end
    while at > 0:
        kind = kinds[at - 1]
        if kind == ")":
            depth += 1
        elif kind == "(":
            if depth == 0:
                break
            depth -= 1
        elif depth == 0 and kind in _BEFORE:
            break
        at -= 1
    return at


def _operand_after(kinds: list[str], start: int) -> int:
    depth = 0
    at = start
    while at < len(kinds) and kinds[at] != END:
        kind = kinds[at]
        if kind == "(":
            depth += 1
        elif kind == ")":
            if depth == 0:
                break
            depth -= 1
        elif depth == 0 and kind in _BEFORE:
            break
        at += 1
    return at
