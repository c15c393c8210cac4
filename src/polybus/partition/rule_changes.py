"""What a rule's action changes, laid over the copy it was meant for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from polybus.amqp.types import Symbol, Timestamp
from polybus.message.message import (
    CONTENT_TYPE,
    CORRELATION_ID,
    GROUP_ID,
    MESSAGE_ID,
    REPLY_TO,
    REPLY_TO_GROUP_ID,
    SUBJECT,
    TO,
)
from polybus.message.overlay import NO_TTL, REMOVED, Overlay
from polybus.rules.actions import PropertyChange, RemovedValue

_FIELDS: Final = {
    "messageid": MESSAGE_ID,
    "to": TO,
    "label": SUBJECT,
    "subject": SUBJECT,
    "replyto": REPLY_TO,
    "correlationid": CORRELATION_ID,
    "contenttype": CONTENT_TYPE,
    "sessionid": GROUP_ID,
    "replytosessionid": REPLY_TO_GROUP_ID,
}

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def lay_over(overlay: Overlay, changes: list[PropertyChange]) -> None:
    for change in changes:
        value = wire_value(change.value)
        if change.scope == "user":
            overlay.application[change.name] = value
        elif change.name in _FIELDS:
            overlay.fields[_FIELDS[change.name]] = _field_value(change.name, value)
        elif change.name == "timetolive":
            overlay.ttl_ms = NO_TTL if value is REMOVED else max(_span_ms(change.value), 0)


def wire_value(value: object) -> object:
    """A rule's value in the types that travel."""
    if isinstance(value, RemovedValue):
        return REMOVED
    if isinstance(value, datetime):
        return Timestamp((value - _EPOCH) // _MILLISECOND)
    if isinstance(value, timedelta):
        return _span_ms(value)
    if isinstance(value, Decimal):
        return float(value)
    return value


def _span_ms(value: object) -> int:
    return value // _MILLISECOND if isinstance(value, timedelta) else 0


def _field_value(name: str, value: object) -> object:
    if value is REMOVED or value is None:
        return None
    return Symbol(str(value)) if name == "contenttype" else str(value)
