"""Headers, frames, open, begin, end, close, heartbeats. AMQP 1.0 §2.2-2.5; docs/protocol/amqp.md#transport."""

from __future__ import annotations

import struct

import pytest

from polybus.amqp.events import Closed, LinkDetached, Opened, SessionBegun, SessionEnded
from polybus.amqp.frames import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER, TLS_HEADER, frame
from polybus.amqp.outcomes import AmqpError
from polybus.amqp.performatives import Attach, Begin, Close, Detach, End, Open
from polybus.limits import (
    AMQP_CHANNEL_MAX,
    AMQP_CLOSE_MS,
    AMQP_FRAME_BYTES,
    AMQP_FRAME_BYTES_BEFORE_OPEN,
    AMQP_HANDSHAKE_MS,
    AMQP_IDLE_TIMEOUT_MS,
)
from tests.protocol.peer import Frame, Peer, error_of, of


def test_amqp_header_is_echoed() -> None:
    peer = Peer()
    peer.feed(AMQP_HEADER)
    assert peer.read() == [AMQP_HEADER]


@pytest.mark.parametrize(
    "header", [TLS_HEADER, b"AMQP\x00\x00\x09\x01", b"AMQP\x01\x01\x00\x00", b"GET / HT", b"\x00" * 8]
)
def test_other_headers_get_ours_and_the_end(header) -> None:
    peer = Peer()
    peer.feed(header)
    assert peer.read() == [SASL_HEADER]
    assert peer.condition() == "amqp:connection:framing-error"


def test_login_can_be_required() -> None:
    peer = Peer(login_required=True)
    peer.feed(AMQP_HEADER + frame(0, Open("client")))
    assert peer.read() == [SASL_HEADER]
    assert not of(peer.events, Opened)


def test_open_is_answered_with_our_limits() -> None:
    peer = Peer()
    peer.feed(AMQP_HEADER)
    peer.read()
    events = peer.send(Open("client", "host", idle_time_out=60_000), 0)
    assert of(events, Opened)[0].open.container_id == "client"
    [answer] = peer.frames("open")
    assert answer.fields == ["polybus", None, 65_536, 4_999, 120_000, None, None, None, None, None]


def test_pipelined_start_is_answered_in_order() -> None:
    """Python sends all of this before it reads anything (docs/protocol/amqp.md#pipelined-start)."""
    peer = Peer()
    peer.feed(AMQP_HEADER + frame(0, Open("client")) + frame(1, Begin(0, 10, 10)))
    header, opened, begun = peer.read()
    assert header == AMQP_HEADER
    assert isinstance(opened, Frame)
    assert isinstance(begun, Frame)
    assert (opened.name, begun.name) == ("open", "begin")


def test_begin_reply_names_the_remote_channel() -> None:
    peer = Peer().opened()
    events = peer.send(Begin(7, 10, 10), 3)
    [begun] = peer.frames("begin")
    assert of(events, SessionBegun)[0].session.channel == 3
    assert begun.channel == 3
    assert begun.fields == [3, 1 << 20, 5_000, 5_000, 255, None, None, None]


def test_end_is_answered_and_the_channel_is_free_again() -> None:
    peer = Peer().opened()
    events = peer.send(End())
    assert [one.name for one in peer.frames()] == ["end"]
    assert of(events, SessionEnded)
    assert of(peer.send(Begin(0, 10, 10)), SessionBegun)


def test_close_is_answered_and_ends_everything_in_order() -> None:
    peer = Peer().opened()
    peer.attach(0, False)
    peer.read()
    events = peer.send(Close(AmqpError("amqp:internal-error", "bye")), 0)
    assert [type(event) for event in events] == [LinkDetached, SessionEnded, Closed]
    assert peer.condition() == "amqp:internal-error"
    assert [one.fields for one in peer.frames()] == [[None]]
    assert peer.feed(frame(0, Open("again"))) == []


def test_we_close_and_wait_for_the_peer() -> None:
    peer = Peer().opened()
    events = peer.connection.close(AmqpError("amqp:connection:forced", "shutting down"))
    assert of(events, SessionEnded)
    assert not of(events, Closed)
    [close] = peer.frames()
    assert error_of(close, 0) == ("amqp:connection:forced", "shutting down")
    assert peer.send(End()) == []
    assert of(peer.send(Close(), 0), Closed)
    assert peer.read() == []


def test_a_peer_that_never_answers_our_close_is_dropped() -> None:
    peer = Peer().opened()
    peer.connection.close()
    assert peer.connection.next_tick_ms == AMQP_CLOSE_MS
    assert peer.connection.tick(AMQP_CLOSE_MS - 1) == []
    assert of(peer.connection.tick(AMQP_CLOSE_MS), Closed)


def test_lost_transport_reports_what_was_on_it() -> None:
    peer = Peer().opened()
    peer.attach(0, True)
    peer.read()
    events = peer.connection.lost()
    assert [type(event) for event in events] == [LinkDetached, SessionEnded, Closed]
    assert peer.connection.lost() == []
    assert peer.connection.output() == b""


def test_frames_on_a_channel_without_session_close_the_connection() -> None:
    peer = Peer().opened()
    peer.send(End(), 9)
    assert peer.condition() == "amqp:illegal-state"
    close = peer.frames()[-1]
    assert close.name == "close"
    assert error_of(close, 0)[0] == "amqp:illegal-state"


def test_links_that_are_detached_after_their_session_has_ended_are_no_error() -> None:
    peer = Peer().opened()
    peer.attach(0, True)
    peer.send(End())
    peer.send(Detach(0))
    assert peer.condition() is None
    peer.send(Begin(0, 1, 1))
    peer.send(End())
    peer.send(Attach("late", 0, True))
    assert peer.condition() == "amqp:illegal-state"


def test_begin_twice_on_a_channel_closes_the_connection() -> None:
    peer = Peer().opened()
    peer.send(Begin(0, 1, 1))
    assert peer.condition() == "amqp:illegal-state"


def test_channel_beyond_channel_max_is_a_framing_error() -> None:
    peer = Peer().opened()
    peer.send(Begin(0, 1, 1), AMQP_CHANNEL_MAX + 1)
    assert peer.condition() == "amqp:connection:framing-error"


def test_channel_beyond_the_peers_own_maximum_is_refused() -> None:
    peer = Peer().opened(channel_max=4)
    peer.send(Begin(0, 1, 1), 5)
    assert peer.condition() == "amqp:not-allowed"


@pytest.mark.parametrize(
    ("fields", "condition"),
    [({"max_frame_size": 511}, "amqp:invalid-field"), ({"idle_time_out": 1}, "amqp:invalid-field")],
)
def test_unusable_open_gets_open_and_close(fields, condition) -> None:
    peer = Peer()
    peer.feed(AMQP_HEADER)
    peer.send(Open("client", **fields), 0)
    assert [one.name for one in peer.frames()] == ["open", "close"]
    assert peer.condition() == condition


def test_open_on_another_channel_is_refused() -> None:
    peer = Peer()
    peer.feed(AMQP_HEADER)
    peer.send(Open("client"), 1)
    assert peer.condition() == "amqp:connection:framing-error"


@pytest.mark.parametrize("size", [0, 1, 7, AMQP_FRAME_BYTES + 1, 0x8000_0000, 0xFFFF_FFFF])
def test_frame_sizes_are_checked_with_their_four_bytes(size) -> None:
    peer = Peer().opened()
    peer.feed(struct.pack(">I", size))
    assert peer.condition() == "amqp:connection:framing-error"


@pytest.mark.parametrize("size", [AMQP_FRAME_BYTES_BEFORE_OPEN + 1, AMQP_FRAME_BYTES])
def test_frames_before_open_are_smaller(size) -> None:
    peer = Peer()
    peer.feed(AMQP_HEADER + struct.pack(">I", size))
    assert peer.condition() == "amqp:connection:framing-error"


@pytest.mark.parametrize("offset", [0, 1, 3, 255])
def test_data_offset_is_checked(offset) -> None:
    peer = Peer().opened()
    peer.feed(struct.pack(">IBBH", 8, offset, 0, 0))
    assert peer.condition() == "amqp:connection:framing-error"


def test_extended_header_is_skipped() -> None:
    peer = Peer().opened()
    body = frame(1, End())[8:]
    peer.feed(struct.pack(">IBBH", 12 + len(body), 3, 0, 1) + b"ext!" + body)
    assert of(peer.events, SessionEnded)


@pytest.mark.parametrize("kind", [1, 2, 255])
def test_frame_type_is_checked(kind) -> None:
    peer = Peer().opened()
    peer.feed(struct.pack(">IBBH", 8, 2, kind, 0))
    assert peer.condition() == "amqp:connection:framing-error"


@pytest.mark.parametrize(
    "body",
    [
        b"\x40",
        b"\x00",
        b"\x00\x53",
        b"\x00\x53\x17",
        b"\x00\x53\x17\x40",
        b"\x00\x53\x99\xc0\x01\x00",
        b"\x00\xa3\x03abc\xc0\x01\x00",
        b"\x00\x53\x17\xc0\x05\x01",
        b"\x00\x53\x17\xc0\x01\x01",
        b"\x00\x53\x17\xc0\x01\x00\x40",
        b"\x00\x53\x17\xd0\x00\x00\x00\x04\xff\xff\xff\xff",
        b"\x00\x53\x17\xd0\xff\xff\xff\xff\x00\x00\x00\x01\x40",
    ],
)
def test_malformed_bodies_are_decode_errors(body) -> None:
    peer = Peer().opened()
    peer.feed(struct.pack(">IBBH", 8 + len(body), 2, 0, 1) + body)
    assert peer.condition() == "amqp:decode-error"
    assert peer.frames()[-1].name == "close"


@pytest.mark.parametrize(
    "descriptor", [b"\x80\x00\x00\x00\x00\x00\x00\x00\x17", b"\xa3\x0damqp:end:list", b"\x53\x17"]
)
def test_all_forms_of_descriptors_are_read(descriptor) -> None:
    peer = Peer().opened()
    body = b"\x00" + descriptor + b"\x45"
    peer.feed(struct.pack(">IBBH", 8 + len(body), 2, 0, 1) + body)
    assert of(peer.events, SessionEnded)


def test_wrong_field_types_are_invalid_fields() -> None:
    peer = Peer().opened()
    body = b"\x00\x53\x11\xc0\x06\x04\x40\xa1\x00\x43\x43"
    peer.feed(struct.pack(">IBBH", 8 + len(body), 2, 0, 2) + body)
    assert peer.condition() == "amqp:invalid-field"


def test_integers_of_any_width_are_taken() -> None:
    """docs/protocol/amqp.md#integers: here a begin with ubyte, long and smallulong."""
    peer = Peer().opened()
    fields = b"\x40\x50\x01\x81" + struct.pack(">q", 10) + b"\x53\x0a"
    body = b"\x00\x53\x11\xc0" + bytes((len(fields) + 1, 4)) + fields
    peer.feed(struct.pack(">IBBH", 8 + len(body), 2, 0, 2) + body)
    assert len(of(peer.events, SessionBegun)) == 2


def test_heartbeat_is_sent_at_half_of_the_peers_timeout() -> None:
    peer = Peer().opened(idle_time_out=60_000)
    assert peer.connection.next_tick_ms == 30_000
    assert peer.connection.tick(29_999) == []
    assert peer.connection.output() == b""
    peer.connection.tick(30_000)
    assert peer.connection.output() == EMPTY_FRAME
    assert peer.connection.next_tick_ms == 60_000


def test_no_heartbeat_where_something_else_was_sent() -> None:
    peer = Peer().opened(idle_time_out=60_000)
    peer.now_ms = 20_000
    peer.send(End())
    peer.read()
    peer.connection.tick(30_000)
    assert peer.connection.output() == b""
    assert peer.connection.next_tick_ms == 50_000


def test_no_heartbeat_for_a_peer_without_timeout() -> None:
    peer = Peer().opened()
    assert peer.connection.next_tick_ms == AMQP_IDLE_TIMEOUT_MS
    peer.connection.tick(AMQP_IDLE_TIMEOUT_MS - 1)
    assert peer.connection.output() == b""


def test_silence_beyond_what_we_advertise_closes() -> None:
    peer = Peer().opened()
    assert peer.connection.tick(AMQP_IDLE_TIMEOUT_MS - 1) == []
    events = peer.connection.tick(AMQP_IDLE_TIMEOUT_MS)
    assert of(events, Closed)[0].error.condition == "amqp:connection:forced"
    assert peer.frames()[-1].name == "close"
    assert peer.connection.next_tick_ms is None


def test_heartbeats_of_the_peer_keep_it_alive() -> None:
    peer = Peer().opened()
    peer.now_ms = 100_000
    assert peer.feed(EMPTY_FRAME) == []
    assert peer.connection.tick(AMQP_IDLE_TIMEOUT_MS) == []
    assert peer.connection.next_tick_ms == 100_000 + AMQP_IDLE_TIMEOUT_MS


def test_a_trickle_of_bytes_does_not_keep_a_connection_alive() -> None:
    peer = Peer().opened()
    peer.now_ms = 100_000
    peer.feed(EMPTY_FRAME[:5])
    assert of(peer.connection.tick(AMQP_IDLE_TIMEOUT_MS), Closed)


@pytest.mark.parametrize("sent", [b"", b"AMQP", AMQP_HEADER, SASL_HEADER])
def test_a_slow_handshake_is_dropped(sent) -> None:
    peer = Peer()
    peer.feed(sent)
    assert peer.connection.next_tick_ms == AMQP_HANDSHAKE_MS
    assert peer.connection.tick(AMQP_HANDSHAKE_MS - 1) == []
    assert of(peer.connection.tick(AMQP_HANDSHAKE_MS), Closed)
