"""Durations and times as clients read and write them: `xs:duration`, `xs:dateTime`, .NET ticks.

Everything inside the bus is whole milliseconds; here is where text and ticks begin (docs/protocol/atom.md#durations).
"""

from __future__ import annotations

import datetime

from polybus.errors import ArgumentError
from polybus.limits import INFINITE_MS
from polybus.namespace.entities import timespan
from polybus.namespace.entities.timespan import TICKS_PER_MS
from polybus.namespace.entities.typed_value import date_time_from_text

__all__ = [
    "INFINITE_MS",
    "date_time_text",
    "duration_text",
    "etag",
    "ms_from_date_time",
    "ms_from_ticks",
    "parse_duration",
    "seconds_text",
    "ticks_from_ms",
]

EPOCH_TICKS = 621_355_968_000_000_000
"""Ticks from year 1, where .NET's time begins, to 1970."""
NEVER_TEXT = "0001-01-01T00:00:00"
"""How the cloud writes a time that has not come yet: .NET's DateTime.MinValue."""

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def parse_duration(text: str) -> int:
    """The milliseconds of an `xs:duration`, INFINITE_MS for never; ArgumentError if it is not one."""
    try:
        ms = timespan.ms_from_text(text.strip())
    except ValueError:
        raise ArgumentError(f"The value {text[:64]!a} is not a valid duration.") from None
    if ms < 0:
        raise ArgumentError(f"The duration {text[:64]!a} is negative.")
    return ms


def duration_text(ms: int) -> str:
    """The canonical `xs:duration` of milliseconds."""
    return timespan.text_from_ms(ms)


def ticks_from_ms(wall_ms: int) -> int:
    """.NET ticks of a time, as AMQP's `com.microsoft:locked-until-utc` wants them."""
    return EPOCH_TICKS + wall_ms * TICKS_PER_MS


def ms_from_ticks(ticks: int) -> int:
    """Milliseconds since 1970 of .NET ticks; what is finer is cut off."""
    return (ticks - EPOCH_TICKS) // TICKS_PER_MS


def etag(updated_at_ms: int) -> str:
    """The ETag header of an entity: the ticks of its last update, without quotes."""
    return str(ticks_from_ms(updated_at_ms))


def date_time_text(wall_ms: int) -> str:
    """A time as .NET writes it: a fraction only as long as it must be, and `Z`."""
    fraction = f".{wall_ms % 1000:03d}".rstrip("0").rstrip(".")
    return f"{_whole_seconds(wall_ms)}{fraction}Z"


def seconds_text(wall_ms: int) -> str:
    """A time as Atom's `published` and `updated` have it, without a fraction."""
    return f"{_whole_seconds(wall_ms)}Z"


def _whole_seconds(wall_ms: int) -> str:
    moment = _EPOCH + datetime.timedelta(seconds=wall_ms // 1000)
    return moment.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")


def ms_from_date_time(text: str) -> int:
    """Milliseconds since 1970 of an `xs:dateTime`; without a zone it is taken for UTC."""
    try:
        moment = date_time_from_text(text.strip())
    except ValueError:
        raise ArgumentError(f"The value {text[:64]!a} is not a valid date and time.") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return (moment - _EPOCH) // datetime.timedelta(milliseconds=1)
