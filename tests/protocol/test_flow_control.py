"""Credit, windows, drain and echo, in both directions.

AMQP 1.0 §2.5.6, §2.6.7; docs/protocol/amqp.md#windows, docs/protocol/amqp.md#flow, docs/protocol/amqp.md#drain.
"""

from __future__ import annotations

import pytest

from polybus.amqp.events import CreditChanged, LinkDetached
from polybus.amqp.frames import frame
from polybus.amqp.outcomes import ACCEPTED_BYTES
from polybus.amqp.performatives import Begin, Detach
from polybus.amqp.traffic import Flow, Transfer
from polybus.errors import BugError
from polybus.limits import AMQP_SESSION_WINDOW
from tests.protocol.peer import Peer, of

FIRST = 1 << 20


def credit_flow(credit: int, count: int = 0, **fields: object) -> Flow:
    return Flow(FIRST, 2048, 0, 2048, 1, count, credit, **fields)  # type: ignore[arg-type]


def test_credit_is_counted_per_delivery() -> None:
    peer = Peer().opened()
    link = peer.receiver()
    [event] = peer.send(credit_flow(2))
    assert isinstance(event, CreditChanged)
    assert link.sendable == 2
    link.send(b"a", b"x")
    link.send(b"b", b"x" * 100_000)
    assert (link.credit, link.delivery_count) == (0, 2)
    with pytest.raises(BugError):
        link.send(b"c", b"x")


def test_credit_is_relative_to_the_peers_count() -> None:
    """Two deliveries are under way when the peer, which has not seen them, asks for five."""
    peer = Peer().opened()
    link = peer.receiver()
    peer.send(credit_flow(5))
    link.send(b"a", b"x")
    link.send(b"b", b"x")
    peer.send(credit_flow(5, count=0))
    assert link.credit == 3
    peer.send(credit_flow(5, count=2))
    assert link.credit == 5
    peer.send(credit_flow(1, count=0))
    assert link.credit == 0


def test_credit_can_be_taken_back() -> None:
    peer = Peer().opened()
    link = peer.receiver()
    peer.send(credit_flow(5))
    peer.send(credit_flow(0))
    assert link.credit == 0


@pytest.mark.parametrize("credit", [0, 1, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF])
def test_any_credit_is_understood(credit) -> None:
    peer = Peer().opened()
    link = peer.receiver()
    peer.send(credit_flow(credit))
    assert link.credit == credit


def test_null_delivery_count_is_the_initial_one() -> None:
    peer = Peer().opened()
    link = peer.receiver()
    peer.send(Flow(FIRST, 10, 0, 10, 1, None, 7))
    assert link.credit == 7


def test_drain_uses_up_the_credit_after_the_transfers() -> None:
    peer = Peer().opened()
    link = peer.receiver()
    peer.send(credit_flow(10, drain=True))
    assert link.drain
    link.send(b"a", b"x")
    link.drained()
    transfer, flow = peer.frames()
    assert transfer.name == "transfer"
    assert flow.fields[4:9] == [1, 10, 0, None, True]
    assert (link.credit, link.delivery_count) == (0, 10)


def test_drain_without_credit_is_answered_too() -> None:
    """Python drains with credit 0 when it closes; .NET and Go wait for the answer."""
    peer = Peer().opened()
    link = peer.receiver()
    peer.send(credit_flow(0, drain=True))
    link.drained()
    [flow] = peer.frames()
    assert flow.fields[4:9] == [1, 0, 0, None, True]


def test_drained_is_said_only_when_asked() -> None:
    peer = Peer().opened()
    link = peer.receiver()
    peer.send(credit_flow(3))
    link.drained()
    assert link.credit == 3
    assert peer.read() == []


def test_drain_flow_waits_for_transfers_that_wait_for_the_window() -> None:
    peer = Peer().opened()
    link = peer.receiver()
    peer.send(Flow(FIRST, 1, 0, 10, 1, 0, 10, drain=True))
    link.send(b"a", b"1")
    link.send(b"b", b"2")
    link.drained()
    assert [one.name for one in peer.frames()] == ["transfer"]
    peer.send(Flow(FIRST + 1, 5, 0, 10))
    assert [one.name for one in peer.frames()] == ["transfer", "flow"]


def test_transfers_wait_for_the_peers_window_in_order() -> None:
    peer = Peer().opened()
    link = peer.receiver()
    peer.send(Flow(FIRST, 2, 0, 10, 1, 0, 10))
    for tag in (b"a", b"b", b"c", b"d"):
        link.send(tag, tag)
    assert [one.payload for one in peer.frames()] == [b"a", b"b"]
    assert link.sendable == 0
    events = peer.send(Flow(FIRST + 2, 1, 0, 10))
    assert events == []
    assert [one.payload for one in peer.frames()] == [b"c"]
    events = peer.send(Flow(FIRST + 3, 5, 0, 10))
    assert isinstance(events[0], CreditChanged)
    [last] = peer.frames()
    assert (last.payload, last.fields[1]) == (b"d", FIRST + 3)
    assert link.sendable == 6


def test_window_counts_frames_and_not_deliveries() -> None:
    peer = Peer().opened(max_frame_size=512)
    link = peer.receiver()
    peer.send(Flow(FIRST, 2, 0, 10, 1, 0, 10))
    link.send(b"a", b"x" * 1200)
    assert len(peer.frames()) == 2
    peer.send(Flow(FIRST + 2, 2, 0, 10))
    [rest] = peer.frames()
    assert rest.fields[5] is False
    assert rest.fields[1] == FIRST


def test_window_is_relative_to_the_transfers_under_way() -> None:
    peer = Peer().opened()
    link = peer.receiver()
    peer.send(Flow(FIRST, 3, 0, 10, 1, 0, 10))
    link.send(b"a", b"x")
    link.send(b"b", b"x")
    peer.send(Flow(FIRST, 3, 0, 10))
    link.send(b"c", b"x")
    link.send(b"d", b"x")
    assert len(peer.frames()) == 3


def test_a_link_that_goes_takes_its_waiting_transfers_and_leaves_no_gap() -> None:
    """rhea stops at a gap in the delivery-ids (docs/protocol/amqp.md#delivery-ids)."""
    peer = Peer().opened()
    first = peer.receiver(1)
    second = peer.receiver(2)
    peer.send(Flow(FIRST, 1, 0, 10, 1, 0, 10))
    peer.send(Flow(FIRST, 1, 0, 10, 2, 0, 10))
    first.send(b"a", b"sent", context="sent")
    first.send(b"b", b"never", context="never")
    second.send(b"c", b"later", context="later")
    peer.read()
    [gone] = peer.send(Detach(1, True))
    assert isinstance(gone, LinkDetached)
    assert [one.context for one in gone.unsent] == ["never"]
    assert [one.context for one in gone.unsettled] == ["sent"]
    peer.send(Flow(FIRST + 1, 5, 0, 10))
    transfer = peer.frames("transfer")[0]
    assert (transfer.payload, transfer.fields[1]) == (b"later", FIRST + 1)


def test_our_own_detach_gives_back_what_never_left() -> None:
    peer = Peer().opened()
    link = peer.receiver()
    peer.send(Flow(FIRST, 0, 0, 10, 1, 0, 10))
    link.send(b"a", b"x", context="never")
    assert [one.context for one in link.detach()] == ["never"]
    peer.read()
    peer.send(Flow(FIRST, 9, 0, 10))
    assert peer.read() == []


def test_echo_of_a_link_is_answered_with_both_counts() -> None:
    """Python detaches when one of them is null."""
    peer = Peer().opened()
    peer.receiver(1)
    peer.sender(0, credit=50)
    peer.send(credit_flow(4, echo=True))
    [flow] = peer.frames()
    assert flow.fields[4:10] == [1, 0, 4, None, False, False]
    peer.send(Flow(FIRST, 10, 0, 10, 0, 0, echo=True))
    [flow] = peer.frames()
    assert flow.fields[4:7] == [0, 0, 50]


def test_echo_of_the_session_is_answered() -> None:
    peer = Peer().opened()
    peer.send(Flow(FIRST, 10, 33, 10, echo=True))
    [flow] = peer.frames()
    assert flow.fields == [33, 5_000, FIRST, 5_000, None, None, None, None, False, False, None]


def test_many_echoes_are_answered_once() -> None:
    peer = Peer().opened()
    peer.receiver(1)
    peer.feed(frame(1, credit_flow(4, echo=True)) * 500 + frame(1, Flow(FIRST, 9, 0, 9, echo=True)) * 500)
    assert len(peer.frames("flow")) == 1


def test_grant_is_a_flow_after_the_attach() -> None:
    peer = Peer().opened()
    link = peer.attach(0, False)
    link.accept(max_message_size=1000)
    link.grant(100)  # type: ignore[union-attr]
    attach, flow = peer.frames()
    assert (attach.name, flow.name) == ("attach", "flow")
    assert flow.fields[4:7] == [0, 0, 100]


def test_credit_is_renewed_when_half_of_it_is_answered() -> None:
    peer = Peer().opened()
    link = peer.sender(0, credit=10)
    for number in range(10):
        peer.send(Transfer(0, number, b"t", 0), payload=b"x")
    for number in range(4):
        link.settle_incoming(number, ACCEPTED_BYTES)
    assert peer.frames("flow") == []
    link.settle_incoming(4, ACCEPTED_BYTES)
    [flow] = peer.frames("flow")
    assert flow.fields[4:7] == [0, 10, 5]


def test_presettled_deliveries_renew_credit_too() -> None:
    peer = Peer().opened()
    peer.sender(0, credit=4)
    for number in range(2):
        peer.send(Transfer(0, number, b"t", 0, settled=True), payload=b"x")
    [flow] = peer.frames("flow")
    assert flow.fields[4:7] == [0, 2, 4]


def test_presettled_deliveries_of_many_frames_renew_credit_too() -> None:
    peer = Peer().opened()
    peer.sender(0, credit=2)
    peer.send(Transfer(0, 0, b"t", 0, settled=True, more=True), payload=b"x")
    assert peer.frames("flow") == []
    peer.send(Transfer(0, 0, b"t", 0, settled=True), payload=b"x")
    [flow] = peer.frames("flow")
    assert flow.fields[4:7] == [0, 1, 2]


def test_a_sender_that_gives_up_credit_gets_new() -> None:
    peer = Peer().opened()
    peer.sender(0, credit=10)
    peer.send(Flow(FIRST, 10, 0, 10, 0, 10))
    [flow] = peer.frames("flow")
    assert flow.fields[4:7] == [0, 10, 10]


def test_senders_that_ignore_credit_are_served() -> None:
    """docs/protocol/amqp.md#uncounted-credit."""
    peer = Peer().opened()
    link = peer.sender(0, credit=1)
    for number in range(50):
        assert len(peer.send(Transfer(0, number, b"t", 0), payload=b"x")) == 1
    for number in range(50):
        link.settle_incoming(number, ACCEPTED_BYTES)
    assert peer.closed is None
    assert peer.frames("flow")[-1].fields[5:7] == [50, 1]


def test_session_window_is_renewed_after_half_of_it() -> None:
    """rhea stops for ever when next-incoming-id does not move (docs/protocol/amqp.md#next-incoming-id)."""
    peer = Peer().opened()
    peer.sender(0, credit=100_000)
    one = frame(1, Transfer(0, 0, b"t", 0, settled=True), payload=b"x")
    peer.feed(one * (AMQP_SESSION_WINDOW // 2 - 1))
    assert peer.frames("flow") == []
    peer.feed(one)
    [flow] = peer.frames("flow")
    assert flow.fields[:2] == [AMQP_SESSION_WINDOW // 2, AMQP_SESSION_WINDOW]
    peer.feed(one * (AMQP_SESSION_WINDOW // 2))
    assert len(peer.frames("flow")) == 1


def test_next_incoming_id_follows_the_peers_own_count() -> None:
    """Python counts deliveries and not frames; what it says in a flow wins (docs/protocol/amqp.md#windows)."""
    peer = Peer().opened()
    peer.sender(0)
    peer.send(Transfer(0, 0, b"t", 0, more=True), payload=b"x")
    peer.send(Transfer(0, 0, b"t", 0), payload=b"x")
    peer.send(Flow(FIRST, 10, 1, 10, echo=True))
    assert peer.frames("flow")[-1].fields[0] == 1


def test_next_incoming_id_starts_where_the_peer_begins() -> None:
    peer = Peer().opened()
    peer.send(Begin(0xFFFF_FFFF, 10, 10), 2)
    peer.send(Flow(None, 10, 0xFFFF_FFFF, 10, echo=True), 2)
    assert peer.frames("flow")[-1].fields[0] == 0xFFFF_FFFF


@pytest.mark.parametrize("window", [0, 1, 0xFFFF_FFFF])
def test_any_window_is_understood(window) -> None:
    peer = Peer().opened()
    link = peer.receiver()
    peer.send(Flow(FIRST, window, 0, 10, 1, 0, 10))
    link.send(b"a", b"x")
    assert len(peer.frames("transfer")) == min(window, 1)


def test_a_window_from_the_future_is_not_believed() -> None:
    """A next-incoming-id beyond ours counts nothing as under way; it does not open the window further."""
    peer = Peer().opened()
    link = peer.receiver()
    peer.send(Flow(FIRST + 1000, 1, 0, 10, 1, 0, 10))
    link.send(b"a", b"x")
    link.send(b"b", b"x")
    assert len(peer.frames("transfer")) == 1


def test_only_links_with_credit_hear_of_an_open_window() -> None:
    peer = Peer().opened()
    first = peer.receiver(1)
    peer.receiver(2)
    peer.send(Flow(FIRST, 0, 0, 10, 1, 0, 10))
    first.send(b"a", b"x")
    events = peer.send(Flow(FIRST, 10, 0, 10))
    assert [event.link for event in of(events, CreditChanged)] == [first]
