"""Frames between processes of one bus: a fixed head that says what, where and for which question, then one value.

A frame is input like any other, wherever it comes from: its length is bounded before a byte of it is kept, its verb must
be known, and its value is decoded by the codec that also reads what clients send.
"""

from __future__ import annotations

import struct
from typing import Final

from polybus.amqp.codec import decode, encode
from polybus.errors import ProtocolError
from polybus.limits import CLUSTER_FRAME_BYTES

VERSION: Final = 2
OLDEST: Final = 1
"""The oldest version that this one understands: nodes are upgraded one by one."""
LEDGER_VERSION: Final = 2
"""From it on sends are numbered for the ledger of their store."""
GREETING: Final = struct.Struct(">8sHH")
"""Sent first by both sides: magic, the version that it speaks, the oldest that it understands."""
MAGIC: Final = b"POLYBUS\x01"
_HEAD: Final = struct.Struct(">IBIHQ")
"""Length of what follows the length, verb, entity, partition, correlation."""
_LENGTH: Final = struct.Struct(">I")
_AFTER_LENGTH: Final = _HEAD.size - _LENGTH.size
NO_ANSWER: Final = 0
"""The correlation of a frame that nobody answers."""


def greeting() -> bytes:
    return GREETING.pack(MAGIC, VERSION, OLDEST)


class Frame:
    """One message between processes."""

    __slots__ = ("correlation", "entity_id", "index", "value", "verb")

    def __init__(self, verb: int, entity_id: int, index: int, correlation: int, value: list[object]) -> None:
        self.verb = verb
        self.entity_id = entity_id
        self.index = index
        self.correlation = correlation
        self.value = value

    def to_bytes(self) -> bytes:
        payload = encode(self.value)
        return (
            _HEAD.pack(_AFTER_LENGTH + len(payload), self.verb, self.entity_id, self.index, self.correlation)
            + payload
        )


class FrameReader:
    """Bytes in, frames out. It holds no more of a frame than its bound, and nothing before the greeting was right."""

    def __init__(self, verbs: int) -> None:
        self._verbs = verbs
        self._buffer = bytearray()
        self._greeted = False
        self.version = 0
        """What both sides speak; known with the greeting."""

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are whole by now; ProtocolError where the peer is none of ours or breaks the form."""
        self._buffer += data
        if not self._greeted and not self._read_greeting():
            return []
        frames: list[Frame] = []
        at = 0
        while len(self._buffer) - at >= _LENGTH.size:
            length = _LENGTH.unpack_from(self._buffer, at)[0]
            if not _AFTER_LENGTH <= length <= CLUSTER_FRAME_BYTES:
                raise _broken(f"a frame of {length} bytes")
            end = at + _LENGTH.size + length
            if len(self._buffer) < end:
                break
            frames.append(self._frame(bytes(self._buffer[at:end])))
            at = end
        del self._buffer[:at]
        return frames

    def _read_greeting(self) -> bool:
        known = min(len(self._buffer), len(MAGIC))
        if self._buffer[:known] != MAGIC[:known]:
            raise _broken("a greeting that is not ours")
        if len(self._buffer) < GREETING.size:
            return False
        _, version, oldest = GREETING.unpack_from(self._buffer)
        if oldest > VERSION or version < OLDEST:
            raise _broken(
                f"version {version} (at least {oldest}); this process speaks versions {OLDEST} to {VERSION}"
            )
        self.version = min(version, VERSION)
        del self._buffer[: GREETING.size]
        self._greeted = True
        return True

    def _frame(self, data: bytes) -> Frame:
        _, verb, entity_id, index, correlation = _HEAD.unpack_from(data)
        if not 0 < verb <= self._verbs:
            raise _broken(f"the verb {verb}")
        value, end = decode(data, _HEAD.size)
        if end != len(data) or not isinstance(value, list):
            raise _broken("a frame whose value is not one list")
        return Frame(verb, entity_id, index, correlation, value)


def _broken(what: str) -> ProtocolError:
    return ProtocolError("amqp:framing-error", f"another process of the bus has sent {what}")
