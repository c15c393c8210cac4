"""A stored message as the headers and the body of an HTTP response (spec/http.md §3.2).

What a header cannot carry is left out: the body and the broker's own properties always get through.
"""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from uuid import UUID

from polybus.amqp.types import Timestamp
from polybus.gateway.http_header_names import is_custom, is_header_name, is_header_text
from polybus.gateway.http_properties import BROKER_PROPERTIES, INFINITE_SECONDS
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
from polybus.message.rendering import Marks, generated_id, merged_properties

DEFAULT_CONTENT_TYPE = "application/atom+xml;type=entry;charset=utf-8"
"""What the cloud answers for a message that has no content type."""
_DATA_SECTION = b"\x00\x53\x75"
_BINARY_8, _BINARY_32 = 0xA0, 0xB0
_LAST_MS = 253_402_300_799_000
"""The end of year 9999, the last that a date of HTTP can say."""

_STATES = ("Active", "Deferred", "Scheduled")


def properties_of(message: Message, marks: Marks) -> list[object]:
    """The properties section as a receiver sees it: an id is always there."""
    fields = message.properties()
    if marks.overlay is not None:
        for position, value in marks.overlay.fields.items():
            fields[position] = value
    if fields[MESSAGE_ID] is None:
        fields[MESSAGE_ID] = generated_id(marks)
    return fields


def message_headers(
    message: Message, marks: Marks, *, expires_ms: int, delivery_count: int, token: UUID | None
) -> list[tuple[str, str]]:
    """The headers of a response that carries a message."""
    fields = properties_of(message, marks)
    content_type = identifier_text(fields[CONTENT_TYPE])
    if content_type is None or not is_header_text(content_type):
        content_type = DEFAULT_CONTENT_TYPE
    shown = _broker_properties(message, marks, fields, expires_ms)
    shown["DeliveryCount"] = delivery_count
    if token is not None:
        shown["LockToken"] = str(token)
        shown["LockedUntilUtc"] = http_date(marks.locked_until_ms)
    text = json.dumps(dict(sorted(shown.items())), separators=(",", ":"))
    headers = [("Content-Type", content_type), (BROKER_PROPERTIES, text)]
    return headers + _custom_headers(merged_properties(message, marks.overlay))


def _broker_properties(message: Message, marks: Marks, fields: list[object], expires_ms: int) -> dict[str, object]:
    shown: dict[str, object] = {
        "MessageId": identifier_text(fields[MESSAGE_ID]),
        "CorrelationId": identifier_text(fields[CORRELATION_ID]),
        "SessionId": identifier_text(fields[GROUP_ID]),
        "ReplyToSessionId": identifier_text(fields[REPLY_TO_GROUP_ID]),
        "Label": identifier_text(fields[SUBJECT]),
        "To": identifier_text(fields[TO]),
        "ReplyTo": identifier_text(fields[REPLY_TO]),
        "PartitionKey": message.partition_key,
        "ViaPartitionKey": message.via_partition_key,
        "DeadLetterSource": None if marks.overlay is None else marks.overlay.dead_letter_source,
    }
    shown = {name: value for name, value in shown.items() if value is not None}
    if message.scheduled_ms:
        shown["ScheduledEnqueueTimeUtc"] = http_date(message.scheduled_ms)
    shown["EnqueuedSequenceNumber"] = marks.original_sequence
    shown["EnqueuedTimeUtc"] = http_date(marks.enqueued_ms)
    shown["SequenceNumber"] = marks.sequence
    shown["State"] = _STATES[marks.state]
    shown["TimeToLive"] = (expires_ms - marks.enqueued_ms) / 1000 if expires_ms else INFINITE_SECONDS
    return shown


def http_date(wall_ms: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=min(wall_ms, _LAST_MS))
    return format_datetime(moment, usegmt=True)


def _custom_headers(properties: dict[str, object]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in properties.items():
        text = _custom_text(value)
        if text is not None and is_header_name(name) and is_custom(name) and is_header_text(text):
            found.append((name, text))
    return found


def _custom_text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Timestamp):
        return f'"{http_date(value)}"' if value >= 0 else None
    if isinstance(value, str | UUID):
        escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, int | float | Decimal):
        return str(value)
    return None


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
