"""Another implementation as the client: qpid-proton's engine, which has no socket either, against ours."""

from __future__ import annotations

import pytest

proton = pytest.importorskip("proton")

from polybus.amqp.connection import Connection, ConnectionConfig  # noqa: E402
from polybus.amqp.events import (  # noqa: E402
    Attached,
    Closed,
    CreditChanged,
    Disposed,
    IncomingDelivery,
    LinkDetached,
    ProtocolEvent,
    SaslInit,
)
from polybus.amqp.incoming import IncomingLink  # noqa: E402
from polybus.amqp.outcomes import ACCEPTED_BYTES, AmqpError, Rejected  # noqa: E402


class Wire:
    """A proton client and our connection, joined by moving bytes."""

    def __init__(self, *, login: bool = False, max_frame_size: int = 65_536) -> None:
        self.ours = Connection(ConnectionConfig("polybus"), 0)
        self.ours.known = True
        self.client = proton.Connection()
        self.client.container = "client"
        self.transport = proton.Transport()
        self.transport.max_frame_size = max_frame_size
        if login:
            self.transport.sasl().allowed_mechs("ANONYMOUS")
        self.transport.bind(self.client)
        self.client.open()
        self.session = self.client.session()
        self.session.open()

    def pump(self) -> list[ProtocolEvent]:
        """Moves bytes until both are quiet."""
        events: list[ProtocolEvent] = []
        while True:
            pending = max(self.transport.pending(), 0)
            data = bytes(self.transport.peek(pending)) if pending else b""
            self.transport.pop(len(data))
            fresh = self.ours.feed(data, 0)
            for event in fresh:
                if isinstance(event, SaslInit):
                    fresh = fresh + self.ours.sasl_outcome(0)
            events += fresh
            answer = self.ours.output()
            self._push(answer)
            if not data and not answer and not self.ours.unread:
                return events

    def _push(self, data: bytes) -> None:
        while data:
            room = self.transport.capacity()
            self.transport.push(data[:room])
            data = data[room:]

    def sender(self, credit: int = 100, limit: int = 1 << 20):
        theirs = self.session.sender("sender")
        theirs.target.address = "q"
        theirs.open()
        [attached] = [event for event in self.pump() if isinstance(event, Attached)]
        link = attached.link
        assert isinstance(link, IncomingLink)
        link.accept(max_message_size=limit)
        link.grant(credit)
        self.pump()
        return theirs, link

    def receiver(self):
        theirs = self.session.receiver("receiver")
        theirs.source.address = "q"
        theirs.open()
        [attached] = [event for event in self.pump() if isinstance(event, Attached)]
        attached.link.accept()
        self.pump()
        return theirs, attached.link


def send(link, tag: str, body: bytes):
    delivery = link.delivery(tag)
    link.send(body)
    link.advance()
    return delivery


@pytest.mark.parametrize("login", [False, True])
def test_opens_with_and_without_login(login) -> None:
    wire = Wire(login=login)
    wire.pump()
    assert wire.client.state & proton.Endpoint.REMOTE_ACTIVE
    assert wire.client.remote_container == "polybus"
    assert wire.transport.remote_idle_timeout == 120.0
    assert wire.transport.remote_max_frame_size == 65_536


def test_sends_are_answered() -> None:
    wire = Wire()
    theirs, link = wire.sender()
    assert theirs.credit == 100
    deliveries = [send(theirs, f"t{number}", b"body") for number in range(3)]
    received = [event for event in wire.pump() if isinstance(event, IncomingDelivery)]
    assert [event.payload for event in received] == [b"body"] * 3
    link.settle_incoming(received[0].delivery_id, ACCEPTED_BYTES)
    link.settle_incoming(received[1].delivery_id, ACCEPTED_BYTES)
    link.settle_incoming(received[2].delivery_id, Rejected(AmqpError("amqp:not-allowed", "no")))
    wire.pump()
    assert [one.remote_state for one in deliveries] == [proton.Delivery.ACCEPTED] * 2 + [proton.Delivery.REJECTED]
    assert all(one.settled for one in deliveries)
    assert deliveries[2].remote.condition.name == "amqp:not-allowed"


def test_credit_is_renewed_for_a_long_stream() -> None:
    wire = Wire()
    theirs, link = wire.sender(credit=10)
    sent = 0
    for _ in range(50):
        while theirs.credit > 0:
            send(theirs, str(sent), b"x").settle()
            sent += 1
        for event in wire.pump():
            if isinstance(event, IncomingDelivery) and not event.settled:
                link.settle_incoming(event.delivery_id, ACCEPTED_BYTES)
        wire.pump()
    assert sent > 200
    assert link.delivery_count == sent


def test_large_message_in_many_frames_both_ways() -> None:
    wire = Wire(max_frame_size=1024)
    body = bytes(range(256)) * 800
    theirs, link = wire.sender()
    send(theirs, "t", body)
    [event] = [event for event in wire.pump() if isinstance(event, IncomingDelivery)]
    assert event.payload == body
    link.settle_incoming(event.delivery_id, ACCEPTED_BYTES)

    receiver, ours = wire.receiver()
    receiver.flow(1)
    wire.pump()
    ours.send(b"tag", body)
    wire.pump()
    assert receiver.recv(len(body) + 1) == body


def test_receive_and_settle() -> None:
    wire = Wire()
    receiver, link = wire.receiver()
    receiver.flow(5)
    assert [event for event in wire.pump() if isinstance(event, CreditChanged)]
    assert link.credit == 5
    for number in range(5):
        link.send(bytes((number,)) * 16, b"body " + str(number).encode(), context=number)
    wire.pump()
    for number in range(5):
        current = receiver.current
        assert current.tag == (bytes((number,)) * 16).decode("utf-8")
        assert receiver.recv(100) == f"body {number}".encode()
        receiver.advance()
        current.update(proton.Delivery.ACCEPTED)
    disposed = [event for event in wire.pump() if isinstance(event, Disposed)]
    assert [one.context for event in disposed for one in event.deliveries] == [0, 1, 2, 3, 4]
    for event in disposed:
        for one in event.deliveries:
            one.settle(ACCEPTED_BYTES)
    wire.pump()


def test_drain() -> None:
    wire = Wire()
    receiver, link = wire.receiver()
    receiver.drain(10)
    assert [event for event in wire.pump() if isinstance(event, CreditChanged)]
    link.send(b"t", b"x")
    link.drained()
    wire.pump()
    assert receiver.credit - receiver.queued == 0
    assert receiver.drained() == 9


def test_refusal_and_close_are_understood() -> None:
    wire = Wire()
    theirs = wire.session.sender("sender")
    theirs.target.address = "missing"
    theirs.open()
    [attached] = [event for event in wire.pump() if isinstance(event, Attached)]
    attached.link.refuse(AmqpError("amqp:not-found", "no such entity"))
    wire.pump()
    assert theirs.state & proton.Endpoint.REMOTE_CLOSED
    assert theirs.remote_condition.name == "amqp:not-found"
    assert theirs.remote_target.type == proton.Terminus.UNSPECIFIED
    theirs.close()
    wire.client.close()
    events = wire.pump()
    assert [type(event) for event in events if isinstance(event, (LinkDetached, Closed))] == [Closed]
    assert wire.client.state & proton.Endpoint.REMOTE_CLOSED


def test_our_errors_reach_the_client() -> None:
    wire = Wire()
    wire.pump()
    wire.ours.close(AmqpError("amqp:connection:forced", "bye"))
    wire.pump()
    assert wire.client.remote_condition.name == "amqp:connection:forced"
