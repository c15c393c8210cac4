"""Frames on the wire: how a header is laid out, and the bytes of each frame that we send.

The size comes first and is compared with a limit before anything else is believed. Output is strict: full
lists, smallulong descriptors, fixed widths where that saves branches. AMQP 1.0 §2.3; docs/protocol/amqp.md#encoding.
"""

from __future__ import annotations

import struct
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from polybus.amqp.encoder import encode_into
from polybus.amqp.performatives import Performative

AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
TLS_HEADER: Final = b"AMQP\x02\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"

EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"
"""A heartbeat. AMQP 1.0 §2.4.5."""

HEADER_BYTES: Final = 8
SMALLEST_MAX_FRAME_SIZE: Final = 512
"""Every peer takes frames of this size. AMQP 1.0 §2.8.19, MIN-MAX-FRAME-SIZE."""

unpack_header: Final = struct.Struct(">IBBH").unpack_from
"""Size, data offset, type and channel."""

_HEADER: Final = struct.Struct(">IBBH").pack
_DISPOSITION: Final = struct.Struct(">IHH4sBBBBIBIB").pack
_TRANSFER: Final = struct.Struct(">I16sI").pack
_PREFIX: Final = struct.Struct(">HH4sBBBIB").pack

TRANSFER_BYTES: Final = 34
"""A transfer's frame without its tag and its payload."""
TAG_AT: Final = 24
"""Where a transfer's tag begins, with its constructor and its length."""
_DELIVERY_ID_AT: Final = 20
TAG_BYTES: Final = 32
"""The longest delivery-tag. AMQP 1.0 §2.8.7."""

_TRANSFER_END: Final = {
    (False, False): b"\x43\x42\x42\x40\x40\x40\x40\x40",
    (False, True): b"\x43\x42\x41\x40\x40\x40\x40\x40",
    (True, False): b"\x43\x41\x42\x40\x40\x40\x40\x40",
    (True, True): b"\x43\x41\x41\x40\x40\x40\x40\x40",
}
"""By settled and more: message-format 0, which rhea insists on, settled, more, then five nulls.

docs/protocol/amqp.md#message-format.
"""

LAST_UNSETTLED: Final = _TRANSFER_END[(False, False)]
LAST_SETTLED: Final = _TRANSFER_END[(True, False)]


def frame(channel: int, performative: Performative, kind: int = AMQP_FRAME, payload: bytes = b"") -> bytes:
    """A whole frame with any performative; the quick writers below are for those that are sent often."""
    body = bytearray(b"\x00\x53")
    body.append(performative.code())
    encode_into(body, performative.fields())
    body += payload
    return _HEADER(HEADER_BYTES + len(body), 2, kind, channel) + bytes(body)


def transfer_prefix(channel: int, handle: int, tag_bytes: int) -> bytes:
    """What all transfers of a link have between the frame's size and the delivery-id, for tags of one length."""
    return _PREFIX(0x0200, channel, b"\x00\x53\x14\xc0", 21 + tag_bytes, 11, 0x70, handle, 0x70)


def transfer_head(size: int, prefix: bytes, delivery_id: int, tag: bytes, end: bytes) -> bytes:
    """A transfer's frame up to its payload; `size` is the whole frame's, `tag` has its constructor and length."""
    return _TRANSFER(size, prefix, delivery_id) + tag + end


def finish_transfer(start: BytesWriter, size: int, delivery_id: int) -> None:
    """Puts the frame's size and the delivery-id where they belong in a transfer that was begun without them."""
    _put_u32(start, 0, size)
    _put_u32(start, _DELIVERY_ID_AT, delivery_id)


def _put_u32(out: BytesWriter, at: i64, value: i64) -> None:
    out[at] = u8(value >> 24 & 0xFF)
    out[at + 1] = u8(value >> 16 & 0xFF)
    out[at + 2] = u8(value >> 8 & 0xFF)
    out[at + 3] = u8(value & 0xFF)


def transfer_end(settled: bool, more: bool) -> bytes:
    return _TRANSFER_END[(settled, more)]


def disposition(channel: int, role: bool, first: int, last: int, state: bytes) -> bytes:
    """A settled disposition with an encoded state."""
    size = len(state)
    if size > 200:
        return _long_disposition(channel, role, first, last, state)
    flag = 0x41 if role else 0x42
    descriptor = b"\x00\x53\x15\xc0"
    head = _DISPOSITION(27 + size, 0x0200, channel, descriptor, 14 + size, 6, flag, 0x70, first, 0x70, last, 0x41)
    return head + state + b"\x42"


def _long_disposition(channel: int, role: bool, first: int, last: int, state: bytes) -> bytes:
    flag = 0x41 if role else 0x42
    fields = struct.pack(">BBIBIB", flag, 0x70, first, 0x70, last, 0x41) + state + b"\x42"
    body = b"\x00\x53\x15\xd0" + struct.pack(">II", len(fields) + 4, 6) + fields
    return _HEADER(HEADER_BYTES + len(body), 2, AMQP_FRAME, channel) + body
