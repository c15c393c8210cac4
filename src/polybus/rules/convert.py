"""Values made into another type, for SET on a property that already has one (docs/protocol/rules.md#actions).

What .NET's Convert does without a culture; None means that there is no way.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from uuid import UUID

from polybus.rules.values import INT64_MAX, INT64_MIN, Value, in_utc


def converted(value: Value, kind: type) -> Value:
    """The value as `kind`, or None where that cannot be."""
    if value is None or type(value) is kind:
        return value
    if kind is str:
        return as_text(value)
    if kind is bool:
        return _as_boolean(value)
    if kind is int:
        return _as_integer(value)
    if kind is float:
        return _as_double(value)
    if kind is Decimal:
        return _as_decimal(value)
    return _parsed(value, kind) if isinstance(value, str) else None


def as_text(value: Value) -> str | None:
    """Text as .NET's invariant culture writes it; a binary has none."""
    if value is None or isinstance(value, bytes):
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, datetime):
        return in_utc(value).isoformat()
    if isinstance(value, timedelta):
        return _span_text(value)
    return str(value)


def _span_text(span: timedelta) -> str:
    """[-][d.]hh:mm:ss[.fffffff]"""
    ticks = abs(span)
    hours, rest = divmod(ticks.seconds, 3600)
    days = f"{ticks.days}." if ticks.days else ""
    fraction = f".{ticks.microseconds:06}0" if ticks.microseconds else ""
    sign = "-" if span < timedelta(0) else ""
    return f"{sign}{days}{hours:02}:{rest // 60:02}:{rest % 60:02}{fraction}"


def _as_boolean(value: Value) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value != 0 if isinstance(value, (int, float)) else None


def _as_integer(value: Value) -> int | None:
    """Rounds half to even, as Convert does."""
    if isinstance(value, str):
        return _in_range(_decimal_of(value), exact=True)
    if isinstance(value, (bool, float, Decimal)):
        return _in_range(Decimal(value), exact=False)
    return None


def _in_range(number: Decimal | None, exact: bool) -> int | None:
    if number is None or not number.is_finite() or not INT64_MIN - 1 < number < INT64_MAX + 1:
        return None
    rounded = round(number)
    if exact and rounded != number:
        return None
    return rounded if INT64_MIN <= rounded <= INT64_MAX else None


def _as_double(value: Value) -> float | None:
    if isinstance(value, str):
        number = _decimal_of(value)
        return None if number is None else float(number)
    if isinstance(value, Decimal):
        return math.nan if value.is_nan() else float(value)
    return float(value) if isinstance(value, int) else None


def _as_decimal(value: Value) -> Decimal | None:
    if isinstance(value, str):
        return _decimal_of(value)
    if isinstance(value, float):
        return Decimal(repr(value)) if math.isfinite(value) else None
    return Decimal(value) if isinstance(value, int) else None


def _decimal_of(text: str) -> Decimal | None:
    """A finite number written in ASCII; Python's own parser would take more."""
    plain = text.strip()
    if not plain.isascii() or "_" in plain:
        return None
    try:
        number = Decimal(plain)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _parsed(text: str, kind: type) -> Value:
    try:
        if kind is UUID:
            return UUID(text)
        if kind is datetime:
            return in_utc(datetime.fromisoformat(text))
        if kind is timedelta:
            return _span(text)
    except (ValueError, OverflowError):
        return None
    return None


def _span(text: str) -> timedelta:
    """[-][d.]hh:mm[:ss[.f]], the constant format of .NET's TimeSpan."""
    body = text.removeprefix("-")
    clock = body.split(":")
    if len(clock) not in (2, 3):
        raise ValueError(text)
    days, _, hours = clock[0].rpartition(".")
    seconds, _, fraction = (clock[2] if len(clock) == 3 else "0").partition(".")
    span = timedelta(
        days=_digits(days or "0"),
        hours=_digits(hours, 23),
        minutes=_digits(clock[1], 59),
        seconds=_digits(seconds, 59),
        microseconds=_digits(fraction[:7].ljust(7, "0") if fraction else "0") // 10,
    )
    return -span if len(body) < len(text) else span


def _digits(text: str, most: int = 10_675_199) -> int:
    """The number, at most `most`: by default the days of the longest TimeSpan."""
    if not text.isascii() or not text.isdigit() or int(text) > most:
        raise ValueError(text)
    return int(text)
