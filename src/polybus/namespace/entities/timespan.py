"""Spans of time as the cloud writes them: 100 ns ticks, `xs:duration` text, .NET's own text.

Descriptions hold whole milliseconds; the finer ticks exist only for values that must come back as they were
sent.
"""

from __future__ import annotations

import re

from polybus.limits import INFINITE_MS

TICKS_PER_MS = 10_000
TICKS_PER_SECOND = 10_000_000
TICKS_PER_DAY = 86_400 * TICKS_PER_SECOND
INFINITE_DAYS = 10_675_199
INFINITE_TICKS = 2**63 - 1
"""What .NET's TimeSpan.MaxValue means everywhere: never."""

_LONGEST_TEXT = 64
_DURATION = re.compile(
    r"(?P<sign>-?)P(?:(?P<Y>[0-9]+)Y)?(?:(?P<M>[0-9]+)M)?(?:(?P<D>[0-9]+)D)?"
    r"(?P<T>T(?:(?P<h>[0-9]+)H)?(?:(?P<m>[0-9]+)M)?(?:(?P<s>[0-9]+)(?:\.(?P<f>[0-9]+))?S)?)?"
)
# XmlConvert counts a year as 365 days and a month as 30.
_UNIT_TICKS = {
    "Y": 365 * TICKS_PER_DAY,
    "M": 30 * TICKS_PER_DAY,
    "D": TICKS_PER_DAY,
    "h": 3_600 * TICKS_PER_SECOND,
    "m": 60 * TICKS_PER_SECOND,
    "s": TICKS_PER_SECOND,
}


def ticks_from_text(text: str) -> int:
    """The ticks of an `xs:duration`; ValueError if it is none. What is finer than a tick is cut off."""
    match = _DURATION.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if match is None or text.endswith(("P", "T")):
        raise ValueError(f"{text[:_LONGEST_TEXT]!r} is not a duration")
    ticks = sum(int(match[unit] or 0) * size for unit, size in _UNIT_TICKS.items())
    ticks += int((match["f"] or "0")[:7].ljust(7, "0"))
    return -ticks if match["sign"] else ticks


def ms_from_text(text: str) -> int:
    """The milliseconds of an `xs:duration`; infinite from 10,675,199 days on, as SDKs round the maximum."""
    ticks = ticks_from_text(text)
    if ticks >= INFINITE_DAYS * TICKS_PER_DAY:
        return INFINITE_MS
    return ticks // TICKS_PER_MS if ticks >= 0 else -(-ticks // TICKS_PER_MS)


def text_from_ticks(ticks: int) -> str:
    """The canonical `xs:duration`: days, hours, minutes, seconds, each only if it is not zero."""
    if ticks == 0:
        return "PT0S"
    days, rest = divmod(abs(ticks), TICKS_PER_DAY)
    seconds, fraction = divmod(rest, TICKS_PER_SECOND)
    parts = _clock_parts(seconds, fraction)
    sign = "-" if ticks < 0 else ""
    return f"{sign}P{f'{days}D' if days else ''}{'T' + parts if parts else ''}"


def _clock_parts(seconds: int, fraction: int) -> str:
    hours, rest = divmod(seconds, 3_600)
    minutes, whole = divmod(rest, 60)
    text = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    if fraction:
        text += f"{whole}.{fraction:07d}".rstrip("0") + "S"
    elif whole:
        text += f"{whole}S"
    return text


def text_from_ms(ms: int) -> str:
    """The canonical `xs:duration`; infinity is written out to the last tick, as the cloud does."""
    return text_from_ticks(INFINITE_TICKS if ms >= INFINITE_MS else ms * TICKS_PER_MS)


def dotnet_text(ms: int) -> str:
    """What .NET prints for a TimeSpan, as it stands in the cloud's error texts: `25.00:00:00`."""
    days, rest = divmod(abs(ms), 86_400_000)
    seconds, fraction = divmod(rest, 1_000)
    clock = f"{seconds // 3_600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    tail = f".{fraction * TICKS_PER_MS:07d}" if fraction else ""
    return f"{'-' if ms < 0 else ''}{f'{days}.' if days else ''}{clock}{tail}"
