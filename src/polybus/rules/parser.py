"""Text to tree for the predicates and expressions of filters and actions (docs/protocol/rules.md#sql).

A Pratt parser: each infix operator has a binding power, and an operand is read as far as stronger ones reach.
Whatever can be known wrong without a message is refused here, with its column: unknown `sys.` names and
parameters, a value where a condition must stand, nesting, lengths. Nothing is evaluated here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from polybus.limits import RULE_TEXT_CHARACTERS
from polybus.rules import tree
from polybus.rules.lexer import DOUBLE, END, INTEGER, NAME, PARAMETER, QUOTED, STRING, Token, wrong
from polybus.rules.token_cursor import TokenCursor
from polybus.rules.tree import Condition, Expression, Predicate
from polybus.rules.values import INT64_MAX, INT64_MIN, TESTS, Value
from polybus.rules.view import SYSTEM_PROPERTIES

_COMPARED: Final = 4
_POWERS: Final[dict[str, int]] = {
    "OR": 1,
    "AND": 2,
    **dict.fromkeys(TESTS, _COMPARED),
    **dict.fromkeys(("IN", "LIKE", "IS", "NOT"), _COMPARED),
    "+": 5,
    "-": 5,
    "*": 6,
    "/": 6,
    "%": 6,
}
_NEGATED: Final = 3
_SIGNED: Final = 7

_FUNCTIONS: Final = ("newid", "property", "p")
_CONDITIONS: Final = (
    tree.Comparison,
    tree.Membership,
    tree.Like,
    tree.IsNull,
    tree.Exists,
    tree.Not,
    tree.Logic,
)


def parse_filter(text: str, parameters: Mapping[str, Value]) -> Predicate:
    """The predicate of a SQL filter; RuleSyntaxError says the column and what was expected."""
    parser = Parser(text, parameters)
    parsed = parser.expression(0)
    parser.expect_end(parsed)
    return as_predicate(parsed)


def as_predicate(parsed: Predicate) -> Predicate:
    """Refuses what can never be true or false: a number, a string, a sum, a new id."""
    if isinstance(parsed, tree.Constant):
        possible = parsed.value is None or isinstance(parsed.value, bool)
    else:
        possible = not isinstance(parsed, (tree.NewId, tree.Signed, tree.Arithmetic))
    if not possible:
        raise wrong(parsed.position, "a value", "a condition")
    return parsed


def as_expression(parsed: Predicate) -> Expression:
    """Refuses a condition where a value must stand."""
    if isinstance(parsed, _CONDITIONS):
        raise wrong(parsed.position, "a condition", "a value")
    return parsed


class Parser(TokenCursor):
    def __init__(self, text: str, parameters: Mapping[str, Value]) -> None:
        super().__init__(text)
        self._parameters = parameters

    def expect_end(self, parsed: Predicate) -> None:
        if self.token.kind != END:
            raise self.wrong(f"{_follows(parsed)} or the end")

    def expression(self, floor: int) -> Predicate:
        """Reads on while the next operator binds more strongly than `floor`."""
        parsed = self._prefix()
        while (power := _POWERS.get(self.token.kind, 0)) > floor:
            parsed = self._infix(parsed, power)
        return parsed

    def value(self, floor: int) -> Expression:
        return as_expression(self.expression(floor))

    def _infix(self, left: Predicate, power: int) -> Predicate:
        if power < _NEGATED:
            return self._logic(left, power)
        if isinstance(left, _CONDITIONS):
            raise self.wrong(f"{_follows(left)}, ')' or the end")
        if power > _COMPARED:
            return self._arithmetic(left, power)
        return self._test(left)

    def _logic(self, left: Predicate, power: int) -> Condition:
        keyword = self.token.kind
        operands = [as_predicate(left)]
        while self.skip(keyword):
            operands.append(as_predicate(self.expression(power)))
        return tree.Logic(left.position, keyword, tuple(operands))

    def _arithmetic(self, left: Expression, power: int) -> Expression:
        steps: list[tuple[str, Expression]] = []
        while _POWERS.get(self.token.kind, 0) == power:
            sign = self.take().kind
            steps.append((sign, self.value(power)))
        return tree.Arithmetic(left.position, left, tuple(steps))

    def _test(self, left: Expression) -> Condition:
        if self.token.kind in ("IN", "LIKE"):
            return self._in_or_like(left)
        token = self.take()
        if token.kind in TESTS:
            return tree.Comparison(left.position, token.kind, left, self.value(_COMPARED))
        if token.kind == "IS":
            return self._is_null(left, token)
        return tree.Not(left.position, self._in_or_like(left))

    def _in_or_like(self, left: Expression) -> Condition:
        if self.skip("IN"):
            return tree.Membership(left.position, left, self._choices())
        self.expect("LIKE", "IN or LIKE")
        pattern = self.value(_COMPARED)
        _check_pattern(pattern)
        escape = self.value(_COMPARED) if self.skip("ESCAPE") else None
        _check_escape(escape)
        return tree.Like(left.position, left, pattern, escape)

    def _choices(self) -> tuple[Expression, ...]:
        self.deeper(self.expect("(", "'(' and the list of IN"))
        choices = [self.value(0)]
        while self.skip(","):
            choices.append(self.value(0))
        self.expect(")", "',' or ')'")
        self.shallower()
        return tuple(choices)

    def _is_null(self, left: Expression, token: Token) -> Condition:
        if not isinstance(left, (tree.Property, tree.PropertyCall)):
            raise wrong(token.position, "'IS' after a value", "a property before it")
        negated = self.skip("NOT")
        self.expect("NULL", "NULL" if negated else "NULL or NOT NULL")
        found = tree.IsNull(left.position, left)
        return tree.Not(left.position, found) if negated else found

    def _prefix(self) -> Predicate:
        token = self.take()
        kind = token.kind
        if kind in (NAME, QUOTED):
            return self._named(token)
        if kind == "(":
            return self._group(token)
        if kind == "NOT":
            return self._not(token)
        if kind in ("+", "-"):
            return self._signed(token)
        if kind == "EXISTS":
            return self._exists(token)
        return self._constant(token)

    def _constant(self, token: Token) -> Expression:
        if token.kind == INTEGER:
            return _integer(token, int(token.number))
        if token.kind == DOUBLE:
            return tree.Constant(token.position, token.number)
        if token.kind == STRING:
            return tree.Constant(token.position, token.text)
        if token.kind == PARAMETER:
            return tree.Constant(token.position, self._parameter(token))
        if token.kind in ("TRUE", "FALSE"):
            return tree.Constant(token.position, token.kind == "TRUE")
        if token.kind == "NULL":
            return tree.Constant(token.position, None)
        raise wrong(token.position, str(token), "a property, a constant, a function, NOT, EXISTS or '('")

    def _parameter(self, token: Token) -> Value:
        """By exact name, then by any case; the clients give the names with or without their @."""
        for name in (f"@{token.text}", token.text):
            if name in self._parameters:
                return self._parameters[name]
        for name, value in self._parameters.items():
            if name.removeprefix("@").lower() == token.text.lower():
                return value
        raise wrong(token.position, str(token), "a parameter that the rule has a value for")

    def _group(self, token: Token) -> Predicate:
        self.deeper(token)
        parsed = self.expression(0)
        self.expect(")", f"{_follows(parsed)} or ')'")
        self.shallower()
        return parsed

    def _not(self, token: Token) -> Condition:
        self.deeper(token)
        parsed = tree.Not(token.position, as_predicate(self.expression(_NEGATED)))
        self.shallower()
        return parsed

    def _signed(self, token: Token) -> Expression:
        if token.kind == "-" and self.token.kind == INTEGER:
            return _integer(token, -int(self.take().number))
        self.deeper(token)
        operand = self.value(_SIGNED)
        self.shallower()
        return tree.Signed(token.position, token.kind, operand)

    def _exists(self, token: Token) -> Condition:
        self.deeper(self.expect("(", "'(' and a property"))
        operand = self._named(self.take())
        if not isinstance(operand, (tree.Property, tree.PropertyCall)):
            raise wrong(operand.position, "a value", "a property")
        self.expect(")", "')'")
        self.shallower()
        return tree.Exists(token.position, operand)

    def _named(self, token: Token) -> Expression:
        """A property with or without its scope, or a function."""
        if token.kind == NAME and self.token.kind == "(":
            return self._function(token)
        return self.read_property(token)

    def read_property(self, token: Token) -> tree.Property:
        if token.kind not in (NAME, QUOTED):
            raise wrong(token.position, str(token), "a property")
        if self.token.kind != ".":
            return tree.Property(token.position, False, token.text)
        scope = token.text.lower() if token.kind == NAME else ""
        if scope not in ("sys", "user"):
            raise wrong(token.position, f"the scope {token}", "sys or user")
        self.take()
        name = self.take()
        if name.kind not in (NAME, QUOTED):
            raise wrong(name.position, str(name), "a property name")
        if scope == "user":
            return tree.Property(token.position, False, name.text)
        return tree.Property(token.position, True, _system_name(name))

    def _function(self, token: Token) -> Expression:
        name = token.text.lower()
        if name not in _FUNCTIONS:
            raise wrong(token.position, f"the function {token}", "newid, property or p")
        self.deeper(self.take())
        if name == "newid":
            parsed: Expression = tree.NewId(token.position)
        else:
            parsed = tree.PropertyCall(token.position, self._property_name())
        self.expect(")", "')'")
        self.shallower()
        return parsed

    def _property_name(self) -> Expression:
        argument = self.value(0)
        if isinstance(argument, tree.Constant) and not isinstance(argument.value, (str, type(None))):
            raise wrong(argument.position, "a value that is no string", "the name of a property")
        return argument


def _follows(parsed: Predicate) -> str:
    return "AND, OR" if isinstance(parsed, _CONDITIONS) else "an operator"


def _integer(token: Token, number: int) -> tree.Constant:
    if not INT64_MIN <= number <= INT64_MAX:
        raise wrong(token.position, f"the integer {number}", "one in the range of Int64")
    return tree.Constant(token.position, number)


def _system_name(token: Token) -> str:
    name = SYSTEM_PROPERTIES.get(token.text.lower())
    if name is None:
        raise wrong(token.position, f"the unknown system property {token}", "one that messages have")
    return name


def _check_pattern(pattern: Expression) -> None:
    """A parameter can be longer than any text, and the time of LIKE grows with its pattern."""
    text = pattern.value if isinstance(pattern, tree.Constant) else None
    if isinstance(text, str) and len(text) > RULE_TEXT_CHARACTERS:
        found = f"a pattern of {len(text)} characters"
        raise wrong(pattern.position, found, f"at most {RULE_TEXT_CHARACTERS}")


def _check_escape(escape: Expression | None) -> None:
    if not isinstance(escape, tree.Constant) or escape.value is None:
        return
    if not isinstance(escape.value, str) or len(escape.value) != 1:
        raise wrong(escape.position, "a longer or shorter ESCAPE", "a string of one character")
