"""The login. AMQP 1.0 §5.3; docs/protocol/amqp.md#sasl."""

from __future__ import annotations

import pytest

from polybus.amqp.codec import encode
from polybus.amqp.events import Closed, Opened, SaslInit, SessionBegun
from polybus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from polybus.amqp.performatives import Begin, Open
from polybus.amqp.sasl import AUTH, OK, Init, SaslOutcome, plain_credentials
from polybus.amqp.types import symbol_array
from polybus.limits import AMQP_UNREAD_BYTES
from tests.protocol.peer import Frame, Peer, of


def test_mechanisms_are_offered_as_an_array_in_the_services_order() -> None:
    peer = Peer()
    peer.feed(SASL_HEADER)
    header, offered = peer.read()
    assert header == SASL_HEADER
    assert isinstance(offered, Frame)
    assert (offered.kind, offered.channel, offered.name) == (SASL_FRAME, 0, "sasl-mechanisms")
    assert offered.fields == [symbol_array(["MSSBCBS", "PLAIN", "ANONYMOUS"])]
    assert encode(offered.fields[0])[3] == 0xB3


@pytest.mark.parametrize("mechanism", ["MSSBCBS", "PLAIN", "ANONYMOUS"])
def test_every_login_is_the_callers_decision(mechanism) -> None:
    peer = Peer()
    peer.feed(SASL_HEADER)
    [asked] = peer.sasl(Init(mechanism, b"\0user\0pass", "host"))
    assert isinstance(asked, SaslInit)
    assert (asked.mechanism, asked.initial_response, asked.hostname) == (mechanism, b"\0user\0pass", "host")
    peer.read()
    assert peer.connection.sasl_outcome(OK) == []
    [outcome] = peer.frames()
    assert (outcome.kind, outcome.name, outcome.fields) == (SASL_FRAME, "sasl-outcome", [0, None])
    peer.feed(AMQP_HEADER + frame(0, Open("client")))
    assert of(peer.events, Opened)
    assert peer.connection.mechanism == mechanism


def test_what_was_sent_ahead_is_read_after_the_outcome() -> None:
    peer = Peer()
    ahead = AMQP_HEADER + frame(0, Open("client")) + frame(1, Begin(0, 1, 1))
    events = peer.feed(SASL_HEADER + frame(0, Init("ANONYMOUS"), SASL_FRAME) + ahead)
    assert [type(event) for event in events] == [SaslInit]
    events = peer.connection.sasl_outcome(OK)
    assert [type(event) for event in events] == [Opened, SessionBegun]
    names = [one.name if isinstance(one, Frame) else one for one in peer.read()]
    assert names == [SASL_HEADER, "sasl-mechanisms", "sasl-outcome", AMQP_HEADER, "open", "begin"]


def test_refused_login_ends_the_connection() -> None:
    peer = Peer()
    peer.feed(SASL_HEADER)
    peer.sasl(Init("PLAIN", b"\0user\0wrong"))
    events = peer.connection.sasl_outcome(AUTH)
    assert of(events, Closed)[0].error.condition == "amqp:unauthorized-access"
    assert peer.frames()[-1].fields == [1, None]
    assert peer.feed(AMQP_HEADER + frame(0, Open("client"))) == []
    assert peer.read() == []


def test_refused_login_forgets_what_was_sent_ahead() -> None:
    peer = Peer()
    peer.feed(SASL_HEADER + frame(0, Init("PLAIN"), SASL_FRAME) + AMQP_HEADER + frame(0, Open("client")))
    assert not of(peer.connection.sasl_outcome(AUTH), Opened)
    assert not of(peer.connection.sasl_outcome(OK), Opened)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "plain", "", "X" * 100])
def test_mechanisms_that_were_not_offered_are_refused(mechanism) -> None:
    peer = Peer()
    peer.feed(SASL_HEADER)
    events = peer.sasl(Init(mechanism))
    assert [type(event) for event in events] == [Closed]
    assert peer.frames()[-1].fields == [1, None]


def test_too_much_sent_ahead_is_refused() -> None:
    peer = Peer()
    peer.feed(SASL_HEADER + frame(0, Init("PLAIN"), SASL_FRAME))
    peer.feed(b"\x00" * AMQP_UNREAD_BYTES)
    assert peer.closed is None
    peer.feed(b"\x00")
    assert peer.condition() == "amqp:connection:framing-error"


@pytest.mark.parametrize(
    "data",
    [
        AMQP_HEADER,
        frame(0, Open("client")),
        frame(0, SaslOutcome(0), SASL_FRAME),
        frame(0, Open("client"), SASL_FRAME),
        b"\x00\x00\x00\x08\x02\x01\x00\x00",
        b"\x00\x00\x00\x10\x02\x01\x00\x00\x00\x53\x43\xc0\x03\x01\xa0\x00",
    ],
)
def test_anything_but_an_init_fails_the_login(data) -> None:
    peer = Peer()
    peer.feed(SASL_HEADER)
    events = peer.feed(data)
    assert [type(event) for event in events] == [Closed]
    assert not of(peer.feed(AMQP_HEADER + frame(0, Open("client"))), Opened)


@pytest.mark.parametrize("again", [SASL_HEADER, b"AMQP\x00\x00\x09\x01"])
def test_only_the_amqp_header_follows_a_login(again) -> None:
    peer = Peer().logged_in()
    events = peer.feed(again)
    assert [type(event) for event in events] == [Closed]


def test_skipping_the_login_is_anonymous() -> None:
    peer = Peer().opened()
    assert peer.connection.mechanism == "ANONYMOUS"


def test_an_outcome_out_of_place_does_nothing() -> None:
    peer = Peer().opened()
    assert peer.connection.sasl_outcome(OK) == []
    assert peer.read() == []


@pytest.mark.parametrize(
    ("response", "credentials"),
    [
        (b"\0user\0pass", ("user", "pass")),
        (b"admin\0user\0pass", ("user", "pass")),
        (b"\0user\0", ("user", "")),
        (b"\0\0pass", None),
        (b"user\0pass", None),
        (b"", None),
        (b"\0user\0pa\0ss", None),
        (b"\0\xff\0pass", None),
    ],
)
def test_plain_responses(response, credentials) -> None:
    assert plain_credentials(response) == credentials
