"""A message as its sender wrote it, with its sections located and the few fields read that the broker needs.

The bytes are never changed or re-encoded: the body is not even decoded. What the broker adds or alters lives in
an `Overlay` and in the record beside the message, and meets the bytes only in `rendering`. AMQP 1.0 §3.2.
"""

from __future__ import annotations

import struct
from typing import Final
from uuid import UUID

from polybus.amqp.codec import decode, encode_into, skip
from polybus.amqp.types import Symbol, Timestamp, UInt
from polybus.errors import ArgumentOutOfRange, ProtocolError
from polybus.limits import KEY_CHARACTERS, MESSAGE_SECTIONS

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

TTL_UNLIMITED: Final = 0xFFFFFFFF
"""The largest header.ttl; SDKs that want more than 49.7 days say the rest with two timestamps (§4.4)."""

_U32: Final = struct.Struct(">I")

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


def identifier_text(value: object) -> str | None:
    """The string form of a message id or correlation id, which may be a string, ulong, uuid or binary."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, UUID)):
        return str(value)
    return value.hex() if isinstance(value, bytes) else None


class Message:
    """The sender's bytes and where things are in them. Positions are 0 where a section is missing."""

    __slots__ = (
        "annotations_at",
        "application_at",
        "bare_at",
        "body_at",
        "durable",
        "message_id",
        "partition_key",
        "priority",
        "properties_at",
        "raw",
        "scheduled_ms",
        "session_id",
        "ttl_ms",
        "via_partition_key",
    )

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.annotations_at = 0
        self.bare_at = 0
        self.properties_at = 0
        self.application_at = 0
        self.body_at = 0
        self.durable = False
        self.priority = -1
        self.ttl_ms = -1
        self.scheduled_ms = 0
        self.message_id: str | None = None
        self.session_id: str | None = None
        self.partition_key: str | None = None
        self.via_partition_key: str | None = None
        self._locate()

    @property
    def size(self) -> int:
        return len(self.raw)

    def _locate(self) -> None:
        """Walks the sections in their prescribed order; each value is skipped over, only some are read."""
        raw = self.raw
        end = len(raw)
        pos = 0
        last = 0
        sections = 0
        while pos < end:
            sections += 1
            if sections > MESSAGE_SECTIONS:
                raise ProtocolError(
                    "amqp:decode-error", f"a message has more than {MESSAGE_SECTIONS} sections"
                )
            if pos + 3 < end and raw[pos] == 0 and raw[pos + 1] == 0x53:
                code = raw[pos + 2]
                value_at = pos + 3
            else:
                code, value_at = _descriptor(raw, pos)
            if code < last or (code == last and code not in (DATA, SEQUENCE)):
                raise ProtocolError("amqp:decode-error", "the sections of a message are out of order")
            if code >= PROPERTIES and self.bare_at == 0:
                self.bare_at = pos + 1  # stored one higher, so that 0 can mean "not seen"
            if code == HEADER:
                pos = self._read_header(value_at)
            elif code == MESSAGE_ANNOTATIONS:
                pos = self._read_annotations(value_at)
            elif code == PROPERTIES:
                pos = self._read_properties(value_at)
            else:
                if code == APPLICATION_PROPERTIES:
                    self.application_at = value_at
                elif self.body_at == 0 and DATA <= code <= VALUE:
                    self.body_at = pos
                pos = skip(raw, value_at)
            last = code
        self.bare_at = self.bare_at - 1 if self.bare_at else end

    def _read_header(self, at: int) -> int:
        value, pos = decode(self.raw, at)
        if not isinstance(value, list):
            raise ProtocolError("amqp:decode-error", "the header section is not a list")
        if value:
            self.durable = value[0] is True
        if len(value) > 1 and isinstance(value[1], int):
            self.priority = value[1]
        if len(value) > 2 and isinstance(value[2], int):
            self.ttl_ms = value[2]
        return pos

    def _read_annotations(self, at: int) -> int:
        value, pos = decode(self.raw, at)
        if not isinstance(value, dict):
            raise ProtocolError("amqp:decode-error", "the message-annotations section is not a map")
        self.annotations_at = at
        key = value.get(PARTITION_KEY)
        if isinstance(key, str):
            self.partition_key = _checked(key, "PartitionKey")
        via = value.get(VIA_PARTITION_KEY)
        if isinstance(via, str):
            self.via_partition_key = _checked(via, "ViaPartitionKey")
        scheduled = value.get(SCHEDULED_TIME)
        if isinstance(scheduled, int):
            self.scheduled_ms = max(int(scheduled), 0)
        return pos

    def _read_properties(self, at: int) -> int:
        raw = self.raw
        after = skip(raw, at)
        self.properties_at = at
        pos, count = list_start(raw, at)
        if count:
            first, pos = decode(raw, pos)
            text = identifier_text(first)
            if text is not None:
                self.message_id = _checked(text, "MessageId")
        if count > GROUP_ID:
            for _ in range(1, GROUP_ID):
                pos = pos + 1 if raw[pos] == 0x40 else skip(raw, pos)
            group, pos = decode(raw, pos)
            if isinstance(group, str):
                self.session_id = _checked(group, "SessionId")
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
        fields = list(value) if isinstance(value, list) else []
        return (fields + [None] * 13)[:13]

    def application_properties(self) -> dict[str, object]:
        """The sender's own properties, decoded."""
        if not self.application_at:
            return {}
        value, _ = decode(self.raw, self.application_at)
        if not isinstance(value, dict):
            raise ProtocolError("amqp:decode-error", "the application-properties section is not a map")
        return {str(name): item for name, item in value.items()}

    def annotations(self) -> dict[object, object]:
        if not self.annotations_at:
            return {}
        value, _ = decode(self.raw, self.annotations_at)
        return value if isinstance(value, dict) else {}

    def body(self) -> list[tuple[int, object]]:
        """The body's sections as (section code, decoded value); several only for data and sequence."""
        found: list[tuple[int, object]] = []
        pos = self.body_at if self.body_at or self.bare_at == 0 else len(self.raw)
        while pos < len(self.raw):
            code, value_at = _descriptor(self.raw, pos)
            value, pos = decode(self.raw, value_at)
            if DATA <= code <= VALUE:
                found.append((code, value))
        return found


def list_start(raw: bytes, at: int) -> tuple[int, int]:
    """Where the first item of a list begins, and how many items it has. The list's size was checked by skip."""
    code = raw[at]
    if code == 0xC0:
        return at + 3, raw[at + 2]
    if code == 0xD0:
        return at + 9, int(_U32.unpack_from(raw, at + 5)[0])
    if code == 0x45:
        return at + 1, 0
    raise ProtocolError("amqp:decode-error", "the properties section is not a list")


def _descriptor(raw: bytes, pos: int) -> tuple[int, int]:
    """A section's code where it is not in its usual three bytes; also the way to a clear error."""
    if raw[pos] != 0:
        raise ProtocolError("amqp:decode-error", "a message section does not begin with a descriptor")
    code, value_at = decode(raw, pos + 1)
    if not isinstance(code, int) or not HEADER <= code <= FOOTER or value_at >= len(raw):
        raise ProtocolError("amqp:decode-error", "a message section has an unknown descriptor or no value")
    return int(code), value_at


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
    out = bytearray()
    if ttl_ms is not None:
        out += b"\x00\x53\x70"
        encode_into(out, [None, None, UInt(min(ttl_ms, TTL_UNLIMITED)), None, None])
    annotations: dict[object, object] = {}
    if partition_key is not None:
        annotations[Symbol(PARTITION_KEY)] = partition_key
    if scheduled_ms is not None:
        annotations[Symbol(SCHEDULED_TIME)] = Timestamp(scheduled_ms)
    if annotations:
        out += b"\x00\x53\x72"
        encode_into(out, annotations)
    symbol = None if content_type is None else Symbol(content_type)
    fields: list[object] = [message_id, None, to, subject, reply_to, correlation_id, symbol]
    fields += [None, None, None, session_id, None, reply_to_session_id]
    if any(field is not None for field in fields):
        out += b"\x00\x53\x73"
        encode_into(out, fields)
    if application:
        out += b"\x00\x53\x74"
        encode_into(out, application)
    out += b"\x00\x53\x75"
    encode_into(out, body)
    return Message(bytes(out))
