"""Compiled filters: nodes that are evaluated once for each message. Made by the compiler, never changed.

`evaluate` gives the value; for conditions that is True, False or None for unknown. All operands are evaluated
from left to right, except that AND stops at the first false, OR at the first true and IN at the first match.
`holds` asks less, only whether it is true, so there an AND stops at the first operand that is not.
"""

from __future__ import annotations

from typing import Final

from polybus.limits import RULE_TEXT_CHARACTERS
from polybus.rules.arithmetic import arithmetic, signed
from polybus.rules.evaluation import Evaluation
from polybus.rules.failure import filter_failed
from polybus.rules.like import LikePattern
from polybus.rules.values import TESTS, Value, compare

_COPIED: Final = 256
_FOLDED: Final = 32
"""Characters of a string that are compared or copied, and that are brought to one case, in one step of the budget."""


class SyntaxNode:
    def evaluate(self, message: Evaluation) -> Value:
        raise NotImplementedError

    def holds(self, message: Evaluation) -> bool:
        return self.evaluate(message) is True


class ConstantNode(SyntaxNode):
    def __init__(self, value: Value) -> None:
        self.value = value

    def evaluate(self, message: Evaluation) -> Value:  # noqa: ARG002
        return self.value


class SystemNode(SyntaxNode):
    def __init__(self, name: str) -> None:
        self.name = name

    def evaluate(self, message: Evaluation) -> Value:
        return message.system(self.name)


class UserNode(SyntaxNode):
    def __init__(self, name: str) -> None:
        self.name = name

    def evaluate(self, message: Evaluation) -> Value:
        names = message.names
        return names[self.name] if self.name in names else message.find(self.name)


class NamedNode(SyntaxNode):
    """`property(expr)`; a name that is no string is unknown, and so is its property."""

    def __init__(self, name: SyntaxNode) -> None:
        self.name = name

    def evaluate(self, message: Evaluation) -> Value:
        name = self.name.evaluate(message)
        if not isinstance(name, str):
            return None
        message.budget.spend(2 + len(name) // _FOLDED)
        return message.find(name)

    def spelled(self, message: Evaluation) -> str | None:
        name = self.name.evaluate(message)
        return message.exact_name(name) if isinstance(name, str) else None


class NewIdNode(SyntaxNode):
    def evaluate(self, message: Evaluation) -> Value:
        return message.ids()


class SignedNode(SyntaxNode):
    def __init__(self, sign: str, operand: SyntaxNode) -> None:
        self.sign = sign
        self.operand = operand

    def evaluate(self, message: Evaluation) -> Value:
        return signed(self.sign, self.operand.evaluate(message))


class ArithmeticNode(SyntaxNode):
    def __init__(self, first: SyntaxNode, steps: list[tuple[str, SyntaxNode]]) -> None:
        self.first = first
        self.steps = steps

    def evaluate(self, message: Evaluation) -> Value:
        result = self.first.evaluate(message)
        for sign, operand in self.steps:
            value = operand.evaluate(message)
            if isinstance(result, str) and isinstance(value, str):
                message.budget.spend((len(result) + len(value)) // _COPIED)
            message.budget.left -= 1
            result = arithmetic(sign, result, value)
        return result


class BooleanNode(SyntaxNode):
    """An expression in the place of a condition: unknown unless it is boolean."""

    def __init__(self, operand: SyntaxNode) -> None:
        self.operand = operand

    def evaluate(self, message: Evaluation) -> Value:
        value = self.operand.evaluate(message)
        return value if isinstance(value, bool) else None


class CompareNode(SyntaxNode):
    def __init__(self, sign: str, left: SyntaxNode, right: SyntaxNode, ignore_case: bool) -> None:
        self.sign = sign
        self.left = left
        self.right = right
        self.ignore_case = ignore_case

    def evaluate(self, message: Evaluation) -> Value:
        left = self.left.evaluate(message)
        if isinstance(left, str):
            message.budget.spend(len(left) // (_FOLDED if self.ignore_case else _COPIED))
        return compare(self.sign, left, self.right.evaluate(message), self.ignore_case)


class CompareUserNode(SyntaxNode):
    """A user property against a constant whose type orders itself: the form that most filters have."""

    def __init__(self, sign: str, name: str, constant: int | float | str) -> None:
        self.sign = sign
        self.test = TESTS[sign]
        self.name = name
        self.constant = constant
        self.kind = type(constant)

    def evaluate(self, message: Evaluation) -> Value:
        names = message.names
        value = names[self.name] if self.name in names else message.find(self.name)
        if type(value) is self.kind:
            return self.test(value, self.constant)
        return compare(self.sign, value, self.constant)


class InNode(SyntaxNode):
    def __init__(self, operand: SyntaxNode, choices: list[SyntaxNode], ignore_case: bool) -> None:
        self.operand = operand
        self.choices = choices
        self.ignore_case = ignore_case

    def evaluate(self, message: Evaluation) -> Value:
        value = self.operand.evaluate(message)
        if value is None:
            return None
        result: Value = False
        each = 1 + len(value) // (_FOLDED if self.ignore_case else _COPIED) if isinstance(value, str) else 1
        message.budget.spend(each * len(self.choices))
        for choice in self.choices:
            equal = compare("=", value, choice.evaluate(message), self.ignore_case)
            if equal is True:
                return True
            if equal is None:
                result = None
        return result


class InStringsNode(SyntaxNode):
    """IN with nothing but string constants, which need not be walked through."""

    def __init__(self, operand: SyntaxNode, choices: frozenset[str]) -> None:
        self.operand = operand
        self.choices = choices

    def evaluate(self, message: Evaluation) -> Value:
        value = self.operand.evaluate(message)
        return value in self.choices if isinstance(value, str) else None


class LikeNode(SyntaxNode):
    """LIKE whose pattern, or whose escape character, is known only with the message."""

    def __init__(
        self, operand: SyntaxNode, pattern: SyntaxNode, escape: SyntaxNode | None, ignore_case: bool
    ) -> None:
        self.operand = operand
        self.pattern = pattern
        self.escape = escape
        self.ignore_case = ignore_case

    def evaluate(self, message: Evaluation) -> Value:
        value = self.operand.evaluate(message)
        pattern = self.pattern.evaluate(message)
        escape = "" if self.escape is None else self.escape.evaluate(message)
        if not isinstance(value, str) or not isinstance(pattern, str) or not isinstance(escape, str):
            return None
        if self.escape is not None and len(escape) != 1:
            raise filter_failed("The escape character of LIKE must be a string of length 1.")
        if len(pattern) > RULE_TEXT_CHARACTERS:
            raise filter_failed(f"A pattern of LIKE has more than {RULE_TEXT_CHARACTERS} characters.")
        message.budget.spend(4 * len(pattern))
        compiled = LikePattern(pattern, escape, self.ignore_case)
        message.budget.spend(compiled.steps(value))
        return compiled.matches(value)


class LikePatternNode(SyntaxNode):
    def __init__(self, operand: SyntaxNode, pattern: LikePattern) -> None:
        self.operand = operand
        self.pattern = pattern

    def evaluate(self, message: Evaluation) -> Value:
        value = self.operand.evaluate(message)
        if not isinstance(value, str):
            return None
        message.budget.spend(self.pattern.steps(value))
        return self.pattern.matches(value)


class IsNullNode(SyntaxNode):
    def __init__(self, operand: SyntaxNode) -> None:
        self.operand = operand

    def evaluate(self, message: Evaluation) -> Value:
        return self.operand.evaluate(message) is None


class ExistsNode(SyntaxNode):
    """True for a user property that is there, even if it is null; for a system property that is set."""

    def __init__(self, operand: SyntaxNode) -> None:
        self.operand = operand

    def evaluate(self, message: Evaluation) -> Value:
        if isinstance(self.operand, UserNode):
            return message.exact_name(self.operand.name) is not None
        if isinstance(self.operand, NamedNode):
            return self.operand.spelled(message) is not None
        return self.operand.evaluate(message) is not None


class NotNode(SyntaxNode):
    def __init__(self, operand: SyntaxNode) -> None:
        self.operand = operand

    def evaluate(self, message: Evaluation) -> Value:
        value = self.operand.evaluate(message)
        return None if value is None else value is False


class AndNode(SyntaxNode):
    def __init__(self, operands: list[SyntaxNode]) -> None:
        self.operands = operands

    def evaluate(self, message: Evaluation) -> Value:
        result: Value = True
        for operand in self.operands:
            message.budget.left -= 2
            value = operand.evaluate(message)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    def holds(self, message: Evaluation) -> bool:
        for operand in self.operands:
            message.budget.left -= 2
            if operand.evaluate(message) is not True:
                return False
        return True


class OrNode(SyntaxNode):
    def __init__(self, operands: list[SyntaxNode]) -> None:
        self.operands = operands

    def evaluate(self, message: Evaluation) -> Value:
        result: Value = False
        for operand in self.operands:
            message.budget.left -= 2
            value = operand.evaluate(message)
            if value is True:
                return True
            if value is None:
                result = None
        return result
