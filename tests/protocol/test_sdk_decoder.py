"""The Python SDK's own decoder reads every frame that we write, field by field (docs/protocol/amqp.md#full-lists)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

decoder = pytest.importorskip("azure.servicebus._pyamqp._decode")

from polybus.amqp.frames import AMQP_HEADER, SASL_HEADER, frame  # noqa: E402
from polybus.amqp.outcomes import ACCEPTED_BYTES, REJECTED_BYTES, AmqpError, Rejected  # noqa: E402
from polybus.amqp.performatives import Begin, Close, Detach, End, Open  # noqa: E402
from polybus.amqp.sasl import Init  # noqa: E402
from polybus.amqp.traffic import Disposition, Flow, Transfer  # noqa: E402
from tests.protocol.peer import Frame, Peer  # noqa: E402

FIELDS = {0x10: 10, 0x11: 8, 0x12: 14, 0x13: 11, 0x14: 11, 0x15: 6, 0x16: 3, 0x17: 1, 0x18: 1, 0x40: 1, 0x44: 2}
"""Fields of each performative (docs/protocol/amqp.md#full-lists)."""


def login(peer: Peer) -> None:
    peer.feed(SASL_HEADER)
    peer.sasl(Init("ANONYMOUS"))
    peer.connection.sasl_outcome(0)


def start(peer: Peer) -> None:
    peer.feed(AMQP_HEADER + frame(0, Open("client")) + frame(1, Begin(0, 100, 100)))


def links(peer: Peer) -> None:
    start(peer)
    peer.attach(0, False).accept(max_message_size=1000)
    peer.attach(1, True).accept()
    peer.attach(2, True).refuse(AmqpError("amqp:not-found", "missing"))
    peer.send(Flow(None, 100, 0, 100, 1, 0, 10, echo=True))


def traffic(peer: Peer) -> None:
    start(peer)
    sender = peer.sender(0)
    receiver = peer.receiver(1)
    peer.send(Flow(None, 100, 0, 100, 1, 0, 10, drain=True))
    for number in range(3):
        peer.send(Transfer(0, number, b"t", 0), payload=b"x")
    sender.settle_incoming(0, ACCEPTED_BYTES)
    sender.settle_incoming(1, Rejected(AmqpError("amqp:not-allowed", "x" * 300)))
    sender.settle_incoming(2, REJECTED_BYTES)
    receiver.send(b"0" * 16, b"x")
    receiver.drained()
    peer.send(Disposition(True, 1 << 20, state=Rejected()))
    receiver.session.settle(1 << 20, REJECTED_BYTES)
    receiver.detach(AmqpError("amqp:link:detach-forced", "idle"))
    peer.send(Detach(0, True))


def ends(peer: Peer) -> None:
    start(peer)
    peer.send(Detach(9))
    peer.send(Begin(0, 1, 1), 2)
    peer.send(End(), 2)
    peer.connection.close(AmqpError("amqp:connection:forced", "bye"))


def close(peer: Peer) -> None:
    start(peer)
    peer.send(Close(), 0)


@pytest.mark.parametrize("story", [login, start, links, traffic, ends, close])
def test_frames_are_full_lists_that_the_sdk_can_read(story: Callable[[Peer], None]) -> None:
    peer = Peer()
    story(peer)
    frames = [one for one in peer.read() if isinstance(one, Frame)]
    assert frames
    for one in frames:
        body = memoryview(one.raw)[8:]
        assert bytes(body[:2]) == b"\x00\x53"
        assert body[3] in (0xC0, 0xD0)
        code, fields = decoder.decode_frame(body)
        assert len(one.fields) == FIELDS[code]
        assert len(fields) - (code == 0x14) == FIELDS[code]
