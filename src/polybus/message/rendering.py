"""A stored message as bytes for a receiver: fresh header and annotations, then the sender's own bytes.

The types of the broker's annotations are exact, for the SDKs cast without asking (docs/protocol/amqp.md#annotations).
What a sender wrote is copied as bytes wherever it stays as it is, never decoded and encoded again.
"""

from __future__ import annotations

import struct
from typing import Final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64, u8

from polybus.amqp.codec import decode, encode, encode_into, skip
from polybus.amqp.types import Symbol, Timestamp, UByte, UInt
from polybus.message.message import (
    GROUP_ID,
    MESSAGE_ID,
    PARTITION_KEY,
    PROPERTY_FIELDS,
    SCHEDULED_TIME,
    TTL_UNLIMITED,
    VIA_PARTITION_KEY,
    Message,
)
from polybus.message.overlay import NO_TTL, REMOVED, Overlay, laid_over
from polybus.message.sections import list_bounds

LOCK_TOKEN: Final = "x-opt-lock-token"  # noqa: S105  the name of an annotation
BROKER_OWNED: Final = frozenset(
    (
        "x-opt-sequence-number",
        "x-opt-enqueued-time",
        "x-opt-locked-until",
        "x-opt-message-state",
        "x-opt-enqueue-sequence-number",
        "x-opt-deadletter-source",
        LOCK_TOKEN,
        "x-opt-partition-id",
        "x-opt-offset",
        PARTITION_KEY,
        VIA_PARTITION_KEY,
        SCHEDULED_TIME,
    )
)
"""Annotations that only go out as the broker writes them. Clients send received messages again with theirs, and
the last three are written anew in the one type that every SDK can read."""

STATE_ACTIVE: Final = 0
STATE_DEFERRED: Final = 1
STATE_SCHEDULED: Final = 2


def _key(name: str) -> bytes:
    return encode(Symbol(name))


_SEQUENCE: Final = _key("x-opt-sequence-number") + b"\x81"
_ENQUEUED: Final = _key("x-opt-enqueued-time") + b"\x83"
_ORIGINAL: Final = _key("x-opt-enqueue-sequence-number") + b"\x81"
_STATE: Final = _key("x-opt-message-state") + b"\x54"
_LOCKED: Final = _key("x-opt-locked-until") + b"\x83"
_SOURCE: Final = _key("x-opt-deadletter-source")
_PARTITION_KEY: Final = _key(PARTITION_KEY)
_VIA_PARTITION_KEY: Final = _key(VIA_PARTITION_KEY)
_SCHEDULED_TIME: Final = _key(SCHEDULED_TIME)
_LOCK_TOKEN: Final = _key(LOCK_TOKEN) + b"\x98"
_LOCK_START: Final = b"\x00\x53\x71\xc1" + bytes((len(_LOCK_TOKEN) + 17, 2)) + _LOCK_TOKEN
_NO_LOCK: Final = b"\x00\x53\x71\xc1\x01\x00"

_FREE_BYTES: Final = len(_SEQUENCE) + len(_ENQUEUED) + len(_ORIGINAL) + len(_STATE) + 3 * 8 + 1
_HELD_BYTES: Final = _FREE_BYTES + len(_LOCKED) + 8
_FREE_FRAME: Final = b"\x00\x53\x72\xc1" + bytes((_FREE_BYTES + 1, 8))
_HELD_FRAME: Final = b"\x00\x53\x72\xc1" + bytes((_HELD_BYTES + 1, 10))
_HEADER_FRESH: Final = b"\x00\x53\x70\xc0\x06\x05\x40\x40\x40\x40\x43"
_HEADER_DURABLE: Final = b"\x00\x53\x70\xc0\x06\x05\x41\x40\x40\x40\x43"
_SIZES: Final = struct.Struct(">II")
_ONLY_AN_ID: Final = b"\x00\x53\x73\xc0\x23\x01\xa1\x20"
"""A properties section with nothing but a message id of 32 characters, which follow."""
_SIXTEEN_ZEROS: Final = b"0" * 16


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
        """The lock that the receiver gets with it, None where it gets none (docs/protocol/amqp.md#lock-tokens)."""


def render(message: Message, marks: Marks) -> bytes:
    """The encoded message."""
    out = BytesWriter()
    rest = render_into(out, message, marks)
    return out.getvalue() + rest


def render_into(out: BytesWriter, message: Message, marks: Marks) -> bytes:
    """Writes the encoded message up to the sender's own bytes, and gives those, which may be long."""
    overlay = marks.overlay
    out.write(_header(message, marks, overlay))
    _write_delivery_annotations(out, message, marks.lock_token)
    _write_annotations(out, message, marks, overlay)
    if overlay is not None and (overlay.application or overlay.fields):
        return _write_changed(out, message, marks, overlay)
    if message.message_id is None:
        return _write_identified(out, message, marks)
    return message.raw[message.bare_at :]


def _header(message: Message, marks: Marks, overlay: Overlay | None) -> bytes:
    ttl_ms = message.ttl_ms
    if overlay is not None and overlay.ttl_ms >= 0:
        ttl_ms = overlay.ttl_ms if overlay.ttl_ms < NO_TTL else -1
    if ttl_ms < 0 and message.priority < 0 and marks.delivery_count == 0:
        return _HEADER_DURABLE if message.durable else _HEADER_FRESH
    body = bytearray(b"\x41" if message.durable else b"\x40")
    encode_into(body, None if message.priority < 0 else UByte(message.priority))
    encode_into(body, None if ttl_ms < 0 else UInt(min(ttl_ms, TTL_UNLIMITED)))
    body.append(0x40)
    encode_into(body, UInt(marks.delivery_count))
    return b"\x00\x53\x70\xc0" + bytes((len(body) + 1, 5)) + body


def _write_delivery_annotations(out: BytesWriter, message: Message, lock_token: bytes | None) -> None:
    """The lock's token, for clients that look for it here and not in the tag, then what the sender wrote."""
    if message.delivery_annotations_at == 0:
        if lock_token is None:
            out.write(_NO_LOCK)
        else:
            out.write(_LOCK_START)
            out.write(lock_token)
        return
    pairs = [] if lock_token is None else [_LOCK_TOKEN + lock_token]
    for name, pair in _pairs(message.raw, message.delivery_annotations_at):
        if name != LOCK_TOKEN:
            pairs.append(pair)
    out.write(b"\x00\x53\x71")
    out.write(_map(b"".join(pairs), 2 * len(pairs)))


def _write_annotations(out: BytesWriter, message: Message, marks: Marks, overlay: Overlay | None) -> None:
    locked_ms = marks.locked_until_ms
    key = partition_key_of(message, overlay)
    if key is None and message.annotations_at == 0 and (overlay is None or overlay.dead_letter_source is None):
        out.write(_HELD_FRAME if locked_ms else _FREE_FRAME)
        _write_marks(out, marks)
        return
    pairs: list[bytes] = []
    if overlay is not None and overlay.dead_letter_source is not None:
        pairs.append(_SOURCE + encode(overlay.dead_letter_source))
    if key is not None:
        pairs.append(_PARTITION_KEY + encode(key))
    if message.annotations_at:
        _append_annotations(pairs, message)
    body = BytesWriter()
    _write_marks(body, marks)
    for pair in pairs:
        body.write(pair)
    out.write(b"\x00\x53\x72")
    out.write(_map(body.getvalue(), 2 * len(pairs) + (10 if locked_ms else 8)))


def _write_marks(out: BytesWriter, marks: Marks) -> None:
    """The four annotations that every message has, and the lock's end where it has one."""
    out.write(_SEQUENCE)
    write_i64_be(out, marks.sequence)
    out.write(_ENQUEUED)
    write_i64_be(out, marks.enqueued_ms)
    out.write(_ORIGINAL)
    write_i64_be(out, marks.original_sequence)
    out.write(_STATE)
    out.append(u8(marks.state))
    if marks.locked_until_ms:
        out.write(_LOCKED)
        write_i64_be(out, marks.locked_until_ms)


def partition_key_of(message: Message, overlay: Overlay | None) -> str | None:
    """The key as receivers see it: a session's id is the key of its messages, as in the cloud."""
    if message.partition_key is not None:
        return message.partition_key
    return laid_over(overlay, GROUP_ID, message.session_id)


def _append_annotations(pairs: list[bytes], message: Message) -> None:
    """The sender's annotations: those it may set in their proper types, the rest as they came."""
    if message.via_partition_key is not None:
        pairs.append(_VIA_PARTITION_KEY + encode(message.via_partition_key))
    if message.scheduled_ms:
        pairs.append(_SCHEDULED_TIME + encode(Timestamp(message.scheduled_ms)))
    for name, pair in _pairs(message.raw, message.annotations_at):
        if name not in BROKER_OWNED:
            pairs.append(pair)


def _pairs(raw: bytes, at: int) -> list[tuple[object, bytes]]:
    """The keys of a map, each with the bytes of its key and value; a string key becomes the symbol it stands for."""
    after = skip(raw, at)
    pos = at + 3 if raw[at] == 0xC1 else at + 9
    found: list[tuple[object, bytes]] = []
    while pos < after:
        name, value_at = decode(raw, pos)
        end = skip(raw, value_at)
        if type(name) is str:
            found.append((name, _key(name) + raw[value_at:end]))
        else:
            found.append((name, raw[pos:end]))
        pos = end
    return found


def _map(body: bytes, count: int) -> bytes:
    if len(body) < 255 and count < 256:
        return b"\xc1" + bytes((len(body) + 1, count)) + body
    return b"\xd1" + _SIZES.pack(len(body) + 4, count) + body


def generated_id(marks: Marks) -> str:
    """The id of a message whose sender gave none: the JS SDK cannot settle a message without one."""
    return (marks.original_sequence or marks.sequence).to_bytes(16, "big").hex()


def _write_identified(out: BytesWriter, message: Message, marks: Marks) -> bytes:
    """Puts an id into the properties, which are otherwise left as they are; gives the rest of the bare message."""
    raw = message.raw
    if message.properties_at == 0:
        out.write(_ONLY_AN_ID)
        _write_generated_id(out, marks)
        return raw[message.bare_at :]
    after, pos, count = list_bounds(raw, message.properties_at, PROPERTY_FIELDS)
    others = raw[skip(raw, pos) : after] if count else b""
    out.write(b"\x00\x53\x73")
    out.write(_list(b"\xa1\x20" + generated_id(marks).encode() + others, max(count, 1)))
    return raw[after:]


def _write_generated_id(out: BytesWriter, marks: Marks) -> None:
    """The same as `generated_id`, eight digits at once."""
    number: i64 = marks.original_sequence or marks.sequence
    out.write(_SIXTEEN_ZEROS)
    write_i64_be(out, _hex_digits(number >> 32))
    write_i64_be(out, _hex_digits(number & 0xFFFF_FFFF))


def _hex_digits(number: i64) -> i64:
    """The eight ASCII digits of a number of 32 bits, one in each byte."""
    spread = (number & 0xFFFF_0000) << 16 | number & 0xFFFF
    spread = (spread << 8 | spread) & 0x00FF_00FF_00FF_00FF
    spread = (spread << 4 | spread) & 0x0F0F_0F0F_0F0F_0F0F
    letters = spread + 0x0606_0606_0606_0606 >> 4 & 0x0101_0101_0101_0101
    return spread + 0x3030_3030_3030_3030 + 39 * letters


def _list(body: bytes, count: int) -> bytes:
    if len(body) < 255:
        return b"\xc0" + bytes((len(body) + 1, count)) + body
    return b"\xd0" + _SIZES.pack(len(body) + 4, count) + body


def _write_changed(out: BytesWriter, message: Message, marks: Marks, overlay: Overlay) -> bytes:
    raw = message.raw
    fields = message.properties()
    for position, value in overlay.fields.items():
        fields[position] = value
    if fields[MESSAGE_ID] is None:
        fields[MESSAGE_ID] = generated_id(marks)
    out.write(b"\x00\x53\x73")
    out.write(encode(fields))
    after = skip(raw, message.properties_at) if message.properties_at else message.bare_at
    if overlay.application:
        out.write(b"\x00\x53\x74")
        out.write(_merged_map(message, overlay))
        after = message.body_at
    return raw[after:]


def _merged_map(message: Message, overlay: Overlay) -> bytes:
    """The application properties as bytes: the sender's own ones untouched, those of the overlay in their place."""
    changes = overlay.application
    pairs: list[bytes] = []
    if message.application_at:
        for name, pair in _properties(message):
            if name not in changes:
                pairs.append(pair)
    for name, value in changes.items():
        if value is not REMOVED:
            pairs.append(encode(name) + encode(value))
    return _map(b"".join(pairs), 2 * len(pairs))


def _properties(message: Message) -> list[tuple[str, bytes]]:
    raw = message.raw
    after = skip(raw, message.application_at)
    pos = message.application_at + (3 if raw[message.application_at] == 0xC1 else 9)
    found: list[tuple[str, bytes]] = []
    while pos < after:
        name, value_at = decode(raw, pos)
        end = skip(raw, value_at)
        found.append((str(name), raw[pos:end]))
        pos = end
    return found


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
