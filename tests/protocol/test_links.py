"""Attach and detach: answers, refusals, cancellation, errors at the right level. docs/protocol/amqp.md#links."""

from __future__ import annotations

import pytest

from polybus.amqp.codec import encode
from polybus.amqp.events import Attached, Closed, CreditChanged, IncomingDelivery, LinkDetached, SessionEnded
from polybus.amqp.frames import frame
from polybus.amqp.incoming import IncomingLink
from polybus.amqp.outcomes import ACCEPTED_BYTES, AmqpError
from polybus.amqp.outgoing import OutgoingLink
from polybus.amqp.performatives import Attach, Begin, Close, Detach, End
from polybus.amqp.terminus import Coordinator, Source, Target
from polybus.amqp.traffic import Flow, Transfer
from polybus.amqp.types import Described, Symbol, UByte, UInt, ULong, symbol_array
from polybus.errors import BugError
from polybus.limits import AMQP_HANDLE_MAX, AMQP_HELD_DELIVERIES, AMQP_LINKS_PER_CONNECTION
from tests.protocol.peer import Peer, error_of, of

REFUSAL = AmqpError("amqp:not-found", "The messaging entity could not be found.")


def test_attach_is_the_callers_decision() -> None:
    peer = Peer().opened()
    events = peer.send(Attach("r", 3, True, Source("q"), Target("t"), properties={Symbol("a"): UInt(1)}))
    [asked] = events
    assert isinstance(asked, Attached)
    assert isinstance(asked.link, OutgoingLink)
    assert asked.attach.properties == {"a": 1}
    assert asked.link.pending
    assert peer.read() == []


def test_accept_echoes_modes_and_both_ends() -> None:
    peer = Peer().opened()
    filters: dict[object, object] = {Symbol("com.microsoft:session-filter"): "s1"}
    others: list[object] = ["q", UInt(2), Symbol("never"), UInt(0), False, None, Symbol("move"), filters]
    source = Source("q", filters, others)
    link = peer.attach(3, True, "name", source=source, snd_settle_mode=1, rcv_settle_mode=0)
    assert link.accept(max_message_size=262_144) == []
    [answer] = peer.frames()
    assert answer.fields[:5] == ["name", 3, False, 1, 0]
    assert [type(answer.fields[index]) for index in (1, 3, 4)] == [UInt, UByte, UByte]
    assert answer.fields[5] == Described(ULong(0x28), [*others, None, None, None])
    assert answer.fields[6] == Described(ULong(0x29), ["t", None, None, None, None, None, None])
    assert answer.fields[7:] == [None, None, 0, 262_144, None, None, {}]


@pytest.mark.parametrize("mode", [None, 0, 1, 2])
def test_settle_modes_are_mirrored_also_when_null(mode) -> None:
    """Go refuses other modes than it asked for, and asks for null (docs/protocol/amqp.md#settle-modes)."""
    peer = Peer().opened()
    peer.attach(0, True, snd_settle_mode=mode).accept()
    assert peer.frames()[0].fields[3] == mode


def test_sending_clients_get_no_initial_delivery_count() -> None:
    peer = Peer().opened()
    peer.attach(0, False).accept()
    answer = peer.frames()[0]
    assert answer.fields[2] is True
    assert answer.fields[9] is None


def test_ends_are_never_null_on_success() -> None:
    """Python drops a link with a null end (docs/protocol/amqp.md#null-ends)."""
    peer = Peer().opened()
    peer.attach(0, True, target=None, source=None).accept()
    answer = peer.frames()[0]
    assert answer.fields[5] == Described(ULong(0x28), [None] * 11)
    assert answer.fields[6] == Described(ULong(0x29), [None] * 7)


def test_accept_can_answer_other_ends_and_properties() -> None:
    peer = Peer().opened()
    link = peer.attach(0, True)
    link.accept(source=Source("other"), properties={Symbol("k"): "v"})
    answer = peer.frames()[0]
    assert answer.fields[5].value[0] == "other"
    assert answer.fields[13] == {"k": "v"}


def test_coordinator_is_echoed_with_its_capabilities() -> None:
    peer = Peer().opened()
    capabilities = symbol_array(["amqp:local-transactions"])
    link = peer.attach(0, False, target=Coordinator(capabilities))
    assert isinstance(link.attach.target, Coordinator)
    link.accept()
    assert peer.frames()[0].fields[6] == Described(ULong(0x30), [capabilities])


def test_refusal_is_attach_and_detach_back_to_back() -> None:
    peer = Peer().opened()
    link = peer.attach(4, True)
    link.refuse(REFUSAL)
    attach, detach = peer.frames()
    assert attach.fields[:3] == ["link-4", 4, False]
    assert (attach.fields[5], attach.fields[6], attach.fields[9]) == (None, None, 0)
    assert detach.fields[:2] == [4, True]
    assert error_of(detach, 2) == (REFUSAL.condition, REFUSAL.description)
    assert peer.send(Detach(4, True)) == []
    assert peer.read() == []


def test_frames_on_a_refused_link_are_ignored_until_the_peer_knows() -> None:
    peer = Peer().opened()
    peer.attach(0, False).refuse(REFUSAL)
    peer.attach(1, True).refuse(REFUSAL)
    peer.read()
    assert peer.send(Transfer(0, 0, b"t", 0), payload=b"x") == []
    assert peer.send(Flow(0, 10, 0, 10, 1, 0, 10)) == []
    assert peer.send(Flow(0, 10, 0, 10, 0, 1)) == []
    assert peer.send(Detach(0, True)) == []
    assert peer.read() == []
    peer.attach(0, False)


def test_pending_attach_is_cancelled_by_detach() -> None:
    peer = Peer().opened()
    link = peer.attach(4, True)
    events = peer.send(Detach(4, True))
    assert [type(event) for event in events] == [LinkDetached]
    assert [one.name for one in peer.frames()] == ["attach", "detach"]
    assert link.accept() == []
    link.refuse(REFUSAL)
    assert peer.read() == []


@pytest.mark.parametrize(("ending", "channel", "answer"), [(End(), 1, "end"), (Close(), 0, "close")])
def test_pending_attach_is_cancelled_by_end_and_close(ending, channel, answer) -> None:
    """A late attach reply makes .NET close its connection (docs/protocol/amqp.md#late-frames)."""
    peer = Peer().opened()
    link = peer.attach(4, True)
    events = peer.send(ending, channel)
    assert isinstance(events[0], LinkDetached)
    assert events[0].closed
    assert [one.name for one in peer.frames()] == [answer]
    assert link.accept() == []
    link.refuse(REFUSAL)
    link.detach()
    assert peer.read() == []


def test_detach_is_answered_with_the_same_closed() -> None:
    peer = Peer().opened()
    peer.sender(0)
    peer.receiver(1)
    for handle, closed in ((0, True), (1, False)):
        [event] = peer.send(Detach(handle, closed))
        assert isinstance(event, LinkDetached)
        assert event.closed is closed
        [answer] = peer.frames()
        assert answer.fields == [handle, closed, None]


def test_nothing_leaves_for_a_link_after_the_peers_detach() -> None:
    peer = Peer().opened()
    sender = peer.sender(0)
    receiver = peer.receiver(1)
    peer.send(Flow(1 << 20, 10, 0, 10, 1, 0, 5, drain=True))
    peer.send(Transfer(0, 7, b"t", 0), payload=b"x")
    delivery = receiver.send(b"t", b"x")
    assert delivery is not None
    peer.read()
    peer.send(Detach(0, True))
    peer.send(Detach(1, True))
    peer.read()
    sender.settle_incoming(7, ACCEPTED_BYTES)
    sender.grant(5)
    delivery.settle(ACCEPTED_BYTES)
    receiver.drained()
    assert receiver.send(b"t", b"x") is None
    assert receiver.sendable == 0
    sender.detach()
    assert peer.connection.output() == b""


def test_nothing_leaves_for_a_session_after_the_peers_end() -> None:
    peer = Peer().opened()
    sender = peer.sender(0)
    receiver = peer.receiver(1)
    peer.send(Flow(1 << 20, 10, 0, 10, 1, 0, 5, echo=True))
    peer.send(Transfer(0, 7, b"t", 0), payload=b"x")
    sender.settle_incoming(7, ACCEPTED_BYTES)
    peer.send(End())
    assert [one.name for one in peer.frames()] == ["end"]
    assert receiver.send(b"t", b"x") is None
    receiver.session.settle(1 << 20, ACCEPTED_BYTES)
    assert receiver.session.end() == []
    assert peer.connection.output() == b""


def test_we_detach_with_an_error_and_swallow_the_answer() -> None:
    peer = Peer().opened()
    link = peer.sender(0)
    link.detach(AmqpError("amqp:link:detach-forced", "idle"))
    [detach] = peer.frames()
    assert detach.fields[:2] == [0, True]
    assert error_of(detach, 2) == ("amqp:link:detach-forced", "idle")
    assert peer.send(Transfer(0, 0, b"t", 0), payload=b"x") == []
    assert peer.send(Detach(0, True)) == []
    assert peer.read() == []


def test_detaching_a_pending_link_refuses_it() -> None:
    peer = Peer().opened()
    peer.attach(0, False).detach()
    assert [one.name for one in peer.frames()] == ["attach", "detach"]


def test_accepting_twice_is_our_bug() -> None:
    link = Peer().opened().sender(0)
    with pytest.raises(BugError):
        link.accept()


def test_handle_in_use_ends_the_session() -> None:
    peer = Peer().opened()
    peer.sender(0)
    events = peer.send(Attach("other", 0, True))
    assert [type(event) for event in events] == [LinkDetached, SessionEnded]
    [end] = peer.frames()
    assert error_of(end, 0)[0] == "amqp:session:handle-in-use"
    assert peer.closed is None


@pytest.mark.parametrize("stray", [Detach(9, True), Transfer(9, 0, b"t", 0), Flow(0, 1, 0, 1, 9, 0, 1)])
def test_unattached_handle_ends_the_session(stray) -> None:
    peer = Peer().opened()
    events = peer.send(stray)
    assert [type(event) for event in events] == [SessionEnded]
    [end] = peer.frames()
    assert error_of(end, 0)[0] == "amqp:session:unattached-handle"


def test_a_session_that_we_ended_swallows_frames_until_the_peers_end() -> None:
    peer = Peer().opened()
    peer.send(Detach(9, True))
    peer.read()
    assert peer.send(Attach("late", 0, True)) == []
    assert peer.send(Transfer(0, 0, b"t", 0)) == []
    assert peer.send(Flow(0, 1, 0, 1)) == []
    assert peer.send(End()) == []
    assert peer.read() == []
    peer.send(Begin(0, 1, 1))
    assert [one.name for one in peer.frames()] == ["begin"]


def test_a_failed_session_leaves_the_others_alone() -> None:
    peer = Peer().opened()
    peer.send(Begin(0, 10, 10), 2)
    peer.read()
    peer.send(Detach(9, True), 1)
    events = peer.send(Attach("fine", 0, False), 2)
    assert isinstance(events[0], Attached)


def test_handle_beyond_handle_max_closes_the_connection() -> None:
    peer = Peer().opened()
    peer.send(Attach("x", AMQP_HANDLE_MAX + 1, True))
    assert peer.condition() == "amqp:connection:framing-error"


def test_handle_beyond_the_peers_own_maximum_ends_the_session() -> None:
    peer = Peer().opened()
    peer.send(Begin(0, 1, 1, handle_max=3), 2)
    peer.read()
    peer.send(Attach("x", 4, True), 2)
    assert error_of(peer.frames()[0], 0)[0] == "amqp:not-allowed"


def test_links_of_a_connection_are_bounded() -> None:
    peer = Peer().opened()
    attaches = [frame(1, Attach("x", handle, True)) for handle in range(AMQP_HANDLE_MAX + 1)]
    channel = 1
    while not of(peer.events, SessionEnded):
        channel += 1
        peer.send(Begin(0, 1, 1), channel)
        peer.feed(b"".join(one[:6] + channel.to_bytes(2, "big") + one[8:] for one in attaches))
    assert len(of(peer.events, Attached)) == AMQP_LINKS_PER_CONNECTION
    assert peer.connection.link_count < AMQP_LINKS_PER_CONNECTION
    assert peer.closed is None


def test_detached_links_make_room() -> None:
    peer = Peer().opened()
    for _ in range(AMQP_LINKS_PER_CONNECTION + 1):
        peer.feed(frame(1, Attach("x", 0, True)) + frame(1, Detach(0, True)))
    assert peer.connection.link_count == 0
    assert not of(peer.events, SessionEnded)


def test_what_is_sent_before_the_answer_is_held_for_the_caller() -> None:
    """Python counts no credit and may send before its link is answered (docs/protocol/amqp.md#transfers)."""
    peer = Peer().opened()
    link = peer.attach(0, False)
    assert isinstance(link, IncomingLink)
    assert peer.send(Transfer(0, 0, b"a", 0), payload=b"small") == []
    assert peer.send(Transfer(0, 1, b"b", 0), payload=b"x" * 100) == []
    first, second = link.accept(max_message_size=50)
    assert isinstance(first, IncomingDelivery)
    assert isinstance(second, IncomingDelivery)
    assert (first.payload, first.oversized) == (b"small", False)
    assert (second.payload, second.oversized) == (b"", True)
    link.settle_incoming(0, ACCEPTED_BYTES)
    assert [one.name for one in peer.frames()] == ["attach", "disposition"]


def test_credit_given_before_the_answer_is_told_on_accept() -> None:
    peer = Peer().opened()
    link = peer.attach(1, True)
    assert peer.send(Flow(1 << 20, 10, 0, 10, 1, 0, 5)) == []
    [event] = link.accept()
    assert isinstance(event, CreditChanged)
    assert link.credit == 5


def test_too_much_sent_before_the_answer_is_refused() -> None:
    peer = Peer().opened()
    peer.attach(0, False)
    for number in range(AMQP_HELD_DELIVERIES):
        assert peer.send(Transfer(0, number, b"t", 0), payload=b"x") == []
    events = peer.send(Transfer(0, AMQP_HELD_DELIVERIES, b"t", 0), payload=b"x")
    assert isinstance(events[0], LinkDetached)
    assert error_of(peer.frames()[-1], 2)[0] == "amqp:resource-limit-exceeded"


def test_a_transfer_on_a_receiving_link_detaches_it() -> None:
    peer = Peer().opened()
    peer.receiver(1)
    [event] = peer.send(Transfer(1, 0, b"t", 0), payload=b"x")
    assert isinstance(event, LinkDetached)
    assert error_of(peer.frames()[0], 2)[0] == "amqp:not-allowed"
    assert not of(peer.events, Closed)


@pytest.mark.parametrize(
    "fields",
    [
        [None, UInt(0), True],
        ["n", None, True],
        ["n", UInt(0), None],
        [5, UInt(0), True],
        ["n", UInt(0), True, UByte(3)],
        ["n", UInt(0), True, None, UByte(2)],
        ["n", UInt(0), True, None, None, "source"],
        ["n", UInt(0), True, None, None, Described(ULong(0x29), [])],
        ["n", UInt(0), True, None, None, None, Described(ULong(0x28), [])],
        ["n", UInt(0), True, None, None, Described(ULong(0x28), {})],
    ],
)
def test_malformed_attaches_are_invalid_fields(fields) -> None:
    peer = Peer().opened()
    body = b"\x00\x53\x12" + encode(fields)
    peer.feed((8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x01" + body)
    assert peer.condition() == "amqp:invalid-field"
