"""Messages in both directions, in one frame and in many. AMQP 1.0 §2.6.12-2.6.14; docs/protocol/amqp.md#transfers."""

from __future__ import annotations

import struct

import pytest

from polybus.amqp.events import IncomingDelivery, LinkDetached, SessionEnded
from polybus.amqp.frames import frame
from polybus.amqp.outcomes import ACCEPTED_BYTES, TransactionalState
from polybus.amqp.performatives import Detach, End
from polybus.amqp.traffic import Flow, Transfer
from polybus.errors import BugError
from polybus.limits import AMQP_FRAMES_PER_DELIVERY
from tests.protocol.peer import Peer, error_of, of

FIRST = 1 << 20
BATCH_FORMAT = 0x80013700


def receiving(window: int = 2048, credit: int = 100, **fields: int):
    peer = Peer().opened(**fields)
    link = peer.receiver(1)
    peer.send(Flow(FIRST, window, 0, 2048, 1, 0, credit))
    return peer, link


def test_a_transfer_becomes_a_delivery() -> None:
    peer = Peer().opened()
    link = peer.sender(0)
    [event] = peer.send(Transfer(0, 5, b"tag", BATCH_FORMAT), payload=b"body")
    assert isinstance(event, IncomingDelivery)
    assert event.link is link
    assert (event.delivery_id, event.tag, event.message_format) == (5, b"tag", BATCH_FORMAT)
    assert (event.payload, event.settled, event.state, event.oversized) == (b"body", False, None, False)


@pytest.mark.parametrize(
    "fields",
    [
        b"\x43\x52\x05\xa0\x01t\x43\x42",
        b"\x52\x00\x70\x00\x00\x00\x05\xa0\x01t\x43\x42",
        b"\x70\x00\x00\x00\x00\x53\x05\xa0\x01t\x43\x42",
        b"\x44\x80\x00\x00\x00\x00\x00\x00\x00\x05\xb0\x00\x00\x00\x01t\x43\x42",
        b"\x50\x00\x55\x05\xa0\x01t\x52\x00\x56\x00",
        b"\x43\x71\x00\x00\x00\x05\xa0\x01t\x70\x00\x00\x00\x00\x42",
    ],
)
@pytest.mark.parametrize("wide", [False, True])
def test_integers_of_any_width_and_lists_of_both_sizes(fields, wide) -> None:
    peer = Peer().opened()
    peer.sender(0)
    if wide:
        body = b"\x00\x53\x14\xd0" + struct.pack(">II", len(fields) + 4, 5) + fields
    else:
        body = b"\x00\x53\x14\xc0" + bytes((len(fields) + 1, 5)) + fields
    peer.feed(struct.pack(">IBBH", 8 + len(body) + 4, 2, 0, 1) + body + b"body")
    [event] = of(peer.events, IncomingDelivery)
    assert (event.delivery_id, event.tag, event.message_format, event.payload) == (5, b"t", 0, b"body")


def test_null_message_format_is_told_apart() -> None:
    peer = Peer().opened()
    peer.sender(0)
    [event] = peer.send(Transfer(0, 5, b"t"))
    assert event.message_format == -1


def test_transfer_with_the_fewest_fields() -> None:
    peer = Peer().opened()
    peer.sender(0)
    body = b"\x00\x53\x14\xc0\x04\x02\x43\x52\x05"
    peer.feed(struct.pack(">IBBH", 8 + len(body), 2, 0, 1) + body)
    [event] = of(peer.events, IncomingDelivery)
    assert (event.delivery_id, event.tag, event.payload) == (5, b"", b"")


def test_frames_of_one_delivery_are_joined() -> None:
    peer = Peer().opened()
    peer.sender(0)
    assert peer.send(Transfer(0, 5, b"t", 7, more=True), payload=b"one ") == []
    assert peer.send(Transfer(0, 5, b"t", 7, more=True), payload=b"two ") == []
    [event] = peer.send(Transfer(0, 5, b"t", 7), payload=b"three")
    assert (event.payload, event.message_format, event.tag) == (b"one two three", 7, b"t")


def test_continuation_may_leave_everything_out() -> None:
    """docs/protocol/amqp.md#settled-on-any-frame."""
    peer = Peer().opened()
    peer.sender(0)
    peer.send(Transfer(0, 5, b"t", 0, more=True), payload=b"one ")
    [event] = peer.send(Transfer(0), payload=b"two")
    assert (event.delivery_id, event.tag, event.payload) == (5, b"t", b"one two")


@pytest.mark.parametrize("place", [0, 1, 2])
def test_settled_and_state_may_come_on_any_frame(place) -> None:
    peer = Peer().opened()
    peer.sender(0)
    state = TransactionalState(b"txn", None)
    for number in range(3):
        here = number == place
        event = peer.send(
            Transfer(0, 5, b"t", 0, more=number < 2, settled=here, state=state if here else None), payload=b"x"
        )
    assert event[0].settled
    assert event[0].state.txn_id == b"txn"


def test_deliveries_of_two_links_may_be_interleaved() -> None:
    peer = Peer().opened()
    peer.sender(0)
    peer.sender(2)
    peer.send(Transfer(0, 1, b"a", 0, more=True), payload=b"a1")
    peer.send(Transfer(2, 2, b"b", 0, more=True), payload=b"b1")
    [first] = peer.send(Transfer(0, 1), payload=b"a2")
    [second] = peer.send(Transfer(2, 2), payload=b"b2")
    assert (first.payload, second.payload) == (b"a1a2", b"b1b2")


def test_aborted_delivery_is_dropped() -> None:
    peer = Peer().opened()
    link = peer.sender(0)
    peer.send(Transfer(0, 5, b"t", 0, more=True), payload=b"half")
    assert peer.send(Transfer(0, 5, aborted=True)) == []
    [event] = peer.send(Transfer(0, 6, b"u", 0), payload=b"whole")
    assert event.payload == b"whole"
    assert link.delivery_count == 2
    assert link.unsettled == 1


def test_a_delivery_that_begins_before_the_last_ended_detaches_the_link() -> None:
    peer = Peer().opened()
    peer.sender(0)
    peer.send(Transfer(0, 5, b"t", 0, more=True), payload=b"half")
    [event] = peer.send(Transfer(0, 6, b"u", 0), payload=b"other")
    assert isinstance(event, LinkDetached)
    assert error_of(peer.frames()[-1], 2)[0] == "amqp:invalid-field"


def test_a_delivery_without_an_id_detaches_the_link() -> None:
    peer = Peer().opened()
    peer.sender(0)
    [event] = peer.send(Transfer(0), payload=b"x")
    assert isinstance(event, LinkDetached)


def test_an_id_in_use_ends_the_session() -> None:
    peer = Peer().opened()
    peer.sender(0)
    peer.send(Transfer(0, 5, b"t", 0), payload=b"x")
    events = peer.send(Transfer(0, 5, b"t", 0), payload=b"x")
    assert [type(event) for event in events] == [LinkDetached, SessionEnded]


def test_an_id_is_free_again_when_answered() -> None:
    peer = Peer().opened()
    link = peer.sender(0)
    peer.send(Transfer(0, 5, b"t", 0), payload=b"x")
    link.settle_incoming(5, ACCEPTED_BYTES)
    assert of(peer.send(Transfer(0, 5, b"t", 0), payload=b"x"), IncomingDelivery)


@pytest.mark.parametrize("frames", [1, 3])
def test_oversized_delivery_is_told_and_thrown_away(frames) -> None:
    peer = Peer().opened()
    link = peer.sender(0, limit=100)
    for number in range(frames):
        events = peer.send(Transfer(0, 5, b"t", 0, more=number < frames - 1), payload=b"x" * 101)
    [event] = events
    assert (event.oversized, event.payload, event.delivery_id) == (True, b"", 5)
    link.settle_incoming(5, ACCEPTED_BYTES)
    assert peer.frames("disposition")
    [event] = peer.send(Transfer(0, 6, b"u", 0), payload=b"x" * 100)
    assert not event.oversized


@pytest.mark.parametrize(("size", "oversized"), [(99, False), (100, False), (101, True)])
def test_the_limit_counts_all_frames_together(size, oversized) -> None:
    peer = Peer().opened()
    peer.sender(0, limit=100)
    peer.send(Transfer(0, 5, b"t", 0, more=True), payload=b"x" * 50)
    peer.send(Transfer(0, 5, b"t", 0, more=True), payload=b"x" * (size - 50))
    [event] = peer.send(Transfer(0, 5, b"t", 0))
    assert event.oversized is oversized
    assert len(event.payload) == (0 if oversized else size)


def test_detach_in_the_middle_of_a_delivery_forgets_it() -> None:
    peer = Peer().opened()
    peer.sender(0)
    peer.send(Transfer(0, 5, b"t", 0, more=True), payload=b"half")
    [event] = peer.send(Detach(0, True))
    assert isinstance(event, LinkDetached)
    peer.sender(0)
    [event] = peer.send(Transfer(0, 6, b"t", 0), payload=b"new")
    assert event.payload == b"new"


def test_frames_of_a_delivery_are_bounded() -> None:
    peer = Peer().opened()
    peer.sender(0)
    one = frame(1, Transfer(0, 5, b"t", 0, more=True))
    peer.feed(one * (AMQP_FRAMES_PER_DELIVERY - 1))
    assert not of(peer.events, LinkDetached)
    peer.feed(one * 5)
    assert len(of(peer.events, LinkDetached)) == 1
    assert error_of(peer.frames("detach")[-1], 2)[0] == "amqp:link:message-size-exceeded"


def test_our_transfer_has_all_its_fields() -> None:
    peer, link = receiving()
    delivery = link.send(b"0123456789abcdef", b"body", context="mine")
    assert delivery is not None
    [sent] = peer.frames()
    assert sent.raw[8:11] == b"\x00\x53\x14"
    assert sent.fields == [1, FIRST, b"0123456789abcdef", 0, False, False, None, None, None, None, None]
    assert sent.payload == b"body"
    assert (delivery.delivery_id, delivery.context, delivery.link) == (FIRST, "mine", link)


def test_parts_are_sent_as_one_payload() -> None:
    peer, link = receiving()
    start = link.start_frame(b"t", True)
    start.write(b"one ")
    start.write(b"two ")
    link.send_frame(start, b"three", True)
    [sent] = peer.frames()
    assert sent.payload == b"one two three"
    assert sent.fields[4] is True


def test_delivery_ids_are_consecutive_across_links() -> None:
    peer, first = receiving()
    second = peer.receiver(2)
    peer.send(Flow(FIRST, 2048, 0, 2048, 2, 0, 10))
    first.send(b"a", b"x")
    second.send(b"b", b"x", settled=True)
    first.send(b"c", b"x" * 70_000)
    second.send(b"d", b"x")
    ids = [one.fields[1] for one in peer.frames("transfer")]
    assert sorted(set(ids)) == [FIRST, FIRST + 1, FIRST + 2, FIRST + 3]
    assert ids == sorted(ids)


@pytest.mark.parametrize("size", [0, 1, 476, 477, 478, 479, 1000, 5000])
@pytest.mark.parametrize("settled", [False, True])
def test_large_deliveries_are_split_to_the_peers_frames(size, settled) -> None:
    peer, link = receiving(max_frame_size=512)
    payload = bytes(number & 0xFF for number in range(size))
    link.send(b"t", payload, settled)
    frames = peer.frames()
    assert b"".join(one.payload for one in frames) == payload
    assert all(len(one.raw) <= 512 for one in frames)
    assert [one.fields[5] for one in frames] == [True] * (len(frames) - 1) + [False]
    assert {one.fields[1] for one in frames} == {FIRST}
    assert {one.fields[4] for one in frames} == {settled}
    assert len(frames) == max(1, -(-size // 477))


def test_tags_of_changing_lengths() -> None:
    peer, link = receiving()
    tags = [b"", b"a", b"0123456789abcdef", b"x" * 32, b"b"]
    for tag in tags:
        link.send(tag, b"x")
    assert [one.fields[2] for one in peer.frames()] == tags


def test_waiting_deliveries_keep_their_own_tags() -> None:
    peer, link = receiving(window=0)
    tags = [b"a", b"0123456789abcdef", b"b"]
    for tag in tags:
        link.send(tag, b"x")
    peer.send(Flow(FIRST, 10, 0, 10))
    assert [one.fields[2] for one in peer.frames("transfer")] == tags


def test_a_tag_that_is_too_long_is_our_bug() -> None:
    _, link = receiving()
    with pytest.raises(BugError):
        link.send(b"x" * 33, b"")


def test_everything_of_one_turn_leaves_at_once() -> None:
    peer, link = receiving()
    for _ in range(5):
        link.send(b"t", b"x")
    assert len(peer.frames()) == 5
    assert peer.connection.output() == b""


def test_end_gives_back_unsent_and_unsettled_deliveries() -> None:
    peer, link = receiving(window=2)
    for context in "abc":
        link.send(b"t", b"x", context=context)
    events = peer.send(End())
    [gone] = of(events, LinkDetached)
    assert [one.context for one in gone.unsent] == ["c"]
    assert [one.context for one in gone.unsettled] == ["a", "b"]
    assert of(events, SessionEnded)


def test_a_delivery_that_left_in_part_counts_as_unsent() -> None:
    peer, link = receiving(window=1, max_frame_size=512)
    link.send(b"t", b"x" * 2000, context="half")
    [gone] = of(peer.send(Detach(1, True)), LinkDetached)
    assert [one.context for one in gone.unsent] == ["half"]
    assert gone.unsettled == []


def test_delivery_ids_wrap_around() -> None:
    peer, link = receiving()
    link.session.next_delivery_id = 0xFFFF_FFFF
    for _ in range(2):
        link.send(b"t", b"x")
    assert [one.fields[1] for one in peer.frames()] == [0xFFFF_FFFF, 0]
