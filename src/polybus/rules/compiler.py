"""Tree to nodes. What does not depend on the message is evaluated here, once: `1=1` becomes a constant.

A constant part that fails (`1/0`) is left to fail on each message, as it would in the service.
"""

from __future__ import annotations

from typing import Final

from polybus.limits import RULE_TEXT_CHARACTERS
from polybus.rules import tree
from polybus.rules.evaluation import without_message
from polybus.rules.failure import RuleEvaluationError
from polybus.rules.like import LikePattern
from polybus.rules.nodes import (
    AndNode,
    ArithmeticNode,
    BooleanNode,
    CompareNode,
    CompareUserNode,
    ConstantNode,
    ExistsNode,
    InNode,
    InStringsNode,
    IsNullNode,
    LikeNode,
    LikePatternNode,
    NamedNode,
    NewIdNode,
    NotNode,
    OrNode,
    SignedNode,
    SyntaxNode,
    SystemNode,
    UserNode,
)
from polybus.rules.values import MIRRORED, Value

_SELF_ORDERED: Final = (int, float, str)


def compile_predicate(parsed: tree.Predicate, ignore_case: bool) -> SyntaxNode:
    """A node whose value is True, False or None."""
    return _Compiler(ignore_case).predicate(parsed)


def compile_expression(parsed: tree.Expression, ignore_case: bool) -> SyntaxNode:
    return _Compiler(ignore_case).expression(parsed)


class _Compiler:
    def __init__(self, ignore_case: bool) -> None:
        self._ignore_case = ignore_case

    def predicate(self, parsed: tree.Predicate) -> SyntaxNode:
        if isinstance(parsed, tree.Logic):
            operands = [self.predicate(operand) for operand in parsed.operands]
            node = AndNode(operands) if parsed.keyword == "AND" else OrNode(operands)
            return _folded(node, operands)
        if isinstance(parsed, tree.Not):
            operand = self.predicate(parsed.operand)
            return _folded(NotNode(operand), [operand])
        if isinstance(parsed, tree.Comparison):
            return self._comparison(parsed)
        if isinstance(parsed, tree.Membership):
            return self._membership(parsed)
        if isinstance(parsed, tree.Like):
            return self._like(parsed)
        if isinstance(parsed, tree.IsNull):
            return IsNullNode(self.expression(parsed.operand))
        if isinstance(parsed, tree.Exists):
            return ExistsNode(self.expression(parsed.operand))
        operand = self.expression(parsed)
        return _folded(BooleanNode(operand), [operand])

    def expression(self, parsed: tree.Expression) -> SyntaxNode:
        if isinstance(parsed, tree.Constant):
            return ConstantNode(parsed.value)
        if isinstance(parsed, tree.Property):
            return SystemNode(parsed.name) if parsed.system else UserNode(parsed.name)
        if isinstance(parsed, tree.PropertyCall):
            return self._call(parsed)
        if isinstance(parsed, tree.NewId):
            return NewIdNode()
        if isinstance(parsed, tree.Signed):
            operand = self.expression(parsed.operand)
            return _folded(SignedNode(parsed.sign, operand), [operand])
        first = self.expression(parsed.first)
        steps = [(sign, self.expression(operand)) for sign, operand in parsed.steps]
        return _folded(ArithmeticNode(first, steps), [first, *(operand for _, operand in steps)])

    def _call(self, parsed: tree.PropertyCall) -> SyntaxNode:
        name = self.expression(parsed.argument)
        if isinstance(name, ConstantNode) and isinstance(name.value, str):
            return UserNode(name.value)
        return NamedNode(name)

    def _comparison(self, parsed: tree.Comparison) -> SyntaxNode:
        left = self.expression(parsed.left)
        right = self.expression(parsed.right)
        if isinstance(left, UserNode) and isinstance(right, ConstantNode):
            return self._compared(parsed.sign, left, right)
        if isinstance(left, ConstantNode) and isinstance(right, UserNode):
            return self._compared(MIRRORED[parsed.sign], right, left)
        return _folded(CompareNode(parsed.sign, left, right, self._ignore_case), [left, right])

    def _compared(self, sign: str, user: UserNode, constant: ConstantNode) -> SyntaxNode:
        value = constant.value
        folding = self._ignore_case and isinstance(value, str)
        if isinstance(value, _SELF_ORDERED) and not isinstance(value, bool) and not folding:
            return CompareUserNode(sign, user.name, value)
        return CompareNode(sign, user, constant, self._ignore_case)

    def _membership(self, parsed: tree.Membership) -> SyntaxNode:
        operand = self.expression(parsed.operand)
        choices = [self.expression(choice) for choice in parsed.choices]
        texts = [choice.value for choice in choices if isinstance(choice, ConstantNode)]
        strings = [text for text in texts if isinstance(text, str)]
        if len(strings) == len(choices) and not self._ignore_case:
            return _folded(InStringsNode(operand, frozenset(strings)), [operand])
        return _folded(InNode(operand, choices, self._ignore_case), [operand, *choices])

    def _like(self, parsed: tree.Like) -> SyntaxNode:
        operand = self.expression(parsed.operand)
        pattern = self.expression(parsed.pattern)
        escape = None if parsed.escape is None else self.expression(parsed.escape)
        mark = "" if escape is None else _character(escape)
        if isinstance(pattern, ConstantNode) and _is_short(pattern.value) and mark is not None:
            compiled = LikePattern(str(pattern.value), mark, self._ignore_case)
            return _folded(LikePatternNode(operand, compiled), [operand])
        return LikeNode(operand, pattern, escape, self._ignore_case)


def _is_short(pattern: Value) -> bool:
    """Whether it can be a pattern at all; a longer one, put together of parts, fails on each message."""
    return isinstance(pattern, str) and len(pattern) <= RULE_TEXT_CHARACTERS


def _character(node: SyntaxNode) -> str | None:
    """The constant that is an escape character; None where it is to be found out, or wrong, on a message."""
    if isinstance(node, ConstantNode) and isinstance(node.value, str) and len(node.value) == 1:
        return node.value
    return None


def _folded(node: SyntaxNode, operands: list[SyntaxNode]) -> SyntaxNode:
    """The node itself, or its value where all its operands are constants."""
    if not all(isinstance(operand, ConstantNode) for operand in operands):
        return node
    try:
        return ConstantNode(node.evaluate(without_message()))
    except RuleEvaluationError:
        return node
