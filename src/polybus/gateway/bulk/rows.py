"""Messages as rows, for pipelines: the columns of a read, and messages made from the columns of a write.

One table of columns serves JSON and Arrow alike (docs/protocol/spark.md#columns). Properties are text, whatever their
type was: a column has one type, and Spark reads it. What a row says and no column knows is an error, not a loss.
"""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime, timedelta
from typing import Any

from polybus.amqp.types import Timestamp
from polybus.errors import ArgumentError
from polybus.gateway.durations import ms_from_date_time
from polybus.message.columns import BINARY, READ_COLUMNS, TIME, Row, moment
from polybus.message.message import Message, build


def chosen_columns(wanted: str | None, *, body: bool, properties: bool) -> list[str]:
    """The columns of a read: those that are named, or all but what is left out."""
    names = list(READ_COLUMNS) if not wanted else [name.strip() for name in wanted.split(",")]
    unknown = [name for name in names if name not in READ_COLUMNS]
    if unknown or len(set(names)) != len(names):
        raise ArgumentError(f"There is no column {str(unknown)[:100]}, or one is named twice.")
    left_out = ([] if body else ["body"]) + ([] if properties else ["properties"])
    return [name for name in names if name not in left_out]


class ColumnTable:
    """Rows on their way out, column by column."""

    def __init__(self, columns: list[str]) -> None:
        self._columns = columns
        self._taken: list[Row] = []
        self.rows = 0
        self.bytes = 0

    def add(self, rows: list[Row]) -> None:
        self._taken += rows
        self.rows += len(rows)
        self.bytes += sum(row.message.size for row in rows)

    def take(self) -> dict[str, list[object]]:
        rows, self._taken = self._taken, []
        self.rows = self.bytes = 0
        return {name: READ_COLUMNS[name][1](rows) for name in self._columns}


def json_value(kind: str, value: object) -> object:
    """A column's value as JSON has it: times as text in UTC, bytes in base64."""
    if value is None:
        return None
    if kind == TIME:
        assert isinstance(value, int)
        return moment(value).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if kind == BINARY:
        assert isinstance(value, bytes)
        return base64.b64encode(value).decode()
    return value


# Rows that become messages

_TEXTS = (
    "message_id",
    "session_id",
    "partition_key",
    "subject",
    "correlation_id",
    "to",
    "reply_to",
    "reply_to_session_id",
    "content_type",
)
WRITE_COLUMNS = (*_TEXTS, "body", "body_base64", "time_to_live", "scheduled_enqueue_time", "properties")


def check_columns(names: list[str], unknown_to_properties: bool) -> None:
    unknown = [name for name in names if name not in WRITE_COLUMNS]
    if unknown and not unknown_to_properties:
        raise ArgumentError(f"There is no column {str(unknown)[:200]}; `unknown=properties` makes them properties.")
    if "body" not in names and "body_base64" not in names:
        raise ArgumentError("The column 'body' is missing.")


def message_of(row: dict[str, Any], number: int) -> Message:
    """The message that a row describes; ArgumentError says which row it is that does not."""
    try:
        return _message_of(row)
    except (ArgumentError, UnicodeError, ValueError, OverflowError) as error:
        text = error.description if isinstance(error, ArgumentError) else str(error)
        raise ArgumentError(f"Row {number}: {text}") from None


def _message_of(row: dict[str, Any]) -> Message:
    fields: dict[str, Any] = {}
    for name in _TEXTS:
        value = row.get(name)
        if value is not None:
            if not isinstance(value, str):
                raise ArgumentError(f"'{name}' must be a string.")
            fields[name] = value
    application = {name: value for name, value in row.items() if name not in WRITE_COLUMNS and value is not None}
    application.update(properties_in(row.get("properties")))
    return build(
        body_in(row),
        ttl_ms=_time_to_live(row.get("time_to_live")),
        scheduled_ms=_scheduled(row.get("scheduled_enqueue_time")),
        application={name: property_in(name, value) for name, value in application.items()},
        **fields,
    )


def body_in(row: dict[str, Any]) -> bytes:
    body = row.get("body")
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    encoded = row.get("body_base64")
    if body is None and isinstance(encoded, str):
        try:
            return base64.b64decode(encoded, validate=True)
        except binascii.Error:
            raise ArgumentError("'body_base64' is not base64.") from None
    raise ArgumentError("'body' must be binary or a string.")


def _time_to_live(value: object) -> int | None:
    """From seconds, or from a duration of Arrow."""
    if value is None:
        return None
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 1e12:
        raise ArgumentError("'time_to_live' must be a number of seconds greater than 0.")
    return max(round(seconds * 1000), 1)


def _scheduled(value: object) -> int | None:
    """From a time of Arrow, a text, or milliseconds since 1970."""
    if value is None:
        return None
    if isinstance(value, datetime):
        value = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    if isinstance(value, str):
        return ms_from_date_time(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53:
        return value
    raise ArgumentError("'scheduled_enqueue_time' must be a time.")


def properties_in(value: object) -> dict[str, object]:
    """From an object of JSON, or from the pairs of an Arrow map."""
    if value is None:
        return {}
    if isinstance(value, list):
        if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
            raise ArgumentError("'properties' must be a map.")
        value = dict(value)
    if not isinstance(value, dict):
        raise ArgumentError("'properties' must be a map.")
    return {str(name): item for name, item in value.items() if item is not None}


def property_in(name: str, value: object) -> object:
    if isinstance(value, datetime):
        return Timestamp(_scheduled(value) or 0)
    if isinstance(value, int) and not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 63:
        raise ArgumentError(f"The property '{name[:60]}' does not fit into 64 bits.")
    if isinstance(value, str | bool | int | float | bytes):
        return value
    raise ArgumentError(f"The property '{name[:60]}' must be a plain value.")
