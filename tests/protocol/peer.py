"""A client for tests: it builds frames, feeds them to a connection and takes apart what comes back."""

from __future__ import annotations

from typing import Any

from polybus.amqp.codec import decode
from polybus.amqp.connection import Connection, ConnectionConfig
from polybus.amqp.events import Attached, Closed, ProtocolEvent
from polybus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from polybus.amqp.incoming import IncomingLink
from polybus.amqp.outgoing import OutgoingLink
from polybus.amqp.performatives import Attach, Begin, Open, Performative
from polybus.amqp.sasl import Init
from polybus.amqp.terminus import Source, Target
from polybus.amqp.types import Described
from tests.support.raw_frames import NAMES


class Frame:
    """One frame that the connection wrote."""

    def __init__(self, kind: int, channel: int, name: str, fields: list[Any], payload: bytes, raw: bytes) -> None:
        self.kind = kind
        self.channel = channel
        self.name = name
        self.fields = fields
        self.payload = payload
        self.raw = raw

    def __repr__(self) -> str:
        return f"{self.name}@{self.channel}{self.fields}"


def parse(data: bytes) -> list[Frame | bytes]:
    """Headers (as bytes) and frames in `data`, each frame checked for its own size."""
    found: list[Frame | bytes] = []
    pos = 0
    while pos < len(data):
        if data[pos : pos + 4] == b"AMQP":
            found.append(data[pos : pos + 8])
            pos += 8
            continue
        size = int.from_bytes(data[pos : pos + 4], "big")
        raw = data[pos : pos + size]
        assert len(raw) == size, "a frame is cut short"
        found.append(parse_frame(raw))
        pos += size
    return found


def parse_frame(raw: bytes) -> Frame:
    assert raw[4] == 2
    channel = int.from_bytes(raw[6:8], "big")
    if len(raw) == 8:
        return Frame(raw[5], channel, "heartbeat", [], b"", raw)
    value, end = decode(raw, 8)
    assert isinstance(value, Described)
    assert isinstance(value.value, list)
    name = NAMES[int(value.descriptor)]  # type: ignore[call-overload]
    assert channel == 0 or name not in ("open", "close")
    return Frame(raw[5], channel, name, value.value, raw[end:], raw)


class Peer:
    """A client and the connection that it talks to."""

    def __init__(self, now_ms: int = 0, **config: Any) -> None:
        self.connection = Connection(ConnectionConfig("polybus", **config), now_ms)
        self.connection.known = True
        self.now_ms = now_ms
        self.events: list[ProtocolEvent] = []

    def feed(self, data: bytes) -> list[ProtocolEvent]:
        events = self.connection.feed(data, self.now_ms)
        while self.connection.unread:
            events += self.connection.feed(b"", self.now_ms)
        self.events += events
        return events

    def send(self, performative: Performative, channel: int = 1, payload: bytes = b"") -> list[ProtocolEvent]:
        return self.feed(frame(channel, performative, payload=payload))

    def sasl(self, performative: Performative) -> list[ProtocolEvent]:
        return self.feed(frame(0, performative, SASL_FRAME))

    def read(self) -> list[Frame | bytes]:
        return parse(self.connection.output())

    def frames(self, name: str | None = None) -> list[Frame]:
        return [one for one in self.read() if isinstance(one, Frame) and name in (None, one.name)]

    def opened(self, **fields: Any) -> Peer:
        """Opens without a login and begins a session on channel 1."""
        self.feed(AMQP_HEADER)
        self.send(Open("client", **fields), 0)
        self.send(Begin(0, 2048, 2048), 1)
        self.read()
        return self

    def logged_in(self) -> Peer:
        self.feed(SASL_HEADER)
        self.sasl(Init("ANONYMOUS"))
        self.connection.sasl_outcome(0)
        self.read()
        return self

    def attach(self, handle: int, role: bool, name: str = "", **fields: Any) -> IncomingLink | OutgoingLink:
        """The broker's end of a new link, not answered yet."""
        count = None if role else 0
        fields.setdefault("source", Source("q"))
        fields.setdefault("target", Target("t"))
        attach = Attach(name or f"link-{handle}", handle, role, initial_delivery_count=count, **fields)
        events = self.send(attach)
        attached = [event for event in events if isinstance(event, Attached)]
        link = attached[0].link
        assert isinstance(link, (IncomingLink, OutgoingLink))
        return link

    def sender(self, handle: int = 0, credit: int = 100, limit: int = 262_144) -> IncomingLink:
        """A link over which the client sends, accepted."""
        link = self.attach(handle, False)
        assert isinstance(link, IncomingLink)
        link.accept(max_message_size=limit)
        link.grant(credit)
        self.read()
        return link

    def receiver(self, handle: int = 1) -> OutgoingLink:
        """A link over which the client receives, accepted, without credit."""
        link = self.attach(handle, True)
        assert isinstance(link, OutgoingLink)
        link.accept()
        self.read()
        return link

    @property
    def closed(self) -> Closed | None:
        ends = [event for event in self.events if isinstance(event, Closed)]
        assert len(ends) <= 1, "a connection closes once"
        return ends[0] if ends else None

    def condition(self) -> str | None:
        """The condition with which the connection was closed."""
        if self.closed is None or self.closed.error is None:
            return None
        return self.closed.error.condition


def of(events: list[ProtocolEvent], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def error_of(one: Frame, index: int) -> tuple[str, str | None]:
    """Condition and description of the error in a frame's field, which must have its three fields."""
    error = one.fields[index]
    assert isinstance(error, Described)
    assert error.descriptor == 0x1D
    assert isinstance(error.value, list)
    assert len(error.value) == 3
    return error.value[0], error.value[1]
