"""A message as the rules see it: system and user properties by name, in the rules' own types."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

from polybus.amqp.types import Decimal32, Decimal64, Decimal128, Timestamp
from polybus.message.decimals import decimal_of
from polybus.message.message import (
    CONTENT_TYPE,
    CORRELATION_ID,
    CREATION_TIME,
    GROUP_ID,
    MESSAGE_ID,
    REPLY_TO,
    REPLY_TO_GROUP_ID,
    SUBJECT,
    TIME_MAX_MS,
    TO,
    Message,
    identifier_text,
)
from polybus.message.rendering import Marks, merged_properties

RuleValue = None | bool | int | float | Decimal | str | bytes | UUID | datetime | timedelta

_FIELDS: Final = {
    "messageid": MESSAGE_ID,
    "correlationid": CORRELATION_ID,
    "label": SUBJECT,
    "subject": SUBJECT,
    "to": TO,
    "replyto": REPLY_TO,
    "sessionid": GROUP_ID,
    "replytosessionid": REPLY_TO_GROUP_ID,
    "contenttype": CONTENT_TYPE,
}
_STATES: Final = ("Active", "Deferred", "Scheduled")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_MIN_MS: Final = -62_135_596_800_000
"""The first millisecond of the year 1, where the SDKs' clocks begin."""
_INT64: Final = 1 << 63
_USUAL_PRIORITY: Final = 4
"""What a message has that says nothing (AMQP 1.0 §3.2.1)."""


def instant(ms: int) -> datetime:
    """A time as the rules compare it; what no calendar of the SDKs can express is its nearest end."""
    return _EPOCH + timedelta(milliseconds=min(max(int(ms), _TIME_MIN_MS), TIME_MAX_MS))


def rule_value(value: object) -> RuleValue:
    """An AMQP value in the rules' types; what they cannot compare (lists, maps) becomes None."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Timestamp):
        return instant(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        number = value + 0  # a plain int; compiled code keeps a large number's own class when int() is asked
        return number if -_INT64 <= number < _INT64 else Decimal(number)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, (Decimal32, Decimal64, Decimal128)):
        return decimal_of(value)
    return value if isinstance(value, (bytes, UUID)) else None


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
            text = identifier_text(self._field(position))
            return None if text is None else str(text)
        return self._time(name) if name in _TIMES else self._other(name)

    def _field(self, position: int) -> object:
        if self._fields is None:
            self._fields = self._message.properties()
            overlay = self._marks.overlay
            if overlay is not None:
                for changed, value in overlay.fields.items():
                    self._fields[changed] = value
        return self._fields[position]

    def _ttl_ms(self) -> int:
        overlay = self._marks.overlay
        return overlay.ttl_ms if overlay is not None and overlay.ttl_ms >= 0 else self._message.ttl_ms

    def _time(self, name: str) -> RuleValue:
        ttl_ms = self._ttl_ms()
        if name == "timetolive":
            return None if ttl_ms < 0 else timedelta(milliseconds=min(ttl_ms, TIME_MAX_MS))
        if name == "expiresatutc":
            return None if ttl_ms < 0 else instant(self._marks.enqueued_ms + ttl_ms)
        if name == "enqueuedtimeutc":
            return instant(self._marks.enqueued_ms)
        return instant(self._message.scheduled_ms) if self._message.scheduled_ms else None

    def _other(self, name: str) -> RuleValue:
        message, marks = self._message, self._marks
        if name == "partitionkey":
            return message.partition_key if message.partition_key is not None else message.session_id
        if name == "viapartitionkey":
            return message.via_partition_key
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
        return self._of_jms(name)

    def _of_jms(self, name: str) -> RuleValue:
        """Header fields that only JMS's selectors ask for, in JMS's own terms (docs/protocol/rules.md#selectors)."""
        message = self._message
        if name == "jmspriority":
            return message.priority if message.priority >= 0 else _USUAL_PRIORITY
        if name == "jmsdeliverymode":
            return "PERSISTENT" if message.durable else "NON_PERSISTENT"
        if name == "jmstimestamp":
            created = self._field(CREATION_TIME)
            return int(created) if isinstance(created, int) else None
        return None


_TIMES: Final = ("timetolive", "expiresatutc", "enqueuedtimeutc", "scheduledenqueuetimeutc")
