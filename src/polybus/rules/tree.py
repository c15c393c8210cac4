"""The syntax tree of filters and actions: what the parser finds and the compiler turns into nodes.

Every part knows its position in the text, counted from 0, so that a later check can still point at it.
Parentheses leave no trace; chains of AND, OR, `+ -` and `* / %` are flat, so that a long text is not a deep
tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from polybus.rules.values import Value


@dataclass(frozen=True)
class Constant:
    position: int
    value: Value


@dataclass(frozen=True)
class Property:
    """`name` is canonical in the scope sys, and as written in the scope user."""

    position: int
    system: bool
    name: str


@dataclass(frozen=True)
class PropertyCall:
    """`property(expr)`: the user property that the expression names."""

    position: int
    argument: Expression


@dataclass(frozen=True)
class NewId:
    position: int


@dataclass(frozen=True)
class Signed:
    position: int
    sign: str
    operand: Expression


@dataclass(frozen=True)
class Arithmetic:
    """A chain of operators of one precedence, worked off from the left."""

    position: int
    first: Expression
    steps: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True)
class Comparison:
    position: int
    sign: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Membership:
    position: int
    operand: Expression
    choices: tuple[Expression, ...]


@dataclass(frozen=True)
class Like:
    position: int
    operand: Expression
    pattern: Expression
    escape: Expression | None


@dataclass(frozen=True)
class IsNull:
    position: int
    operand: Property | PropertyCall


@dataclass(frozen=True)
class Exists:
    position: int
    operand: Property | PropertyCall


@dataclass(frozen=True)
class Not:
    position: int
    operand: Predicate


@dataclass(frozen=True)
class Logic:
    """Two or more operands of one AND or one OR."""

    position: int
    keyword: str
    operands: tuple[Predicate, ...]


@dataclass(frozen=True)
class Set:
    target: Property
    value: Expression


@dataclass(frozen=True)
class Remove:
    target: Property


Expression: TypeAlias = Constant | Property | PropertyCall | NewId | Signed | Arithmetic
"""What has a value."""

Condition: TypeAlias = Comparison | Membership | Like | IsNull | Exists | Not | Logic
"""What is true, false or unknown by its form."""

Predicate: TypeAlias = Condition | Expression
"""A condition, or an expression that may turn out to be boolean."""

Statement: TypeAlias = Set | Remove
