"""Values as people type them: durations, times, and properties with a type."""

from __future__ import annotations

import datetime
import re
from typing import Final

from polybus.errors import ArgumentError, ConfigError
from polybus.gateway.durations import INFINITE_MS, duration_text, ms_from_date_time, parse_duration

_SHORT: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NEVER: Final = "never"


def duration_ms(text: str) -> int:
    """Milliseconds of `30s`, `1.5h`, `14d`, `never`, or of a duration in ISO 8601 (`PT1M`)."""
    if text.strip().lower() == _NEVER:
        return INFINITE_MS
    short = _SHORT.fullmatch(text.strip().lower())
    if short is not None:
        return round(float(short[1]) * _UNIT_MS[short[2]])
    try:
        return parse_duration(text)
    except ArgumentError:
        raise ConfigError(f"{text!r} is not a duration: write 30s, 5m, 14d, never, or PT30S") from None


def iso_duration(text: str) -> str:
    """The same in the form that the management API takes."""
    return duration_text(duration_ms(text))


def duration(text: str) -> datetime.timedelta:
    ms = duration_ms(text)
    return datetime.timedelta.max if ms >= INFINITE_MS else datetime.timedelta(milliseconds=ms)


def moment(text: str) -> datetime.datetime:
    """A time in ISO 8601, or a duration from now on (`+5m`)."""
    if text.startswith("+"):
        return datetime.datetime.now(datetime.UTC) + duration(text[1:])
    try:
        return datetime.datetime.fromtimestamp(ms_from_date_time(text) / 1000, datetime.UTC)
    except ArgumentError:
        raise ConfigError(f"{text!r} is not a time: write 2026-01-31T12:00:00Z, or +5m") from None


def properties(pairs: list[str] | None) -> dict[str, str | int | float | bool]:
    """NAME=VALUE, each: numbers and true or false are what they look like, anything in quotes is text."""
    found: dict[str, str | int | float | bool] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"{pair!r} is not NAME=VALUE")
        found[name] = typed(value)
    return found


def typed(text: str) -> str | int | float | bool:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
