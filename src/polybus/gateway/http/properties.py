"""What a sender says about a message over HTTP: `BrokerProperties` in JSON, custom properties as headers.

docs/protocol/rest.md#mapping.

Types of custom properties are told by how they are written: in quotes a string or a date, else a truth value or a
number. Clients of all ages write the same thing in many ways, so reading is lenient where the meaning is plain.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from uuid import uuid4

from polybus import limits
from polybus.amqp.types import Timestamp
from polybus.errors import ArgumentError
from polybus.gateway.durations import ms_from_date_time
from polybus.gateway.http.header_names import is_custom
from polybus.limits import INFINITE_MS
from polybus.message.message import Message, build

BROKER_PROPERTIES = "BrokerProperties"
INFINITE_SECONDS = 922337203685.47754
"""How the cloud writes a time to live without end."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?")
_HTTP_DATE = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*, [0-9]{1,2}[ -][A-Z][a-z]{2}[ -][0-9]{2,4} [0-9:]{8} GMT"
)
_TIME_SPAN = re.compile(r"(?:(\d{1,8})\.)?(\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,7}))?")
_TEXTS = {
    "messageid": "message_id",
    "correlationid": "correlation_id",
    "sessionid": "session_id",
    "replytosessionid": "reply_to_session_id",
    "label": "subject",
    "to": "to",
    "replyto": "reply_to",
    "partitionkey": "partition_key",
}


def message_from(
    body: bytes, broker_properties: object, application: dict[str, object], content_type: str | None
) -> Message:
    """A message as a sender meant it; ArgumentError where a property cannot be read."""
    fields = _fields(broker_properties)
    fields.setdefault("message_id", uuid4().hex)
    try:
        return build(body, content_type=content_type, application=application, **fields)
    except UnicodeError:
        raise ArgumentError("A property of the message has a character that cannot be encoded.") from None


def broker_properties(header: str | None) -> Any:
    """The JSON in a `BrokerProperties` header; None where there is none."""
    return None if header is None else parse_json(_decoded(header.encode("latin-1")), BROKER_PROPERTIES)


def parse_json(text: str | bytes, what: str) -> Any:
    """A JSON value from a client; ArgumentError for what is not one, nests too deep or has too many values to be read."""
    if len(text) > limits.JSON_DENSE_BYTES and _separators(text) > limits.JSON_VALUES:
        raise ArgumentError(f"The {what} has too many values; {limits.JSON_VALUES} are allowed.")
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise ArgumentError(f"The {what} cannot be read as JSON.") from None


def _separators(text: str | bytes) -> int:
    return text.count(",") if isinstance(text, str) else text.count(b",")


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _fields(given: object) -> dict[str, Any]:
    """The arguments for a message from its broker properties; unknown and read-only keys are ignored."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ArgumentError(f"The {BROKER_PROPERTIES} must be a JSON object.")
    fields: dict[str, Any] = {}
    for name, value in given.items():
        folded = name.lower()
        if value is None:
            continue
        if folded in _TEXTS:
            fields[_TEXTS[folded]] = _text(name, value)
        elif folded == "timetolive":
            fields["ttl_ms"] = _time_to_live(name, value)
        elif folded == "timetolivetimespan":
            fields.setdefault("ttl_ms", _time_span(name, value))
        elif folded == "scheduledenqueuetimeutc":
            fields["scheduled_ms"] = _moment(name, value)
    return fields


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise _unreadable(name)


def _time_to_live(name: str, value: object) -> int | None:
    """Milliseconds; the oldest Python client writes every value as a string."""
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0 or not math.isfinite(value):
        raise _unreadable(name)
    ms = round(min(value, INFINITE_SECONDS) * 1000)
    return None if ms >= INFINITE_MS else max(ms, 1)


def _time_span(name: str, value: object) -> int | None:
    match = _TIME_SPAN.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise _unreadable(name)
    days, hours, minutes, seconds, fraction = match.groups(default="0")
    whole = timedelta(days=int(days), hours=int(hours), minutes=int(minutes), seconds=int(seconds))
    ms = whole // timedelta(milliseconds=1) + int(fraction.ljust(7, "0")) // 10_000
    if ms <= 0:
        raise _unreadable(name)
    return None if ms >= INFINITE_MS else ms


def _moment(name: str, value: object) -> int:
    if not isinstance(value, str):
        raise _unreadable(name)
    moment = _http_date(value.strip())
    if moment is not None:
        return moment
    try:
        return ms_from_date_time(value)
    except ArgumentError:
        raise _unreadable(name) from None


def _unreadable(name: str) -> ArgumentError:
    return ArgumentError(f"The value of '{name[:60]}' in the {BROKER_PROPERTIES} cannot be read.")


def _http_date(text: str) -> int | None:
    if not _HTTP_DATE.fullmatch(text):
        return None
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def custom_properties(headers: list[tuple[str, bytes]], *, strict: bool = False) -> dict[str, object]:
    """A message's own properties from the request's headers, typed by how they are written.

    The cloud's documents say that a value which is neither in quotes nor a number is refused, and show one as an
    example; only `strict` refuses it.
    """
    found: dict[str, object] = {}
    seen: dict[str, None] = {}
    for name, raw in headers:
        if is_custom(name) and name.lower() not in seen:
            seen[name.lower()] = None
            found[name] = _custom_value(name, _decoded(raw).strip(), strict)
    return found


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _custom_value(name: str, text: str, strict: bool) -> object:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        inside = text[1:-1]
        moment = _http_date(inside)
        return _unescaped(inside) if moment is None else Timestamp(moment)
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text) and -(1 << 63) <= int(text) < 1 << 63:
        return int(text)
    if _NUMBER.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    if strict:
        raise ArgumentError(f"The value of the property '{name[:60]}' must be in quotes, a number, true or false.")
    return text


def _unescaped(text: str) -> str:
    return text.replace("\\\\", "\x00").replace('\\"', '"').replace("\x00", "\\") if "\\" in text else text


def json_properties(given: object) -> dict[str, object]:
    """The `UserProperties` of a message in a JSON batch."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ArgumentError("The UserProperties must be a JSON object.")
    for name, value in given.items():
        plain = isinstance(value, str | bool | float) or value is None
        if not plain and not (isinstance(value, int) and -(1 << 63) <= value < 1 << 63):
            raise ArgumentError(f"The value of the property '{name[:60]}' must be a string, a number, true or false.")
    return dict(given)
