"""A message as the rules see it: system and user properties by name, in the rules' own types."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

from polybus.amqp.types import Timestamp
from polybus.message.message import (
    CONTENT_TYPE,
    CORRELATION_ID,
    REPLY_TO,
    REPLY_TO_GROUP_ID,
    SUBJECT,
    TO,
    Message,
    identifier_text,
)
from polybus.message.rendering import Marks, merged_properties

RuleValue = None | bool | int | float | Decimal | str | bytes | UUID | datetime | timedelta

_FIELDS: Final = {
    "correlationid": CORRELATION_ID,
    "label": SUBJECT,
    "subject": SUBJECT,
    "to": TO,
    "replyto": REPLY_TO,
    "replytosessionid": REPLY_TO_GROUP_ID,
    "contenttype": CONTENT_TYPE,
}
_STATES: Final = ("Active", "Deferred", "Scheduled")


def instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def rule_value(value: object) -> RuleValue:
    """An AMQP value in the rules' types; what they cannot compare (lists, maps) becomes None."""
    if isinstance(value, Timestamp):
        return instant(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    return value if isinstance(value, (float, bytes, UUID, Decimal)) else None


class View:
    """Reads lazily: a topic whose rules look at nothing decodes nothing."""

    __slots__ = ("_fields", "_marks", "_message", "_user")

    def __init__(self, message: Message, marks: Marks) -> None:
        self._message = message
        self._marks = marks
        self._fields: list[object] | None = None
        self._user: dict[str, RuleValue] | None = None

    def user(self) -> dict[str, RuleValue]:
        if self._user is None:
            merged = merged_properties(self._message, self._marks.overlay)
            self._user = {name: rule_value(value) for name, value in merged.items()}
        return self._user

    def system(self, name: str) -> RuleValue:
        position = _FIELDS.get(name)
        if position is not None:
            return identifier_text(self._field(position))
        return self._other(name)

    def _field(self, position: int) -> object:
        if self._fields is None:
            self._fields = self._message.properties()
            overlay = self._marks.overlay
            if overlay is not None:
                for changed, value in overlay.fields.items():
                    self._fields[changed] = value
        return self._fields[position]

    def _other(self, name: str) -> RuleValue:
        message, marks = self._message, self._marks
        if name == "messageid":
            return identifier_text(self._field(0))
        if name == "sessionid":
            return identifier_text(self._field(10))
        if name == "partitionkey":
            return message.partition_key if message.partition_key is not None else message.session_id
        if name == "viapartitionkey":
            return message.via_partition_key
        if name == "timetolive":
            return None if message.ttl_ms < 0 else timedelta(milliseconds=message.ttl_ms)
        if name == "scheduledenqueuetimeutc":
            return instant(message.scheduled_ms) if message.scheduled_ms else None
        if name == "enqueuedtimeutc":
            return instant(marks.enqueued_ms)
        if name == "expiresatutc":
            return None if message.ttl_ms < 0 else instant(marks.enqueued_ms + message.ttl_ms)
        if name == "sequencenumber":
            return marks.sequence
        if name == "enqueuedsequencenumber":
            return marks.original_sequence
        if name == "deliverycount":
            return marks.delivery_count
        if name == "size":
            return message.size
        if name == "state":
            return _STATES[marks.state]
        if name == "deadlettersource":
            return None if marks.overlay is None else marks.overlay.dead_letter_source
        return None
