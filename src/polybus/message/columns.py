"""A message as a row of columns, for pipelines: what the bus renders, and what a client makes of stored records.

Properties are text, whatever their type was: a column has one type, and Spark reads it (docs/protocol/spark.md#columns).
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from polybus.amqp.types import Timestamp
from polybus.message.message import (
    CONTENT_TYPE,
    CORRELATION_ID,
    DATA,
    GROUP_ID,
    MESSAGE_ID,
    REPLY_TO,
    REPLY_TO_GROUP_ID,
    SUBJECT,
    TO,
    VALUE,
    Message,
    identifier_text,
)
from polybus.message.overlay import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from polybus.message.rendering import Marks, generated_id, merged_properties

INT: Final = "int"
LONG: Final = "long"
TEXT: Final = "string"
TIME: Final = "timestamp"
BINARY: Final = "binary"
MAP: Final = "map"

_DATA_SECTION: Final = b"\x00\x53\x75"
_BINARY_8: Final = 0xA0
_BINARY_32: Final = 0xB0


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


def properties_of(message: Message, marks: Marks) -> list[object]:
    """The properties section as a receiver sees it: an id is always there."""
    fields = message.properties()
    if marks.overlay is not None:
        for position, value in marks.overlay.fields.items():
            fields[position] = value
    if fields[MESSAGE_ID] is None:
        fields[MESSAGE_ID] = generated_id(marks)
    return fields


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


def body_of(message: Message) -> bytes:
    """The body as bytes: data as it is, a text in UTF-8, anything else as JSON as well as it goes."""
    plain = _only_data(message)
    if plain is not None:
        return plain
    sections = message.body()
    if all(code == DATA for code, _ in sections):
        return b"".join(value for _, value in sections if isinstance(value, bytes))
    if len(sections) == 1 and sections[0][0] == VALUE:
        value = sections[0][1]
        if isinstance(value, str):
            return value.encode("utf-8", "replace")
        if isinstance(value, bytes):
            return value
        return _as_json(value)
    return _as_json([value for _, value in sections])


def _only_data(message: Message) -> bytes | None:
    """The body of a message that ends with its one data section, as nearly all do, without decoding it."""
    raw, at = message.raw, message.body_at
    if raw[at : at + 3] != _DATA_SECTION:
        return None
    if raw[at + 3] == _BINARY_8:
        start, size = at + 5, raw[at + 4]
    elif raw[at + 3] == _BINARY_32:
        start, size = at + 8, int.from_bytes(raw[at + 4 : at + 8], "big")
    else:
        return None
    return raw[start:] if start + size == len(raw) else None


def _as_json(value: object) -> bytes:
    return json.dumps(_plain(value), ensure_ascii=False).encode("utf-8", "replace")


def _plain(value: object) -> object:
    """A value of AMQP in JSON's few types. It nests no deeper than the decoder let it."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    items = getattr(value, "items", None)
    return [_plain(item) for item in items] if isinstance(items, list) else str(value)
