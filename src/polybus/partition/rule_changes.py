"""What a rule's action changes, laid over the copy it was meant for."""

from __future__ import annotations

from datetime import datetime, timedelta
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
from polybus.message.overlay import REMOVED, Overlay
from polybus.rules.actions import Change, Removed

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


def lay_over(overlay: Overlay, changes: list[Change]) -> None:
    for change in changes:
        value = wire_value(change.value)
        if change.scope == "user":
            overlay.application[change.name] = value
        elif change.name in _FIELDS:
            overlay.fields[_FIELDS[change.name]] = _field_value(change.name, value)
        elif change.name == "timetolive" and isinstance(change.value, timedelta):
            overlay.ttl_ms = int(change.value.total_seconds() * 1000)


def wire_value(value: object) -> object:
    """A rule's value in the types that travel."""
    if isinstance(value, Removed):
        return REMOVED
    if isinstance(value, datetime):
        return Timestamp(int(value.timestamp() * 1000))
    if isinstance(value, timedelta):
        return int(value.total_seconds() * 1000)
    if isinstance(value, Decimal):
        return float(value)
    return value


def _field_value(name: str, value: object) -> object:
    if value is REMOVED or value is None:
        return None
    return Symbol(str(value)) if name == "contenttype" else str(value)
