"""A stored message as the headers and the body of an HTTP response (docs/protocol/rest.md#mapping).

What a header cannot carry is left out: the body and the broker's own properties always get through.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from uuid import UUID

from polybus.amqp.types import Timestamp
from polybus.gateway.http.header_names import is_custom, is_header_name, is_header_text
from polybus.gateway.http.properties import BROKER_PROPERTIES, INFINITE_SECONDS
from polybus.message.columns import properties_of
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
    identifier_text,
)
from polybus.message.rendering import Marks, merged_properties, partition_key_of

DEFAULT_CONTENT_TYPE = "application/atom+xml;type=entry;charset=utf-8"
"""What the cloud answers for a message that has no content type."""
_LAST_MS = 253_402_300_799_000
"""The end of year 9999, the last that a date of HTTP can say."""

_STATES = ("Active", "Deferred", "Scheduled")


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
        "PartitionKey": partition_key_of(message, marks.overlay),
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
