"""AMQP frames as a client without a library makes and reads them."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from polybus.amqp.codec import decode, encode
from polybus.amqp.frames import HEADER_BYTES, frame
from polybus.amqp.outcomes import DeliveryState
from polybus.amqp.traffic import Transfer
from polybus.amqp.types import Described
from polybus.message.message import Message, build

FRAME_PAYLOAD: Final = 60_000
"""What a transfer carries at most: below the frame size that the client offers."""
NAMES: Final = {  # not the bus's own table: what it must not write has no name here
    0x10: "open",
    0x11: "begin",
    0x12: "attach",
    0x13: "flow",
    0x14: "transfer",
    0x15: "disposition",
    0x16: "detach",
    0x17: "end",
    0x18: "close",
    0x40: "sasl-mechanisms",
    0x44: "sasl-outcome",
}


class Frame:
    """One frame that the bus wrote."""

    def __init__(self, channel: int, name: str, fields: list[Any], payload: bytes) -> None:
        self.channel = channel
        self.name = name
        self.fields = fields
        self.payload = payload

    def __repr__(self) -> str:
        return f"{self.name}@{self.channel}{self.fields}"


def take_frame(unread: bytearray) -> Frame | None:
    """Takes the first whole frame out of what was read; None where there is none. Headers are passed over."""
    while unread[:4] == b"AMQP" and len(unread) >= HEADER_BYTES:
        del unread[:HEADER_BYTES]
    size = int.from_bytes(unread[:4], "big")
    if len(unread) < max(size, HEADER_BYTES):
        return None
    raw = bytes(unread[:size])
    del unread[:size]
    channel = int.from_bytes(raw[6:8], "big")
    if size == HEADER_BYTES:
        return Frame(channel, "heartbeat", [], b"")
    found, end = decode(raw, HEADER_BYTES)
    assert isinstance(found, Described)
    assert isinstance(found.value, list)
    return Frame(channel, NAMES[int(found.descriptor)], found.value, raw[end:])  # type: ignore[call-overload]


def transfer_frames(handle: int, number: int, payload: bytes, channel: int, state: DeliveryState | None) -> bytes:
    """One message, in as many frames as it takes."""
    frames = []
    for place in range(0, max(len(payload), 1), FRAME_PAYLOAD):
        more = place + FRAME_PAYLOAD < len(payload)
        transfer = Transfer(handle, number, number.to_bytes(4, "big"), 0, False, more, state)
        frames.append(frame(channel, transfer, payload=payload[place : place + FRAME_PAYLOAD]))
    return b"".join(frames)


def text(body: str, **fields: Any) -> bytes:
    return build(body.encode(), **fields).raw


def value(body: object) -> bytes:
    return b"\x00\x53\x77" + encode(body)


def request(operation: str, body: object, reply_to: str) -> bytes:
    """A question to a management node."""
    fields: list[object] = [None] * 13
    fields[0], fields[4] = "request", reply_to
    application: dict[str, object] = {"operation": f"com.microsoft:{operation}"}
    return b"\x00\x53\x73" + encode(fields) + b"\x00\x53\x74" + encode(application) + value(body)


def rejection(state: Described) -> tuple[str, str]:
    """Condition and text of a refusal."""
    rejected = state.value
    assert isinstance(rejected, list)
    error = rejected[0]
    assert isinstance(error, Described)
    assert isinstance(error.value, list)
    return str(error.value[0]), str(error.value[1])


class Got:
    """One message that was delivered."""

    def __init__(self, first: Frame, payload: bytes) -> None:
        self.id: int = first.fields[1]
        self.token = UUID(bytes_le=first.fields[2]) if len(first.fields[2]) == 16 else None
        self.message = Message(payload)

    @property
    def body(self) -> bytes:
        found = self.message.body()[0][1]
        assert isinstance(found, bytes)
        return found

    @property
    def message_id(self) -> str:
        return str(self.message.properties()[0])

    @property
    def number(self) -> int:
        annotations = {str(key): found for key, found in self.message.annotations().items()}
        found = annotations["x-opt-sequence-number"]
        assert isinstance(found, int)
        return found

    @property
    def delivery_count(self) -> int:
        header, _ = decode(self.message.raw, 3)
        count: int = header[4]  # type: ignore[index]
        return count
