"""The half of a connection that listens: bytes are cut into headers and frames, in place.

Flows, transfers and dispositions take a short way to their session; every other frame is handed on with its name.
A frame's size is compared with a limit as soon as its four bytes are there, and nothing is kept beyond it.
AMQP 1.0 §2.2, §2.3; docs/protocol/amqp.md#sasl.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from polybus.amqp.decoder import decode_error, decode_within, u32_at
from polybus.amqp.events import ProtocolEvent
from polybus.amqp.fields import descriptor_code
from polybus.amqp.frames import AMQP_FRAME, AMQP_HEADER, HEADER_BYTES, SASL_FRAME, SASL_HEADER, unpack_header
from polybus.amqp.inbox import Inbox
from polybus.amqp.outcomes import AmqpError
from polybus.amqp.performatives import DISPOSITION, FLOW, TRANSFER
from polybus.amqp.session import AmqpSession
from polybus.amqp.states import CLOSED, CLOSING, JUDGING, LOGGED_IN, LOGIN, MAPPED, OPENED, START
from polybus.amqp.traffic import frame_fields
from polybus.errors import ProtocolError
from polybus.limits import (
    AMQP_FRAME_BYTES,
    AMQP_FRAME_BYTES_BEFORE_OPEN,
    AMQP_TURN_FIELD_BYTES,
    AMQP_TURN_FRAMES,
    AMQP_UNREAD_BYTES,
)

_HOT_BYTES: Final = 11
_PLAIN_SHAPE: Final = 0x0200
"""Data offset 2, frame type AMQP."""
_FLOW_FRAME: Final = 0x0053_00 | FLOW
_TRANSFER_FRAME: Final = 0x0053_00 | TRANSFER
_DISPOSITION_FRAME: Final = 0x0053_00 | DISPOSITION
"""What a frame begins with whose descriptor is a smallulong."""

_FRAMES: Final = {
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
    0x41: "sasl-init",
    0x42: "sasl-challenge",
    0x43: "sasl-response",
    0x44: "sasl-outcome",
}


def framing_error(text: str) -> ProtocolError:
    return ProtocolError("amqp:connection:framing-error", text)


class Frame:
    """One frame that is handed on: where its list of fields starts, and where it stops."""

    __slots__ = ("channel", "code", "data", "name", "pos", "stop")

    def __init__(self, name: str, code: int, channel: int, data: bytes, pos: int, stop: int) -> None:
        self.name = name
        self.code = code
        self.channel = channel
        self.data = data
        self.pos = pos
        self.stop = stop


class FrameReader:
    """Cuts input into frames according to the connection's state."""

    def __init__(self, now_ms: int) -> None:
        self.state = START
        self.sessions: dict[int, AmqpSession] = {}
        self.now_ms = now_ms
        self.heard_ms = now_ms
        self._inbox = Inbox()
        self.unread = False
        """Whether whole frames are left for another turn of the loop: feed nothing to go on."""
        self._frames_left = 0
        self._field_bytes_left = 0

    def on_header(self, name: str, events: list[ProtocolEvent]) -> None:
        raise NotImplementedError

    def on_frame(self, given: Frame, events: list[ProtocolEvent]) -> None:
        raise NotImplementedError

    def on_violation(self, error: AmqpError, events: list[ProtocolEvent]) -> None:
        raise NotImplementedError

    def feed(self, data: bytes, now_ms: int) -> list[ProtocolEvent]:
        """What the peer's bytes mean, as far as one turn of the loop goes. Take the connection's output afterwards."""
        self.now_ms = now_ms
        self._frames_left = AMQP_TURN_FRAMES
        self._field_bytes_left = AMQP_TURN_FIELD_BYTES
        self.unread = False
        events: list[ProtocolEvent] = []
        if self.state != CLOSED:
            self._read(self._inbox.join(data), events)
        return events

    def read_ahead(self, events: list[ProtocolEvent]) -> None:
        """Reads what came while a login was being decided."""
        self._read(self._inbox.take(), events)

    def _read(self, data: bytes, events: list[ProtocolEvent]) -> None:
        try:
            pos = self._read_all(data, events)
            if pos < len(data) and self.state != CLOSED:
                self._inbox.keep(data[pos:], self._needed(data, pos))
        except ProtocolError as wrong:
            self.on_violation(AmqpError(wrong.condition, wrong.description), events)

    def _read_all(self, data: bytes, events: list[ProtocolEvent]) -> int:
        """Reads whole headers and frames; gives where the first one starts that is not whole, or has to wait."""
        pos = 0
        end = len(data)
        while pos < end:
            state = self.state
            if state == OPENED:
                after = self._read_opened(data, pos, events)
            elif state in (START, LOGGED_IN):
                after = self._read_header(data, pos, events)
            elif state in (JUDGING, CLOSED):
                break
            else:
                after = self._read_frame(data, pos, events)
            if after == pos:
                break
            pos = after
            if self._is_over:
                break
        self.unread = pos < end and self._is_over
        if pos:
            self.heard_ms = self.now_ms
        return pos

    @property
    def _is_over(self) -> bool:
        """Whether the peer has had its turn."""
        return self._frames_left <= 0 or self._field_bytes_left <= 0

    def _needed(self, data: bytes, pos: int) -> int:
        """How many bytes, from `pos`, must be there before reading on makes sense."""
        rest = len(data) - pos
        state = self.state
        if state == JUDGING:
            if rest > AMQP_UNREAD_BYTES:
                raise framing_error("too much was sent before the login was decided")
            return AMQP_UNREAD_BYTES + 1
        if state in (START, LOGGED_IN):
            return HEADER_BYTES
        return 4 if rest < 4 else self._size(data, pos)

    def _size(self, data: bytes, pos: int) -> int:
        """The size of the frame at `pos`, checked."""
        size = u32_at(data, pos)
        opened = self.state == OPENED or self.state == CLOSING
        if size < HEADER_BYTES or size > (AMQP_FRAME_BYTES if opened else AMQP_FRAME_BYTES_BEFORE_OPEN):
            raise framing_error(f"a frame of {size} bytes is out of range")
        return size

    def _read_opened(self, data: bytes, pos: i64, events: list[ProtocolEvent]) -> i64:
        """Reads frames until one is not whole or the state changes: the way of every message."""
        end: i64 = len(data)
        sessions = self.sessions
        while end - pos > _HOT_BYTES:
            if self._frames_left <= 0 or self._field_bytes_left <= 0:
                return pos
            self._frames_left -= 1
            size = u32_at(data, pos)
            shape = u32_at(data, pos + 4)
            code = u32_at(data, pos + 8) >> 8
            if (
                _FLOW_FRAME <= code <= _DISPOSITION_FRAME
                and shape >> 16 == _PLAIN_SHAPE
                and _HOT_BYTES < size <= AMQP_FRAME_BYTES
            ):
                stop: i64 = pos + size
                if stop > end:
                    return pos
                session = sessions.get(shape & 0xFFFF)
                if session is not None and session.state == MAPPED:
                    if code == _TRANSFER_FRAME:
                        self._field_bytes_left -= session.on_transfer(data, pos + _HOT_BYTES, stop, events)
                    elif code == _DISPOSITION_FRAME:
                        self._field_bytes_left -= size
                        session.on_disposition(data, pos + _HOT_BYTES, stop, events)
                    else:
                        self._field_bytes_left -= size
                        session.on_flow(frame_fields(data, pos + _HOT_BYTES, stop), events)
                    pos = stop
                    continue
            after = self._read_frame(data, pos, events)
            if after == pos or self.state != OPENED:
                return after
            pos = after
        return self._read_frame(data, pos, events) if pos < end else pos

    def _read_header(self, data: bytes, pos: int, events: list[ProtocolEvent]) -> int:
        after = pos + HEADER_BYTES
        if after > len(data):
            return pos
        header = data[pos:after]
        if header == SASL_HEADER:
            self.on_header("sasl header", events)
        else:
            self.on_header("amqp header" if header == AMQP_HEADER else "other header", events)
        return after

    def _read_frame(self, data: bytes, pos: int, events: list[ProtocolEvent]) -> int:
        """Reads one frame of any kind; gives `pos` again if it is not whole."""
        rest = len(data) - pos
        if rest < 4:
            return pos
        size = self._size(data, pos)
        if rest < size:
            return pos
        self._frames_left -= 1
        self._field_bytes_left -= size
        _, offset, kind, channel = unpack_header(data, pos)
        start: int = pos + 4 * offset
        stop = pos + size
        if offset < 2 or start > stop:
            raise framing_error("the data offset is out of range")
        if kind != (SASL_FRAME if self.state == LOGIN else AMQP_FRAME):
            raise framing_error(f"a frame of type {kind} is not expected here")
        if start == stop:
            self.on_frame(Frame("heartbeat", 0, channel, data, start, stop), events)
        else:
            self.on_frame(self._named(channel, data, start, stop), events)
        return stop

    def _named(self, channel: int, data: bytes, start: int, stop: int) -> Frame:
        """The frame whose described list begins at `start`, in whichever form its descriptor is."""
        if data[start] != 0:
            raise decode_error("a frame holds a described list")
        descriptor, pos = decode_within(data, start + 1, stop)
        code = descriptor_code(descriptor)
        name = _FRAMES.get(code)
        if name is None:
            raise decode_error("the frame's descriptor is unknown")
        return Frame(name, code, channel, data, pos, stop)
