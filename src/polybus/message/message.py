"""A message as its sender wrote it, with its sections located and the few fields read that the broker needs.

The bytes are never changed or re-encoded: the body is not even decoded. What the broker adds or alters lives in
an `Overlay` and in the record beside the message, and meets the bytes only in `rendering`. Whatever the broker may
have to decode later is decoded once when the message comes in, so that no stored message can fail on its way out.
AMQP 1.0 §3.2.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from mypy_extensions import i64

from polybus.amqp.codec import decode, decode_error, decode_within, encode_into, skip, skip_within, u32_at
from polybus.amqp.types import Symbol, Timestamp, UInt
from polybus.errors import ArgumentOutOfRange
from polybus.limits import KEY_CHARACTERS, MESSAGE_SECTIONS
from polybus.message.sections import check_end, descriptor, list_bounds

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

PARTITION_KEY: Final = "x-opt-partition-key"
VIA_PARTITION_KEY: Final = "x-opt-via-partition-key"
SCHEDULED_TIME: Final = "x-opt-scheduled-enqueue-time"
DELIVERY_TIME: Final = "x-opt-delivery-time"
"""JMS's word for the same: not to be delivered before (docs/protocol/amqp.md#jms)."""

TTL_UNLIMITED: Final = 0xFFFFFFFF
"""The largest header.ttl; SDKs that want more than 49.7 days say the rest with two timestamps.

docs/protocol/amqp.md#sections.
"""
TIME_MAX_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: what the SDKs can express, and later than anything need be."""

# Positions in the properties list (AMQP 1.0 §3.2.4).
MESSAGE_ID: Final = 0
TO: Final = 2
SUBJECT: Final = 3
REPLY_TO: Final = 4
CORRELATION_ID: Final = 5
CONTENT_TYPE: Final = 6
ABSOLUTE_EXPIRY: Final = 8
CREATION_TIME: Final = 9
GROUP_ID: Final = 10
REPLY_TO_GROUP_ID: Final = 12
PROPERTY_FIELDS: Final = 13
HEADER_FIELDS: Final = 5

_ONLY_DURABLE: Final = 0xC002_0141
"""A header that says nothing else, as most senders write it."""
_LISTS: Final = b"\x45\xc0\xd0"
_MAPS: Final = b"\xc1\xd1"
_KINDS: Final = {
    DELIVERY_ANNOTATIONS: _MAPS,
    APPLICATION_PROPERTIES: _MAPS,
    DATA: b"\xa0\xb0",
    SEQUENCE: _LISTS,
    FOOTER: _MAPS,
}
"""The constructors that a section's value may have, for the sections that are only stepped over."""


def identifier_text(value: object) -> str | None:
    """The string form of a message id or correlation id, which may be a string, ulong, uuid or binary."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, UUID)):
        return str(value)
    return value.hex() if isinstance(value, bytes) else None


class Message:
    """The sender's bytes and where things are in them. Positions are 0 where a section is missing.

    `trusted` bytes were checked when they came in and are read back from a store.
    """

    __slots__ = (
        "annotations_at",
        "application_at",
        "bare_at",
        "body_at",
        "delivery_annotations_at",
        "durable",
        "message_id",
        "partition_key",
        "priority",
        "properties_at",
        "raw",
        "scheduled_ms",
        "session_id",
        "size",
        "trusted",
        "ttl_ms",
        "via_partition_key",
    )

    def __init__(self, raw: bytes, trusted: bool = False) -> None:
        self.raw = raw
        self.size = len(raw)
        self.trusted = trusted
        self.annotations_at = 0
        self.delivery_annotations_at = 0
        self.bare_at = -1
        self.properties_at = 0
        self.application_at = 0
        self.body_at = -1
        """Where the body's first section begins; the end of the message where there is none."""
        self.durable = False
        self.priority = -1
        self.ttl_ms = -1
        self.scheduled_ms = 0
        self.message_id: str | None = None
        self.session_id: str | None = None
        self.partition_key: str | None = None
        self.via_partition_key: str | None = None
        self._locate()

    def _locate(self) -> None:
        """Walks the sections in their prescribed order; each value is stepped over, only some are read."""
        raw = self.raw
        end: i64 = self.size
        pos: i64 = 0
        last: i64 = 0
        sections: i64 = 0
        code: i64
        value_at: i64
        while pos < end:
            if pos + 3 < end and raw[pos] == 0 and raw[pos + 1] == 0x53:
                code = raw[pos + 2]
                value_at = pos + 3
            else:
                code, value_at = descriptor(raw, pos)
            if code <= last and (code != last or code not in (DATA, SEQUENCE)):
                raise decode_error("the sections of a message are out of order")
            sections += 1
            if sections > MESSAGE_SECTIONS:
                raise decode_error(f"a message has more than {MESSAGE_SECTIONS} sections")
            if code >= PROPERTIES:
                if self.bare_at < 0:
                    self.bare_at = pos
                if code >= DATA and self.body_at < 0:
                    self.body_at = pos
            last = code
            pos = self._section(code, value_at)
        if self.bare_at < 0:
            self.bare_at = end
        if self.body_at < 0:
            self.body_at = end

    def _section(self, code: i64, at: i64) -> i64:
        """Reads one section's value as far as it matters; gives the position after it."""
        raw = self.raw
        if code == DATA and raw[at] == 0xB0 and at + 5 <= self.size:
            after = at + 5 + u32_at(raw, at + 1)
            if after > self.size:
                raise decode_error("the value is cut short")
            return after
        if code == HEADER:
            return self._read_header(at)
        if code == PROPERTIES:
            return self._read_properties(at)
        if code == MESSAGE_ANNOTATIONS:
            return self._read_annotations(at)
        if not HEADER <= code <= FOOTER or (code != VALUE and raw[at] not in _KINDS[code]):
            raise decode_error("a message section is unknown, or its value is of another type than its own")
        if code in (APPLICATION_PROPERTIES, DELIVERY_ANNOTATIONS):
            if code == APPLICATION_PROPERTIES:
                self.application_at = at
            else:
                self.delivery_annotations_at = at
            if not self.trusted:
                return decode(raw, at)[1]
        return skip(raw, at)

    def _read_header(self, at: int) -> int:
        raw = self.raw
        if at + 4 <= self.size and u32_at(raw, at) == _ONLY_DURABLE:
            self.durable = True
            return at + 4
        after, pos, count = list_bounds(raw, at, HEADER_FIELDS)
        for field in range(count):
            if pos < after and raw[pos] == 0x40:
                pos += 1
                continue
            value, pos = decode_within(raw, pos, after)
            if field == 0:
                self.durable = value is True
            elif isinstance(value, int) and value >= 0:
                if field == 1 and value <= 255:
                    self.priority = int(value)
                elif field == 2:
                    self.ttl_ms = int(value)
        check_end(pos, after)
        return after

    def _read_annotations(self, at: int) -> int:
        value, pos = decode(self.raw, at)
        if not isinstance(value, dict):
            raise decode_error("the message-annotations section is not a map")
        self.annotations_at = at
        key = value.get(PARTITION_KEY)
        if isinstance(key, str):
            self.partition_key = _checked(str(key), "PartitionKey")
        via = value.get(VIA_PARTITION_KEY)
        if isinstance(via, str):
            self.via_partition_key = _checked(str(via), "ViaPartitionKey")
        scheduled = value.get(SCHEDULED_TIME, value.get(DELIVERY_TIME))
        if isinstance(scheduled, int):
            self.scheduled_ms = min(max(int(scheduled), 0), TIME_MAX_MS)
        return pos

    def _read_properties(self, at: int) -> int:
        raw = self.raw
        after, pos, count = list_bounds(raw, at, PROPERTY_FIELDS)
        self.properties_at = at
        for field in range(count):
            if pos < after and raw[pos] == 0x40:
                pos += 1
            elif field == MESSAGE_ID:
                value, pos = decode_within(raw, pos, after)
                text = identifier_text(value)
                self.message_id = None if text is None else _checked(str(text), "MessageId")
            elif field == GROUP_ID:
                value, pos = decode_within(raw, pos, after)
                if isinstance(value, str):
                    self.session_id = _checked(str(value), "SessionId")
            elif self.trusted:
                pos = skip_within(raw, pos, after)
            else:
                pos = _simple(raw, pos, after)
        check_end(pos, after)
        if self.ttl_ms == TTL_UNLIMITED:
            self._read_long_ttl()
        return after

    def _read_long_ttl(self) -> None:
        fields = self.properties()
        created, expires = fields[CREATION_TIME], fields[ABSOLUTE_EXPIRY]
        if isinstance(created, Timestamp) and isinstance(expires, Timestamp) and expires > created:
            self.ttl_ms = expires - created

    def properties(self) -> list[object]:
        """The thirteen fields of the properties section, None where the sender gave none."""
        value: object = []
        if self.properties_at:
            value, _ = decode(self.raw, self.properties_at)
        fields = value if isinstance(value, list) else []
        return fields + [None] * (PROPERTY_FIELDS - len(fields))

    def application_properties(self) -> dict[str, object]:
        """The sender's own properties, decoded."""
        if not self.application_at:
            return {}
        value, _ = decode(self.raw, self.application_at)
        return {str(name): item for name, item in value.items()} if isinstance(value, dict) else {}

    def annotations(self) -> dict[object, object]:
        if not self.annotations_at:
            return {}
        value, _ = decode(self.raw, self.annotations_at)
        return value if isinstance(value, dict) else {}

    def body(self) -> list[tuple[int, object]]:
        """The body's sections as (section code, decoded value); several only for data and sequence."""
        found: list[tuple[int, object]] = []
        pos = self.body_at
        while pos < self.size:
            code, value_at = descriptor(self.raw, pos)
            value, pos = decode(self.raw, value_at)
            if code != FOOTER:
                found.append((code, value))
        return found


def _simple(raw: bytes, pos: int, after: int) -> int:
    """The position after a field, which is of a primitive type and can be decoded."""
    if pos < after and (raw[pos] == 0 or raw[pos] >= 0xC0):
        raise decode_error("a field of the properties section is not of a primitive type")
    return decode_within(raw, pos, after)[1]


def _checked(key: str, name: str) -> str:
    if len(key) > KEY_CHARACTERS:
        raise ArgumentOutOfRange(f"The {name} exceeds the limit of {KEY_CHARACTERS} characters.")
    return key


def build(
    body: bytes,
    *,
    message_id: str | None = None,
    session_id: str | None = None,
    partition_key: str | None = None,
    subject: str | None = None,
    correlation_id: str | None = None,
    content_type: str | None = None,
    to: str | None = None,
    reply_to: str | None = None,
    reply_to_session_id: str | None = None,
    ttl_ms: int | None = None,
    scheduled_ms: int | None = None,
    application: dict[str, object] | None = None,
) -> Message:
    """A message made by the bus itself (HTTP sends, staged rows, tests), encoded as a sender would."""
    annotations: dict[object, object] = {}
    if partition_key is not None:
        annotations[Symbol(PARTITION_KEY)] = partition_key
    if scheduled_ms is not None:
        annotations[Symbol(SCHEDULED_TIME)] = Timestamp(scheduled_ms)
    symbol = None if content_type is None else Symbol(content_type)
    fields: list[object] = [message_id, None, to, subject, reply_to, correlation_id, symbol]
    fields += [None, None, None, session_id, None, reply_to_session_id]
    out = bytearray()
    if ttl_ms is not None:
        _append(out, HEADER, [None, None, UInt(min(ttl_ms, TTL_UNLIMITED)), None, None])
        if ttl_ms > TTL_UNLIMITED:
            fields[CREATION_TIME], fields[ABSOLUTE_EXPIRY] = Timestamp(0), Timestamp(ttl_ms)
    if annotations:
        _append(out, MESSAGE_ANNOTATIONS, annotations)
    if any(field is not None for field in fields):
        _append(out, PROPERTIES, fields)
    if application:
        _append(out, APPLICATION_PROPERTIES, application)
    _append(out, DATA, body)
    return Message(bytes(out))


def with_body(message: Message, body: bytes) -> Message:
    """The same message with other bytes in it; a footer, which would speak of the old ones, is left out."""
    out = bytearray(message.raw[: message.body_at])
    _append(out, DATA, body)
    return Message(bytes(out), message.trusted)


def with_scheduled_time(message: Message, scheduled_ms: int) -> Message:
    """The same message, to be enqueued at another time; it must have one already."""
    annotations = message.annotations()
    annotations[Symbol(SCHEDULED_TIME)] = Timestamp(scheduled_ms)
    out = bytearray(message.raw[: message.annotations_at])
    encode_into(out, annotations)
    out += message.raw[skip(message.raw, message.annotations_at) :]
    return Message(bytes(out), message.trusted)


def _append(out: bytearray, code: int, value: object) -> None:
    out += bytes((0x00, 0x53, code))
    encode_into(out, value)
