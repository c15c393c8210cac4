"""Messages as rows, for pipelines: the columns of a read, and messages made from the columns of a write.

One table of columns serves JSON and Arrow alike (pipeline.md §8). Properties are text, whatever their type was: a
column has one type, and Spark reads it. What a row says and no column knows is an error, not a loss.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from polybus.amqp.types import Timestamp
from polybus.errors import ArgumentError
from polybus.gateway.durations import ms_from_date_time
from polybus.gateway.http_rendering import body_of, properties_of
from polybus.message.message import (
    CONTENT_TYPE,
    CORRELATION_ID,
    GROUP_ID,
    MESSAGE_ID,
    REPLY_TO,
    REPLY_TO_GROUP_ID,
    SUBJECT,
    TO,
    Message,
    build,
    identifier_text,
)
from polybus.message.overlay import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from polybus.message.rendering import Marks, merged_properties

INT: Final = "int"
LONG: Final = "long"
TEXT: Final = "string"
TIME: Final = "timestamp"
BINARY: Final = "binary"
MAP: Final = "map"


class Row:
    """A message that is read. What must be decoded is decoded once, and only where a column wants it."""

    __slots__ = ("_fields", "_properties", "expires_ms", "marks", "message", "partition", "position", "state")

    def __init__(
        self, partition: int, position: int | None, message: Message, marks: Marks, expires_ms: int, state: str
    ) -> None:
        self.partition = partition
        self.position = position
        self.message = message
        self.marks = marks
        self.expires_ms = expires_ms
        self.state = state
        self._fields: list[object] | None = None
        self._properties: dict[str, object] | None = None

    @property
    def properties(self) -> dict[str, object]:
        if self._properties is None:
            self._properties = merged_properties(self.message, self.marks.overlay)
        return self._properties

    @property
    def fields(self) -> list[object]:
        if self._fields is None:
            self._fields = properties_of(self.message, self.marks)
        return self._fields

    def property(self, name: str, encoded: bytes) -> str | None:
        """One property as text. Where its name is nowhere in the bytes, and nobody added it, nothing is decoded."""
        if self.marks.overlay is None and encoded not in self.message.raw:
            return None
        value = self.properties.get(name)
        return None if value is None else property_text(value)


Values = Callable[[list[Row]], list[object]]
"""A column of many rows at once: a call for each value would cost more than the values."""


def _field(position: int) -> Values:
    def values(rows: list[Row]) -> list[object]:
        found = [row.fields[position] for row in rows]
        return [value if value is None or type(value) is str else identifier_text(value) for value in found]

    return values


def _property_column(name: str) -> Values:
    encoded = name.encode()
    return lambda rows: [row.property(name, encoded) for row in rows]


def _texts(properties: dict[str, object]) -> dict[str, str]:
    return {name: value if type(value) is str else property_text(value) for name, value in properties.items()}


def _dead_letter_source(row: Row) -> str | None:
    return None if row.marks.overlay is None else row.marks.overlay.dead_letter_source


READ_COLUMNS: dict[str, tuple[str, Values]] = {
    "partition": (INT, lambda rows: [row.partition for row in rows]),
    "position": (LONG, lambda rows: [row.position for row in rows]),
    "sequence_number": (LONG, lambda rows: [row.marks.sequence for row in rows]),
    "enqueued_time": (TIME, lambda rows: [row.marks.enqueued_ms for row in rows]),
    "expires_at": (TIME, lambda rows: [row.expires_ms or None for row in rows]),
    "state": (TEXT, lambda rows: [row.state for row in rows]),
    "message_id": (TEXT, _field(MESSAGE_ID)),
    "session_id": (TEXT, _field(GROUP_ID)),
    "partition_key": (TEXT, lambda rows: [row.message.partition_key for row in rows]),
    "subject": (TEXT, _field(SUBJECT)),
    "correlation_id": (TEXT, _field(CORRELATION_ID)),
    "content_type": (TEXT, _field(CONTENT_TYPE)),
    "to": (TEXT, _field(TO)),
    "reply_to": (TEXT, _field(REPLY_TO)),
    "reply_to_session_id": (TEXT, _field(REPLY_TO_GROUP_ID)),
    "scheduled_enqueue_time": (TIME, lambda rows: [row.message.scheduled_ms or None for row in rows]),
    "delivery_count": (INT, lambda rows: [row.marks.delivery_count for row in rows]),
    "dead_letter_reason": (TEXT, _property_column(DEAD_LETTER_REASON)),
    "dead_letter_description": (TEXT, _property_column(DEAD_LETTER_DESCRIPTION)),
    "dead_letter_source": (TEXT, lambda rows: [_dead_letter_source(row) for row in rows]),
    "properties": (MAP, lambda rows: [_texts(row.properties) for row in rows]),
    "body": (BINARY, lambda rows: [body_of(row.message) for row in rows]),
}


def chosen_columns(wanted: str | None, *, body: bool, properties: bool) -> list[str]:
    """The columns of a read: those that are named, or all but what is left out."""
    names = list(READ_COLUMNS) if not wanted else [name.strip() for name in wanted.split(",")]
    unknown = [name for name in names if name not in READ_COLUMNS]
    if unknown or len(set(names)) != len(names):
        raise ArgumentError(f"There is no column {str(unknown)[:100]}, or one is named twice.")
    left_out = ([] if body else ["body"]) + ([] if properties else ["properties"])
    return [name for name in names if name not in left_out]


class Table:
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


def moment(wall_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=wall_ms)


def property_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Timestamp):
        return moment(value).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


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
    application.update(_properties(row.get("properties")))
    return build(
        _body(row),
        ttl_ms=_time_to_live(row.get("time_to_live")),
        scheduled_ms=_scheduled(row.get("scheduled_enqueue_time")),
        application={name: _property(name, value) for name, value in application.items()},
        **fields,
    )


def _body(row: dict[str, Any]) -> bytes:
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


def _properties(value: object) -> dict[str, object]:
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


def _property(name: str, value: object) -> object:
    if isinstance(value, datetime):
        return Timestamp(_scheduled(value) or 0)
    if isinstance(value, int) and not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 63:
        raise ArgumentError(f"The property '{name[:60]}' does not fit into 64 bits.")
    if isinstance(value, str | bool | int | float | bytes):
        return value
    raise ArgumentError(f"The property '{name[:60]}' must be a plain value.")
