"""Mistakes that others made, each as a test with the advisory's name, before and after login.

What must hold every time: an event or one protocol error, and no more memory than was received.
"""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable

import pytest

from polybus.amqp.codec import encode
from polybus.amqp.events import Closed, Disposed, IncomingDelivery, LinkDetached, Opened, SaslInit, SessionEnded
from polybus.amqp.frames import AMQP_HEADER, EMPTY_FRAME, SASL_FRAME, SASL_HEADER, frame
from polybus.amqp.outcomes import ACCEPTED
from polybus.amqp.performatives import Attach, Begin, Open
from polybus.amqp.sasl import Init
from polybus.amqp.traffic import Disposition, Flow, Transfer
from polybus.amqp.types import Described, Symbol, UInt, ULong
from polybus.limits import (
    AMQP_FRAME_BYTES,
    AMQP_FRAME_BYTES_BEFORE_OPEN,
    AMQP_FRAMES_PER_DELIVERY,
    AMQP_PARTIAL_BYTES,
    AMQP_UNSETTLED_OVERRUN,
    PREMIUM_MESSAGE_BYTES_MAX,
)
from tests.protocol.peer import Peer, error_of, of

FIRST = 1 << 20
MEGABYTE = 1024 * 1024


def ids(*names: str) -> list[str]:
    return list(names)


def in_login(body: bytes) -> Peer:
    """`body` as a frame where sasl-init is due."""
    peer = Peer()
    peer.feed(SASL_HEADER)
    peer.feed(struct.pack(">IBBH", 8 + len(body), 2, 1, 0) + body)
    return peer


def before_open(body: bytes) -> Peer:
    peer = Peer()
    peer.feed(AMQP_HEADER)
    peer.feed(struct.pack(">IBBH", 8 + len(body), 2, 0, 0) + body)
    return peer


def after_open(body: bytes) -> Peer:
    peer = Peer().opened()
    peer.feed(struct.pack(">IBBH", 8 + len(body), 2, 0, 1) + body)
    return peer


MOMENTS = [(in_login, 0x41), (before_open, 0x10), (after_open, 0x12)]


def as_performative(code: int, value: bytes) -> bytes:
    """`value` as the only field of a performative."""
    return b"\x00\x53" + bytes((code,)) + b"\xd0" + struct.pack(">II", len(value) + 4, 1) + value


def peak_of(action: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


HUGE = [
    b"\xb0\xff\xff\xff\xff",
    b"\xb1\x7f\xff\xff\xff",
    b"\xb3\xff\xff\xff\xfbx",
    b"\xd0\x00\x00\x00\x04\xff\xff\xff\xff",
    b"\xd0\xff\xff\xff\xff\x00\x00\x00\x01\x40",
    b"\xd1\x00\x00\x00\x04\xff\xff\xff\xfe",
    b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40",
    b"\xf0\x00\x00\x00\x06\x7f\xff\xff\xff\x50\x01",
    b"\xf0\xff\xff\xff\xfc\xff\xff\xff\xff\x45",
    b"\xc0\xff\xff",
]


@pytest.mark.parametrize(
    "advisory",
    ids(
        "CVE-2026-66273",
        "CVE-2026-67551",
        "CVE-2026-67589",
        "CVE-2026-68060",
        "CVE-2026-92550",
        "CVE-2026-92560",
        "CVE-2024-21646",
        "CVE-2026-69219",
        "CVE-2026-53917",
        "CVE-2026-50734",
    ),
)
@pytest.mark.parametrize(("moment", "code"), MOMENTS)
def test_sizes_and_counts_are_not_believed(advisory, moment, code) -> None:
    for value in HUGE:
        body = as_performative(code, value)
        assert peak_of(lambda body=body: moment(body)) < MEGABYTE
        assert moment(body).condition() == "amqp:decode-error"


@pytest.mark.parametrize(
    "advisory",
    ids("CVE-2026-66274", "CVE-2026-67552", "CVE-2026-67590", "CVE-2026-68073", "CVE-2026-92564", "CVE-2026-69220"),
)
@pytest.mark.parametrize(("moment", "code"), MOMENTS)
@pytest.mark.parametrize("shape", ["lists", "descriptors", "arrays", "described lists"])
def test_nesting_is_bounded(advisory, moment, code, shape) -> None:
    value = b"\x40"
    while len(value) < 3_000:
        size = len(value)
        if shape == "lists":
            value = b"\xd0" + struct.pack(">II", size + 4, 1) + value
        elif shape == "descriptors":
            value = b"\x00" + value + b"\x40"
        elif shape == "arrays":
            value = b"\xf0" + struct.pack(">II", size + 4, 1) + value
        else:
            value = b"\x00\x53\x28\xd0" + struct.pack(">II", size + 4, 1) + value
    assert moment(as_performative(code, value)).condition() == "amqp:decode-error"


@pytest.mark.parametrize("advisory", ids("CVE-2026-66257", "CVE-2026-67465", "CVE-2026-67588", "CVE-2026-68074"))
def test_symbols_are_not_kept(advisory) -> None:
    """Mechanisms before login, property names after: nothing of them stays in memory."""

    def logins() -> None:
        for number in range(500):
            peer = Peer()
            peer.feed(SASL_HEADER + frame(0, Init(f"MECHANISM-{number}" + "x" * 200), SASL_FRAME))
            assert peer.closed

    def opens() -> None:
        peer = Peer().opened()
        for number in range(500):
            properties: dict[object, object] = {Symbol(f"property-{number}-{n}"): n for n in range(5)}
            peer.send(Begin(0, 1, 1, properties=properties), 2 + number % 100)
            peer.connection.sessions.clear()
            peer.events.clear()
            peer.read()

    for story in (logins, opens):
        story()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        story()
        kept = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert kept < 100_000


@pytest.mark.parametrize("advisory", ids("CVE-2017-15701", "CVE-2026-79921", "CVE-2023-46120"))
@pytest.mark.parametrize("size", [AMQP_FRAME_BYTES + 1, 0x7FFF_FFFF, 0xFFFF_FFFF])
def test_frame_sizes_are_enforced(advisory, size) -> None:
    for start in (SASL_HEADER, AMQP_HEADER):
        peer = Peer()
        peer.feed(start + struct.pack(">I", size))
        assert peer.condition() == "amqp:connection:framing-error"
    peer = Peer().opened()
    peer.feed(struct.pack(">I", size))
    assert peer.condition() == "amqp:connection:framing-error"


@pytest.mark.parametrize("advisory", ids("CVE-2017-15701"))
def test_frames_before_login_are_smaller(advisory) -> None:
    for start in (SASL_HEADER, AMQP_HEADER):
        peer = Peer()
        peer.feed(start + struct.pack(">I", AMQP_FRAME_BYTES_BEFORE_OPEN + 1))
        assert peer.condition() == "amqp:connection:framing-error"


@pytest.mark.parametrize(
    "advisory", ids("CVE-2026-66276", "CVE-2026-67554", "CVE-2026-68077", "CVE-2015-0203", "CVE-2015-0224")
)
def test_work_on_a_disposition_is_that_of_the_known_deliveries(advisory) -> None:
    """Two thousand ranges of two thousand million deliveries each: were they walked, this would not end."""
    peer = Peer().opened()
    link = peer.receiver(1)
    peer.send(Flow(FIRST, 100, 0, 100, 1, 0, 3))
    for number in range(3):
        link.send(b"t", b"x", context=number)
    wide = frame(1, Disposition(True, FIRST, FIRST + 0x7FFF_FFF0, False, ACCEPTED))
    own = frame(1, Disposition(False, 0, 0x7FFF_FFFF, True))
    events = peer.feed((wide + own) * 1_000)
    [decided] = of(events, Disposed)
    assert [one.context for one in decided.deliveries] == [0, 1, 2]


@pytest.mark.parametrize("advisory", ids("CVE-2015-0203", "CVE-2015-0224"))
@pytest.mark.parametrize(("first", "last"), [(5, 4), (FIRST + 1, FIRST), (0, 0xFFFF_FFFF), (0, 0x8000_0000)])
def test_illegal_ranges_end_the_session_only(advisory, first, last) -> None:
    peer = Peer().opened()
    events = peer.send(Disposition(True, first, last, True, ACCEPTED))
    assert [type(event) for event in events] == [SessionEnded]
    assert peer.closed is None


@pytest.mark.parametrize("advisory", ids("CVE-2026-66275", "CVE-2026-67553", "CVE-2026-67591", "CVE-2026-68075"))
def test_a_peer_that_ignores_credit_and_window_is_stopped(advisory) -> None:
    peer = Peer().opened()
    peer.sender(0, credit=10)
    bulk = [frame(1, Transfer(0, number, b"t", 0)) for number in range(AMQP_UNSETTLED_OVERRUN + 20)]
    peer.feed(b"".join(bulk))
    assert len(of(peer.events, IncomingDelivery)) == AMQP_UNSETTLED_OVERRUN + 10
    assert of(peer.events, SessionEnded)
    assert error_of(peer.frames("end")[-1], 0)[0] == "amqp:session:window-violation"


@pytest.mark.parametrize("advisory", ids("CVE-2026-66277", "CVE-2026-67555", "CVE-2026-67592", "CVE-2026-68078"))
@pytest.mark.parametrize("size", [0, 10])
def test_frames_of_one_delivery_are_bounded(advisory, size) -> None:
    peer = Peer().opened()
    peer.sender(0)
    one = frame(1, Transfer(0, 0, b"t", 0, more=True), payload=b"x" * size)
    peer.feed(one * (AMQP_FRAMES_PER_DELIVERY + 10))
    assert len(of(peer.events, LinkDetached)) == 1
    assert not of(peer.events, IncomingDelivery)
    assert peer.closed is None


@pytest.mark.parametrize("advisory", ids("CVE-2026-68080"))
def test_echoes_are_answered_once(advisory) -> None:
    peer = Peer().opened()
    peer.receiver(1)
    peer.sender(0)
    echoes = [
        frame(1, Flow(FIRST, 10, 0, 10, echo=True)),
        frame(1, Flow(FIRST, 10, 0, 10, 0, 0, echo=True)),
        frame(1, Flow(FIRST, 10, 0, 10, 1, 0, 5, echo=True)),
    ]
    peer.feed(b"".join(echoes) * 1_000)
    assert len(peer.connection.output()) < 200


BAD_ORDER = [
    [frame(0, Open("again"))],
    [frame(1, Begin(0, 1, 1))],
    [frame(7, Attach("x", 0, True))],
    [frame(7, Transfer(0, 0, b"t", 0))],
    [frame(7, Disposition(True, 0))],
    [frame(0, Init("PLAIN"), SASL_FRAME)],
    [AMQP_HEADER],
    [SASL_HEADER],
    [b"\x00" * 64],
    [b"\xff" * 64],
]


@pytest.mark.parametrize("advisory", ids("CVE-2015-0203", "CVE-2017-15699", "CVE-2019-0200", "CVE-2018-8030"))
@pytest.mark.parametrize("frames", BAD_ORDER)
def test_bad_frames_and_bad_order_close_one_connection(advisory, frames) -> None:
    bystander = Peer().opened()
    for peer in (Peer(), Peer().logged_in(), Peer().opened()):
        peer.feed(b"".join(frames))
        if frames == [AMQP_HEADER] or frames == [SASL_HEADER]:
            peer.feed(b"\x00" * 8)
        assert len(of(peer.events, Closed)) == 1
        peer.connection.output()
        assert peer.feed(EMPTY_FRAME) == []
    assert bystander.feed(EMPTY_FRAME) == []
    assert bystander.closed is None


@pytest.mark.parametrize("advisory", ids("CVE-2018-8030"))
def test_a_message_that_is_too_large_hurts_nobody(advisory) -> None:
    peer = Peer().opened()
    peer.sender(0, limit=1_000)
    chunk = frame(1, Transfer(0, 0, b"t", 0, more=True), payload=b"x" * 60_000)
    assert peak_of(lambda: [peer.feed(chunk) for _ in range(200)]) < MEGABYTE
    [event] = peer.send(Transfer(0), payload=b"end")
    assert event.oversized
    assert event.payload == b""


LOGINS = [
    b"",
    b"\x00",
    b"\x00\x53\x41\x45",
    b"\x00\x53\x41\xc0\x02\x01\x40",
    b"\x00\x53\x41" + encode(["PLAIN", b"\0user\0pass"]),
    b"\x00\x53\x41" + encode([Symbol("PLAIN"), "not binary"]),
    b"\x00\x53\x41" + encode([UInt(5)]),
    b"\x00\x53\x41" + encode({Symbol("PLAIN"): b""}),
    b"\x00\x53\x43" + encode([b"response without challenge"]),
    b"\x00\x53\x44" + encode([UInt(0)]),
    b"\x00\xa3\x20" + b"x" * 32 + b"\x45",
]


@pytest.mark.parametrize("advisory", ids("CVE-2016-3094", "CVE-2018-1298"))
@pytest.mark.parametrize("body", LOGINS)
def test_malformed_logins_are_ordinary_refusals(advisory, body) -> None:
    peer = in_login(body)
    if of(peer.events, SaslInit):
        peer.events += peer.connection.sasl_outcome(1)
    assert len(of(peer.events, Closed)) == 1
    assert peer.frames("sasl-outcome")[-1].fields == [1, None]


@pytest.mark.parametrize("advisory", ids("CVE-2016-4432", "CVE-2015-0223"))
@pytest.mark.parametrize("mechanisms", [["PLAIN"], ["PLAIN", "ANONYMOUS"]])
def test_a_login_cannot_be_skipped(advisory, mechanisms) -> None:
    rest = AMQP_HEADER + frame(0, Open("client")) + frame(1, Begin(0, 1, 1))
    init = frame(0, Init("PLAIN", b"\0user\0wrong"), SASL_FRAME)
    for data in (rest, SASL_HEADER + rest, SASL_HEADER + init + rest, SASL_HEADER + SASL_HEADER + rest):
        peer = Peer(login_required=True, mechanisms=mechanisms)
        peer.feed(data)
        peer.events += peer.connection.sasl_outcome(1)
        peer.feed(rest)
        assert not of(peer.events, Opened)
        assert not peer.connection.sessions


@pytest.mark.parametrize("advisory", ids("CVE-2015-0223"))
def test_anonymous_is_refused_where_it_is_not_offered(advisory) -> None:
    peer = Peer(login_required=True, mechanisms=["PLAIN"])
    peer.feed(SASL_HEADER + frame(0, Init("ANONYMOUS"), SASL_FRAME))
    assert not of(peer.events, SaslInit)
    assert peer.closed


@pytest.mark.parametrize("advisory", ids("CVE-2023-46604", "CVE-2026-63337"))
def test_names_of_classes_stay_text(advisory) -> None:
    hostile = Described(Symbol("subprocess.Popen"), ["true"])
    peer = Peer().opened()
    attach = Attach("x", 0, True, properties={Symbol("class"): hostile})
    [event] = peer.send(attach)
    assert event.attach.properties == {"class": hostile}
    assert type(event.attach.properties["class"]) is Described
    body = b"\x00\x53\x15" + encode([True, UInt(0), None, True, Described(Symbol("os:system:list"), ["true"])])
    assert after_open(body).condition() == "amqp:invalid-field"


@pytest.mark.parametrize("advisory", ids("CVE-2022-23913"))
def test_unfinished_deliveries_share_one_budget(advisory) -> None:
    peer = Peer().opened()
    links = [peer.sender(handle, limit=PREMIUM_MESSAGE_BYTES_MAX) for handle in range(2)]
    assert len(links) == 2
    peer.connection.hold(AMQP_PARTIAL_BYTES - 100_000)
    peer.send(Transfer(0, 0, b"t", 0, more=True), payload=b"x" * 60_000)
    assert peer.closed is None
    peer.send(Transfer(1, 1, b"t", 0, more=True), payload=b"x" * 60_000)
    assert peer.condition() == "amqp:resource-limit-exceeded"


def test_forged_keys_of_maps_are_refused() -> None:
    """A uuid's hash is a number that its author chooses: thousands of equal ones would cost their square."""
    prime = (1 << 61) - 1
    pairs = b"".join(b"\x98" + (prime * n).to_bytes(16, "big") + b"\x40" for n in range(1, 100))
    value = b"\xd1" + struct.pack(">II", len(pairs) + 4, 198) + pairs
    assert after_open(as_performative(0x12, value)).condition() == "amqp:decode-error"


def test_descriptors_of_states_are_numbers_or_known_names() -> None:
    peer = Peer().opened()
    peer.receiver(1)
    body = b"\x00\x53\x15" + encode([True, UInt(FIRST), None, True, Described(ULong(1 << 63), [])])
    peer.feed(struct.pack(">IBBH", 8 + len(body), 2, 0, 1) + body)
    assert peer.condition() == "amqp:invalid-field"
