"""What must hold for any input. One sentence: the outcome is a value or an event, or one protocol error.

The random slices that pytest runs and the coverage-guided drivers call the same functions.
"""

from __future__ import annotations

from polybus.amqp.codec import decode, encode, skip
from polybus.amqp.connection import Connection, ConnectionConfig
from polybus.amqp.events import (
    Attached,
    Closed,
    CreditChanged,
    Disposed,
    IncomingDelivery,
    LinkDetached,
    ProtocolEvent,
    SaslInit,
    SessionEnded,
)
from polybus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from polybus.amqp.incoming import IncomingLink
from polybus.amqp.link import Link
from polybus.amqp.outcomes import ACCEPTED_BYTES, REJECTED_BYTES, AmqpError
from polybus.amqp.performatives import Attach, Begin, Open
from polybus.amqp.sasl import Init
from polybus.amqp.session import AmqpSession
from polybus.amqp.terminus import Source, Target
from polybus.errors import ProtocolError
from tests.protocol.peer import Frame, parse

BEGUN = AMQP_HEADER + frame(0, Open("client", max_frame_size=512)) + frame(1, Begin(0, 50, 50))
ATTACHED = (
    BEGUN
    + frame(1, Attach("s", 0, False, Source("s"), Target("q"), initial_delivery_count=0))
    + frame(1, Attach("r", 1, True, Source("q"), Target("r")))
)
STARTS = [b"", SASL_HEADER, SASL_HEADER + frame(0, Init("ANONYMOUS"), SASL_FRAME) + BEGUN, BEGUN, ATTACHED]
"""Where a connection may be when strange input begins."""


def check_codec(data: bytes) -> None:
    """A value that is read is written again and read as the same; skipping finds the same end."""
    condition = ""
    try:
        value, end = decode(data, 0)
    except ProtocolError as wrong:
        condition = wrong.condition
    if condition:
        assert condition == "amqp:decode-error"
        return
    assert 0 < end <= len(data)
    assert skip(data, 0) == end
    again = encode(value)
    assert len(again) <= max(end, 3 * end)
    back, after = decode(again, 0)
    assert after == len(again)
    assert encode(back) == again


class Owner:
    """Answers events in every way there is, chosen by the input's own bytes."""

    def __init__(self, connection: Connection, turn: int) -> None:
        self.connection = connection
        self.closed = 0
        self.gone: dict[int, Link] = {}
        self.ended: dict[int, AmqpSession] = {}
        self.turn = turn

    def take(self, events: list[ProtocolEvent]) -> None:
        todo = list(events)
        while todo:
            event = todo.pop(0)
            assert not self.closed, "nothing follows the end"
            todo += self.react(event)

    def react(self, event: ProtocolEvent) -> list[ProtocolEvent]:
        self.turn += 1
        if isinstance(event, SaslInit):
            return self.connection.sasl_outcome(0 if self.turn % 5 else 1)
        if isinstance(event, Attached):
            return self.attached(event.link)
        if isinstance(event, IncomingDelivery):
            self.fresh(event.link)
            event.link.settle_incoming(event.delivery_id, ACCEPTED_BYTES if self.turn % 3 else REJECTED_BYTES)
        elif isinstance(event, CreditChanged):
            self.fresh(event.link)
            for _ in range(min(event.link.sendable, 3)):
                event.link.send(b"tag", b"x" * (200 * self.turn % 1500), bool(self.turn % 2), event)
            event.link.drained()
        elif isinstance(event, Disposed):
            for one in event.deliveries:
                one.settle(ACCEPTED_BYTES)
        elif isinstance(event, LinkDetached):
            assert id(event.link) not in self.gone, "a link goes once"
            self.gone[id(event.link)] = event.link
        elif isinstance(event, SessionEnded):
            assert id(event.session) not in self.ended, "a session ends once"
            self.ended[id(event.session)] = event.session
        elif isinstance(event, Closed):
            self.closed += 1
        return []

    def attached(self, link: Link) -> list[ProtocolEvent]:
        self.fresh(link)
        if self.turn % 4 == 3:
            link.refuse(AmqpError("amqp:not-found", "no"))
            return []
        if self.turn % 7 == 6:
            return []
        more = link.accept(max_message_size=1_000)
        if isinstance(link, IncomingLink):
            link.grant(5)
        return more

    def fresh(self, link: Link) -> None:
        assert id(link) not in self.gone, "nothing is heard of a link that is gone"


def check_connection(data: bytes) -> None:
    """Any bytes, in any pieces, after any beginning: events, at most one end, and well-formed output."""
    start = STARTS[data[0] % len(STARTS)] if data else b""
    piece = 1 + (data[1] if len(data) > 1 else 0)
    connection = Connection(ConnectionConfig("polybus"), 0)
    owner = Owner(connection, data[0] // len(STARTS) if data else 0)
    owner.take(connection.feed(start, 0))
    written = connection.output()
    for place in range(2, len(data), piece):
        owner.take(connection.feed(data[place : place + piece], 0))
        while connection.unread:
            owner.take(connection.feed(b"", 0))
        written += connection.output()
    owner.take(connection.tick(1_000))
    owner.take(connection.lost())
    assert owner.closed == 1
    assert connection.output() == b""
    assert connection._held_bytes == 0
    check_output(written)


class Spoken:
    """What we have said on one channel, checked frame by frame."""

    def __init__(self) -> None:
        self.handles: set[int] = set()
        self.next_delivery = 1 << 20
        self.unfinished = -1

    def check(self, one: Frame) -> None:
        if one.name == "attach":
            assert one.fields[1] not in self.handles
            self.handles.add(one.fields[1])
        elif one.name == "detach":
            self.handles.remove(one.fields[0])
            if self.unfinished == one.fields[0]:
                self.unfinished = -1
        elif one.name == "flow":
            assert one.fields[4] is None or one.fields[4] in self.handles
            assert one.fields[4] is None or None not in one.fields[5:7]
        elif one.name == "transfer":
            self.check_transfer(one)

    def check_transfer(self, one: Frame) -> None:
        """Delivery-ids follow each other; a delivery's frames are not interrupted."""
        assert one.fields[0] in self.handles
        if self.unfinished < 0:
            self.next_delivery += 1
        else:
            assert self.unfinished == one.fields[0]
        assert one.fields[1] == self.next_delivery - 1
        self.unfinished = one.fields[0] if one.fields[5] else -1


def check_output(written: bytes) -> None:
    """Whole frames; nothing on a channel or a link that was not begun or has ended; nothing after close."""
    spoken: dict[int, Spoken] = {}
    closed = False
    for one in parse(written):
        if not isinstance(one, Frame) or one.kind == SASL_FRAME or one.name in ("open", "heartbeat"):
            continue
        assert not closed
        if one.name == "begin":
            assert one.channel not in spoken
            spoken[one.channel] = Spoken()
        elif one.name == "close":
            closed = True
        elif one.name == "end":
            del spoken[one.channel]
        else:
            spoken[one.channel].check(one)
