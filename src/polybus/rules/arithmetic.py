"""`+ - * / %` on rule values, as C# computes them (docs/protocol/rules.md#values).

Integers are Int64: a result outside of it, and a division by zero, fail the evaluation. Doubles follow
IEEE 754 and never fail. Strings are joined by `+`. Dates and durations add and subtract. An unknown operand,
or two types that C# does not combine, give unknown.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from decimal import Context, Decimal, DecimalException, DivisionByZero, InvalidOperation, Overflow
from typing import Final

from polybus.limits import RULE_STRING_CHARACTERS
from polybus.rules.failure import divided_by_zero, out_of_range, overflowed
from polybus.rules.values import INT64_MAX, INT64_MIN, Value, as_double, in_utc

# C#'s decimal has 28 to 29 digits. A context of our own keeps results the same whatever the process sets.
_DECIMALS: Final = Context(prec=28, traps=[DivisionByZero, InvalidOperation, Overflow])


def arithmetic(sign: str, left: Value, right: Value) -> Value:
    """The result, or None where an operand is unknown or C# does not combine the two types."""
    if left is None or right is None or isinstance(left, bool) or isinstance(right, bool):
        return None
    if isinstance(left, int) and isinstance(right, int):
        return _integers(sign, left, right)
    if isinstance(left, (int, float, Decimal)) and isinstance(right, (int, float, Decimal)):
        return _mixed(sign, left, right)
    if isinstance(left, str) and isinstance(right, str):
        return _joined(left, right) if sign == "+" else None
    return _moments(sign, left, right)


def signed(sign: str, operand: Value) -> Value:
    """Unary plus and minus."""
    if isinstance(operand, bool) or not isinstance(operand, (int, float, Decimal, timedelta)):
        return None
    if sign == "+":
        return operand
    if isinstance(operand, int):
        return _in_range(-operand)
    if isinstance(operand, Decimal):
        return operand.copy_negate()
    return _opposite(operand) if isinstance(operand, timedelta) else -operand


def _opposite(span: timedelta) -> timedelta:
    try:
        return -span
    except OverflowError:
        raise overflowed() from None


def _integers(sign: str, left: int, right: int) -> int:
    if sign == "+":
        return _in_range(left + right)
    if sign == "-":
        return _in_range(left - right)
    if sign == "*":
        return _in_range(left * right)
    if right == 0:
        raise divided_by_zero()
    quotient = abs(left) // abs(right)
    if (left < 0) != (right < 0):
        quotient = -quotient
    return _in_range(quotient) if sign == "/" else left - right * quotient


def _in_range(result: int) -> int:
    if INT64_MIN <= result <= INT64_MAX:
        return result
    raise overflowed()


def _mixed(sign: str, left: int | float | Decimal, right: int | float | Decimal) -> float | Decimal:
    """A double wins over a decimal: C# has no implicit way between them, and a double never fails."""
    if isinstance(left, float) or isinstance(right, float):
        return _doubles(sign, as_double(left), as_double(right))
    return _decimals(sign, Decimal(left), Decimal(right))


def _doubles(sign: str, left: float, right: float) -> float:
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right
    if sign == "*":
        return left * right
    if sign == "%":
        return _remainder(left, right)
    if right != 0.0:
        return left / right
    if left == 0.0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _remainder(left: float, right: float) -> float:
    """The sign is the dividend's; Python raises where IEEE 754 has no number."""
    if right == 0.0 or math.isinf(left):
        return math.nan
    return math.fmod(left, right)


def _decimals(sign: str, left: Decimal, right: Decimal) -> Decimal:
    if sign in ("/", "%") and right.is_zero():
        raise divided_by_zero()
    try:
        if sign == "+":
            return _DECIMALS.add(left, right)
        if sign == "-":
            return _DECIMALS.subtract(left, right)
        if sign == "*":
            return _DECIMALS.multiply(left, right)
        if sign == "/":
            return _DECIMALS.divide(left, right)
        return _DECIMALS.remainder(left, right)
    except DecimalException:
        raise overflowed() from None


def _joined(left: str, right: str) -> str:
    if len(left) + len(right) > RULE_STRING_CHARACTERS:
        raise out_of_range(f"A string of more than {RULE_STRING_CHARACTERS} characters was computed.")
    return left + right


def _moments(sign: str, left: Value, right: Value) -> Value:
    """C# knows date ± span, date - date, span ± span."""
    if sign not in ("+", "-"):
        return None
    try:
        if isinstance(right, timedelta):
            return _shifted(sign, left, right)
        if sign == "-" and isinstance(left, datetime) and isinstance(right, datetime):
            return in_utc(left) - in_utc(right)
    except OverflowError:
        raise out_of_range("A date or a duration outside of the possible range was computed.") from None
    return None


def _shifted(sign: str, left: Value, span: timedelta) -> Value:
    if isinstance(left, datetime):
        return left + span if sign == "+" else left - span
    if isinstance(left, timedelta):
        return left + span if sign == "+" else left - span
    return None
