"""The expressions of a template: `[concat(parameters('name'), '-', copyIndex())]`, parsed into a small tree.

A text that begins with one bracket is an expression; with two it is the text with one of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from polybus.errors import TemplateError
from polybus.limits import TEMPLATE_DEPTH

_TOKEN = re.compile(r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?\d+)|(?P<name>[A-Za-z_]\w*)|(?P<mark>[()\[\].,]))")


@dataclass(frozen=True)
class Literal:
    value: str | int


@dataclass(frozen=True)
class FunctionCall:
    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class Member:
    """`of.name`, or `of[key]`."""

    of: Node
    key: Node


Node = Literal | FunctionCall | Member


def is_expression(text: str) -> bool:
    return text.startswith("[") and text.endswith("]") and not text.startswith("[[")


def parse(text: str) -> Node:
    """The tree of an expression, its outer brackets included."""
    parser = _Parser(text)
    node = parser.node(0)
    if parser.kind != "end":
        raise parser.error()
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._inner = text[1:-1]
        self._at = 0
        self.kind = self.value = ""
        self._next()

    def _next(self) -> None:
        found = _TOKEN.match(self._inner, self._at)
        if found is None:
            if self._inner[self._at :].strip():
                raise self.error()
            self.kind = self.value = "end"
            return
        self._at = found.end()
        assert found.lastgroup is not None, "a token is of some kind"
        self.kind, self.value = found.lastgroup, found.group(found.lastgroup)

    def error(self) -> TemplateError:
        return TemplateError(f"the expression {self._text[:200]!a} cannot be read near character {self._at + 1}")

    def _expect(self, mark: str) -> None:
        if (self.kind, self.value) != ("mark", mark):
            raise self.error()
        self._next()

    def node(self, depth: int) -> Node:
        if depth > TEMPLATE_DEPTH:
            raise TemplateError(f"the expression {self._text[:200]!a} is nested deeper than {TEMPLATE_DEPTH}")
        node = self._primary(depth)
        while self.kind == "mark" and self.value in ".[":
            dotted = self.value == "."
            self._next()
            if dotted:
                if self.kind != "name":
                    raise self.error()
                node = Member(node, Literal(self.value))
                self._next()
            else:
                node = Member(node, self.node(depth + 1))
                self._expect("]")
        return node

    def _primary(self, depth: int) -> Node:
        kind, value = self.kind, self.value
        if kind == "text":
            self._next()
            return Literal(value[1:-1].replace("''", "'"))
        if kind == "number":
            self._next()
            return Literal(int(value))
        if kind != "name":
            raise self.error()
        self._next()
        self._expect("(")
        return FunctionCall(value.lower(), self._arguments(depth))

    def _arguments(self, depth: int) -> tuple[Node, ...]:
        found: list[Node] = []
        while (self.kind, self.value) != ("mark", ")"):
            if found:
                self._expect(",")
            found.append(self.node(depth + 1))
        self._next()
        return tuple(found)
