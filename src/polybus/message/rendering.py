"""A stored message as bytes for a receiver: fresh header and annotations, then the sender's own bytes.

The types of the broker's annotations are exact, for the SDKs cast without asking (spec/amqp.md §4.6).
"""

from __future__ import annotations

import struct
from typing import Final

from polybus.amqp.codec import encode, encode_into, skip
from polybus.amqp.types import Int, Symbol, Timestamp, UByte, UInt
from polybus.message.message import (
    MESSAGE_ID,
    PARTITION_KEY,
    SCHEDULED_TIME,
    VIA_PARTITION_KEY,
    Message,
)
from polybus.message.overlay import REMOVED, Overlay

BROKER_OWNED: Final = frozenset(
    (
        "x-opt-sequence-number",
        "x-opt-enqueued-time",
        "x-opt-locked-until",
        "x-opt-message-state",
        "x-opt-enqueue-sequence-number",
        "x-opt-deadletter-source",
        "x-opt-lock-token",
        "x-opt-partition-id",
        "x-opt-offset",
    )
)
"""Clients send received messages again with these in them; ours are the only ones that go out."""

STATE_ACTIVE: Final = 0
STATE_DEFERRED: Final = 1
STATE_SCHEDULED: Final = 2


def _key(name: str) -> bytes:
    return encode(Symbol(name))


_SEQUENCE: Final = _key("x-opt-sequence-number") + b"\x81"
_ENQUEUED: Final = _key("x-opt-enqueued-time") + b"\x83"
_ORIGINAL: Final = _key("x-opt-enqueue-sequence-number") + b"\x81"
_LOCKED: Final = _key("x-opt-locked-until") + b"\x83"
_STATE: Final = _key("x-opt-message-state")
_SOURCE: Final = _key("x-opt-deadletter-source")
_LONG: Final = struct.Struct(">q")
_HEADER_PLAIN: Final = struct.Struct(">7sI")
_HEADER_START: Final = b"\x00\x53\x70\xc0"
_ANNOTATIONS_8: Final = b"\x00\x53\x72\xc1"
_ANNOTATIONS_32: Final = b"\x00\x53\x72\xd1"
_SIZES: Final = struct.Struct(">II")
_LOCK_TOKEN_START: Final = b"\x00\x53\x71" + encode({Symbol("x-opt-lock-token"): None})[:-1]


class Marks:
    """What the broker says of a message when it goes out."""

    __slots__ = (
        "delivery_count",
        "enqueued_ms",
        "lock_token",
        "locked_until_ms",
        "original_sequence",
        "overlay",
        "sequence",
        "state",
    )

    def __init__(
        self,
        sequence: int,
        enqueued_ms: int,
        original_sequence: int = 0,
        delivery_count: int = 0,
        state: int = STATE_ACTIVE,
        locked_until_ms: int = 0,
        overlay: Overlay | None = None,
        lock_token: bytes | None = None,
    ) -> None:
        self.sequence = sequence
        self.enqueued_ms = enqueued_ms
        self.original_sequence = original_sequence
        self.delivery_count = delivery_count
        self.state = state
        self.locked_until_ms = locked_until_ms
        self.overlay = overlay
        self.lock_token = lock_token
        """Given only where the token has no delivery tag to travel in (spec/amqp.md §4.2)."""


def render(message: Message, marks: Marks) -> list[bytes]:
    """The parts of the encoded message, ready to be written one after the other."""
    parts = [_header(message, marks)]
    if marks.lock_token is not None:
        parts.append(_delivery_annotations(marks.lock_token))
    parts.append(_annotations(message, marks))
    overlay = marks.overlay
    changed = overlay is not None and (overlay.application or overlay.fields)
    if message.message_id is not None and not changed:
        parts.append(message.raw[message.bare_at :])
    else:
        _append_changed(parts, message, marks, overlay)
    return parts


def _header(message: Message, marks: Marks) -> bytes:
    ttl_ms = message.ttl_ms
    overlay = marks.overlay
    if overlay is not None and overlay.ttl_ms >= 0:
        ttl_ms = overlay.ttl_ms
    durable = b"\x41" if message.durable else b"\x40"
    priority = b"\x40" if message.priority < 0 else encode(UByte(message.priority))
    ttl = b"\x40" if ttl_ms < 0 else encode(UInt(min(ttl_ms, 0xFFFFFFFF)))
    body = durable + priority + ttl + b"\x40" + encode(UInt(marks.delivery_count))
    return _HEADER_START + bytes((len(body) + 1, 5)) + body


def _delivery_annotations(lock_token: bytes) -> bytes:
    body = _key("x-opt-lock-token") + b"\x98" + lock_token
    return b"\x00\x53\x71\xc1" + bytes((len(body) + 1, 2)) + body


def _annotations(message: Message, marks: Marks) -> bytes:
    pack = _LONG.pack
    entries = [
        _SEQUENCE,
        pack(marks.sequence),
        _ENQUEUED,
        pack(marks.enqueued_ms),
        _ORIGINAL,
        pack(marks.original_sequence),
        _STATE,
        bytes((0x54, marks.state)),
    ]
    count = 8
    if marks.locked_until_ms:
        entries.append(_LOCKED)
        entries.append(pack(marks.locked_until_ms))
        count += 2
    overlay = marks.overlay
    if overlay is not None and overlay.dead_letter_source is not None:
        entries.append(_SOURCE)
        entries.append(encode(overlay.dead_letter_source))
        count += 2
    if message.annotations_at:
        for name, value in message.annotations().items():
            if name not in BROKER_OWNED:
                entries.append(encode(Symbol(name) if isinstance(name, str) else name))
                entries.append(encode(value))
                count += 2
    body = b"".join(entries)
    if len(body) < 255 and count < 256:
        return _ANNOTATIONS_8 + bytes((len(body) + 1, count)) + body
    return _ANNOTATIONS_32 + _SIZES.pack(len(body) + 4, count) + body


def generated_id(marks: Marks) -> str:
    """The id of a message whose sender gave none: the JS SDK cannot settle a message without one."""
    return f"{marks.original_sequence or marks.sequence:032x}"


def _append_changed(parts: list[bytes], message: Message, marks: Marks, overlay: Overlay | None) -> None:
    raw = message.raw
    out = bytearray(b"\x00\x53\x73")
    fields = message.properties()
    if overlay is not None:
        for position, value in overlay.fields.items():
            fields[position] = value
    if fields[MESSAGE_ID] is None:
        fields[MESSAGE_ID] = generated_id(marks)
    encode_into(out, fields)
    properties_end = skip(raw, message.properties_at) if message.properties_at else message.bare_at
    if overlay is not None and overlay.application:
        out += b"\x00\x53\x74"
        encode_into(out, merged_properties(message, overlay))
        after = skip(raw, message.application_at) if message.application_at else properties_end
    else:
        after = properties_end
    parts.append(bytes(out))
    parts.append(raw[after:])


def merged_properties(message: Message, overlay: Overlay | None) -> dict[str, object]:
    """The application properties as a receiver sees them."""
    merged = message.application_properties()
    if overlay is not None:
        for name, value in overlay.application.items():
            if value is REMOVED:
                merged.pop(name, None)
            else:
                merged[name] = value
    return merged


__all__ = [
    "PARTITION_KEY",
    "SCHEDULED_TIME",
    "STATE_ACTIVE",
    "STATE_DEFERRED",
    "STATE_SCHEDULED",
    "VIA_PARTITION_KEY",
    "Int",
    "Marks",
    "Timestamp",
    "generated_id",
    "merged_properties",
    "render",
]
