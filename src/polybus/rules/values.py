"""The values that rules compute with, and how two of them compare (docs/protocol/rules.md#values).

`None` is both null and *unknown*: every operator but IS NULL and EXISTS treats the two alike. Comparisons
promote as C# does (an integer meets a double as a double); what C# would not compile is unknown here.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias
from uuid import UUID

from polybus.errors import ArgumentError

Value: TypeAlias = bool | int | float | Decimal | str | bytes | UUID | datetime | timedelta | None

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

TESTS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
EQUALITIES: Final = ("=", "<>", "!=")
MIRRORED: Final = {"=": "=", "<>": "<>", "!=": "!=", ">": "<", ">=": "<=", "<": ">", "<=": ">="}

_ORDERED: Final = (int, str, float, timedelta)
_EQUATABLE: Final = (bool, UUID)
_NUMBERS: Final = (int, float, Decimal)
_KNOWN: Final = (bool, int, float, Decimal, str, bytes, UUID, datetime, timedelta)


def compare(sign: str, left: Value, right: Value, ignore_case: bool = False) -> bool | None:
    """True, false, or None where a side is unknown or C# has no such operator for the two types."""
    if left is None or right is None:
        return None
    kind = type(left)
    if kind is not type(right):
        return _compare_mixed(sign, left, right)
    if ignore_case and isinstance(left, str) and isinstance(right, str):
        return TESTS[sign](left.lower(), right.lower())
    if kind in _ORDERED or (kind in _EQUATABLE and sign in EQUALITIES):
        return TESTS[sign](left, right)
    if isinstance(left, Decimal) and isinstance(right, Decimal):
        return _compare_decimals(sign, left, right)
    if isinstance(left, datetime) and isinstance(right, datetime):
        return TESTS[sign](in_utc(left), in_utc(right))
    return None


def _compare_mixed(sign: str, left: Value, right: Value) -> bool | None:
    """Only numbers of different kinds compare; a double wins, over a decimal too, as in arithmetic."""
    if type(left) not in _NUMBERS or type(right) not in _NUMBERS:
        return None
    assert isinstance(left, (int, float, Decimal))
    assert isinstance(right, (int, float, Decimal))
    if isinstance(left, float) or isinstance(right, float):
        return TESTS[sign](as_double(left), as_double(right))
    return _compare_decimals(sign, Decimal(left), Decimal(right))


def as_double(number: int | float | Decimal) -> float:
    if isinstance(number, Decimal) and number.is_nan():
        return math.nan
    return float(number)


def _compare_decimals(sign: str, left: Decimal, right: Decimal) -> bool:
    """Python raises where a decimal is no number; C# doubles answer as IEEE 754 does, and so do we."""
    if left.is_nan() or right.is_nan():
        return sign in ("<>", "!=")
    return TESTS[sign](left, right)


def in_utc(moment: datetime) -> datetime:
    """A moment without a zone is UTC: the Python admin client sends such parameters (docs/protocol/rules.md#values)."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def checked(value: object, what: str) -> Value:
    """A value from outside, in the form that rules compute with; `what` names it in the refusal."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if INT64_MIN <= value <= INT64_MAX else Decimal(value)
    if isinstance(value, datetime):
        return in_utc(value)
    for kind in _KNOWN:
        if type(value) is kind:
            return value
    raise ArgumentError(f"{what} has a value of type {type(value).__name__}, which rules cannot compare.")


def checked_all(values: Mapping[str, object], what: str) -> dict[str, Value]:
    return {name: checked(value, f"{what} '{name}'") for name, value in values.items()}


def identity(value: Value) -> tuple[str, str]:
    """Equal for the same value of the same type: 1, 1.0 and true are three."""
    return type(value).__name__, repr(value)


def literal(value: Value) -> str:
    """The value as one would write it in a filter, for people to read."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, (int, float, Decimal)):
        return str(value)
    text = value.hex() if isinstance(value, bytes) else str(value)
    return "'" + text.replace("'", "''") + "'"


def quoted_name(name: str) -> str:
    return "[" + name.replace("]", "]]") + "]"
