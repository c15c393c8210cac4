"""How input is cut makes no difference: byte by byte, in random pieces, or all at once."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from polybus.amqp.connection import Connection, ConnectionConfig
from polybus.amqp.events import Attached, ProtocolEvent, SaslInit
from polybus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from polybus.amqp.incoming import IncomingLink
from polybus.amqp.outcomes import ACCEPTED, Rejected
from polybus.amqp.performatives import Attach, Begin, Close, Detach, End, Open
from polybus.amqp.sasl import Init
from polybus.amqp.terminus import Source, Target
from polybus.amqp.traffic import Disposition, Flow, Transfer

FIRST = 1 << 20

START = [
    SASL_HEADER,
    frame(0, Init("ANONYMOUS", b"x"), SASL_FRAME),
    AMQP_HEADER,
    frame(0, Open("client", max_frame_size=600)),
    frame(1, Begin(0, 100, 100)),
    frame(1, Attach("s", 0, False, Source("s"), Target("q"), initial_delivery_count=0)),
    frame(1, Attach("r", 1, True, Source("q"), Target("r"))),
]
"""Until the links are attached, which the owner answers between two pieces of input."""

TRAFFIC = [
    frame(1, Transfer(0, 0, b"a", 0), payload=b"one"),
    frame(1, Transfer(0, 1, b"b", 0, more=True), payload=b"two " * 50),
    frame(1, Transfer(0, 1, b"b", 0), payload=b"three"),
    b"\x00\x00\x00\x08\x02\x00\x00\x00",
    frame(1, Flow(FIRST, 100, 2, 100, 1, 0, 5)),
    frame(1, Disposition(True, FIRST, FIRST + 3, False, ACCEPTED)),
    frame(1, Disposition(True, FIRST + 4, None, True, Rejected())),
    frame(1, Detach(0, True)),
    frame(1, End()),
    frame(0, Close()),
]


def play(pieces: list[bytes]) -> tuple[list[str], bytes]:
    """What a connection says, in events and bytes, when its owner accepts everything and sends on credit."""
    connection = Connection(ConnectionConfig("polybus"), 0)
    told: list[str] = []
    out = b""
    for piece in pieces:
        todo = connection.feed(piece, 0)
        while connection.unread:
            todo += connection.feed(b"", 0)
        while todo:
            event = todo.pop(0)
            told.append(describe(event))
            todo += react(connection, event)
    out += connection.output()
    return told, out


def react(connection: Connection, event: ProtocolEvent) -> list[ProtocolEvent]:
    if isinstance(event, SaslInit):
        return connection.sasl_outcome(0)
    if isinstance(event, Attached):
        more = event.link.accept(max_message_size=10_000)
        if isinstance(event.link, IncomingLink):
            event.link.grant(10)
        return more
    return []


def describe(event: ProtocolEvent) -> str:
    kept = ("delivery_id", "payload", "settled", "mechanism", "oversized", "tag")
    parts = [f"{name}={getattr(event, name)!r}" for name in kept if hasattr(event, name)]
    return f"{type(event).__name__} {' '.join(parts)}"


WHOLE = play(START + TRAFFIC)


def test_the_story_ends_well() -> None:
    assert WHOLE[0][-1].startswith("Closed")
    assert sum(line.startswith("IncomingDelivery") for line in WHOLE[0]) == 2


def test_all_at_once() -> None:
    assert play([b"".join(START), b"".join(TRAFFIC)])[0] == WHOLE[0]


def test_byte_by_byte() -> None:
    assert play([bytes((byte,)) for byte in b"".join(START + TRAFFIC)]) == WHOLE


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = [0, *sorted(place % len(data) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(ends)]


PLACES = st.lists(st.integers(min_value=0, max_value=2_000), max_size=30)


@settings(max_examples=60, deadline=None)
@given(PLACES, PLACES)
def test_any_cut(first, second) -> None:
    pieces = cut(b"".join(START), first) + cut(b"".join(TRAFFIC), second)
    assert play(pieces)[0] == WHOLE[0]


def test_a_long_frame_in_single_bytes() -> None:
    connection = Connection(ConnectionConfig("polybus"), 0)
    connection.feed(AMQP_HEADER + frame(0, Open("c")) + frame(1, Begin(0, 9, 9)), 0)
    [attached] = connection.feed(frame(1, Attach("s", 0, False, Source("s"), Target("q"))), 0)
    assert isinstance(attached, Attached)
    attached.link.accept(max_message_size=100_000)
    one = frame(1, Transfer(0, 0, b"t", 0), payload=b"x" * 60_000)
    events = [event for byte in one for event in connection.feed(bytes((byte,)), 0)]
    assert len(events) == 1
