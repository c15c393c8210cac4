"""Settlement in both directions. AMQP 1.0 §2.6.12, §2.7.6; docs/protocol/amqp.md#dispositions."""

from __future__ import annotations

import struct

import pytest

from polybus.amqp.codec import decode, encode
from polybus.amqp.events import Disposed, LinkDetached, SessionEnded
from polybus.amqp.frames import frame
from polybus.amqp.outcomes import (
    ACCEPTED,
    ACCEPTED_BYTES,
    MODIFIED_BYTES,
    REJECTED_BYTES,
    RELEASED,
    RELEASED_BYTES,
    Accepted,
    AmqpError,
    Declared,
    Modified,
    Received,
    Rejected,
    Released,
    TransactionalState,
    state_from,
)
from polybus.amqp.performatives import Detach
from polybus.amqp.traffic import Disposition, Flow, Transfer
from polybus.amqp.types import Described, Symbol, UInt, ULong
from tests.protocol.peer import Peer, error_of, of

FIRST = 1 << 20


def delivered(count: int, settled: bool = False):
    peer = Peer().opened()
    link = peer.receiver(1)
    peer.send(Flow(FIRST, 2048, 0, 2048, 1, 0, count))
    for number in range(count):
        link.send(b"t", b"x", settled, context=number)
    peer.read()
    return peer, link


def contexts(events):
    return [one.context for event in of(events, Disposed) for one in event.deliveries]


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (ACCEPTED, Accepted),
        (RELEASED, Released),
        (Rejected(), Rejected),
        (Rejected(AmqpError("com.microsoft:dead-letter", "d", {Symbol("DeadLetterReason"): None})), Rejected),
        (Modified(True, True, {Symbol("k"): "v"}), Modified),
        (TransactionalState(b"txn", ACCEPTED), TransactionalState),
    ],
)
@pytest.mark.parametrize("settled", [False, True])
def test_every_outcome_reaches_the_caller(state, kind, settled) -> None:
    peer, link = delivered(1)
    [event] = peer.send(Disposition(True, FIRST, None, settled, state))
    assert isinstance(event, Disposed)
    assert type(event.state) is kind
    assert event.state.encoded() == state.encoded()
    assert event.settled is settled
    assert [(one.link, one.delivery_id, one.context) for one in event.deliveries] == [(link, FIRST, 0)]
    assert link.unsettled == 0


def test_details_of_a_dead_letter_are_kept() -> None:
    peer, _ = delivered(1)
    info: dict[object, object] = {Symbol("DeadLetterReason"): "why", Symbol("extra"): 5}
    [event] = peer.send(Disposition(True, FIRST, state=Rejected(AmqpError("com.microsoft:dead-letter", "d", info))))
    assert event.state.error.condition == "com.microsoft:dead-letter"
    assert event.state.error.info == info


def test_modified_fields_are_read() -> None:
    peer, _ = delivered(1)
    [event] = peer.send(Disposition(True, FIRST, state=Modified(False, True, {Symbol("k"): "v"})))
    assert (event.state.delivery_failed, event.state.undeliverable_here) == (False, True)
    assert event.state.message_annotations == {"k": "v"}


def test_modified_with_no_fields_at_all() -> None:
    """.NET abandons with an empty list."""
    peer, _ = delivered(1)
    state = b"\x00\x53\x27\x45"
    fields = b"\x41\x70" + struct.pack(">I", FIRST) + b"\x40\x42" + state
    body = b"\x00\x53\x15\xc0" + bytes((len(fields) + 1, 5)) + fields
    [event] = peer.feed(struct.pack(">IBBH", 8 + len(body), 2, 0, 1) + body)
    assert isinstance(event.state, Modified)
    assert not event.state.undeliverable_here


def test_ranges_name_known_deliveries_only() -> None:
    peer, _ = delivered(5)
    events = peer.send(Disposition(True, FIRST + 1, FIRST + 2, False, ACCEPTED))
    assert contexts(events) == [1, 2]
    events = peer.send(Disposition(True, FIRST, FIRST + 100, False, ACCEPTED))
    assert contexts(events) == [0, 3, 4]


def test_a_second_decision_finds_nothing() -> None:
    peer, _ = delivered(1)
    assert contexts(peer.send(Disposition(True, FIRST, None, False, ACCEPTED))) == [0]
    assert peer.send(Disposition(True, FIRST, None, True, ACCEPTED)) == []


@pytest.mark.parametrize("first", [0, FIRST - 1, FIRST + 1, 0xFFFF_FFFF])
def test_unknown_deliveries_are_ignored(first) -> None:
    peer, link = delivered(1)
    assert peer.send(Disposition(True, first, None, True, ACCEPTED)) == []
    assert link.unsettled == 1
    assert peer.closed is None


def test_who_waits_for_a_word_on_forgotten_deliveries_gets_one() -> None:
    peer, _ = delivered(5)
    peer.send(Disposition(True, FIRST + 1, FIRST + 2, True, ACCEPTED))
    peer.read()
    peer.send(Disposition(True, FIRST, FIRST + 3, False, ACCEPTED))
    (answer,) = peer.frames("disposition")
    assert answer.fields[:4] == [False, FIRST + 1, FIRST + 2, True]
    assert "amqp:not-found" in repr(answer.fields[4])


def test_answers_never_name_deliveries_that_never_were() -> None:
    peer, _ = delivered(1)
    peer.send(Disposition(True, FIRST, FIRST, True, ACCEPTED))
    peer.send(Disposition(True, 0, (1 << 31) - 1, False, ACCEPTED))
    (answer,) = peer.frames("disposition")
    assert answer.fields[1:3] == [FIRST, FIRST]


def test_deliveries_sent_settled_cannot_be_decided() -> None:
    peer, _ = delivered(3, settled=True)
    assert peer.send(Disposition(True, FIRST, FIRST + 2, False, ACCEPTED)) == []


@pytest.mark.parametrize("state", [None, Received(0, 0), Declared(b"x")])
def test_no_outcome_is_no_decision(state) -> None:
    peer, link = delivered(1)
    assert peer.send(Disposition(True, FIRST, None, False, state)) == []
    assert link.unsettled == 1
    assert len(peer.send(Disposition(True, FIRST, None, True, state))) == 1


def test_backward_ranges_end_the_session() -> None:
    peer, _ = delivered(2)
    events = peer.send(Disposition(True, FIRST + 1, FIRST, False, ACCEPTED))
    assert [type(event) for event in events] == [LinkDetached, SessionEnded]
    assert error_of(peer.frames()[0], 0)[0] == "amqp:invalid-field"


def test_ranges_across_the_wrap() -> None:
    peer, link = delivered(1)
    link.session.next_delivery_id = 0xFFFF_FFFF
    peer.send(Flow(FIRST, 2048, 0, 2048, 1, 1, 3))
    for context in "abc":
        link.send(b"t", b"x", context=context)
    events = peer.send(Disposition(True, 0xFFFF_FFFF, 1, False, ACCEPTED))
    assert contexts(events) == ["a", "b", "c"]


def test_detached_links_take_their_deliveries_along() -> None:
    peer, _ = delivered(2)
    other = peer.receiver(2)
    peer.send(Flow(FIRST, 2048, 0, 2048, 2, 0, 1))
    other.send(b"t", b"x", context="other")
    peer.send(Detach(1, True))
    assert contexts(peer.send(Disposition(True, FIRST, FIRST + 2, False, ACCEPTED))) == ["other"]


@pytest.mark.parametrize(
    "state", [Described(ULong(0x99), []), "accepted", Described(ULong(0x34), [None]), Described(ULong(0x25), [1])]
)
def test_malformed_states_close_the_connection(state) -> None:
    peer, _ = delivered(1)
    body = b"\x00\x53\x15" + encode([True, UInt(FIRST), None, False, state])
    peer.feed(struct.pack(">IBBH", 8 + len(body), 2, 0, 1) + body)
    assert peer.condition() == "amqp:invalid-field"


def test_confirmations_have_all_fields_and_our_role() -> None:
    peer, _ = delivered(1)
    [event] = peer.send(Disposition(True, FIRST, state=ACCEPTED))
    event.deliveries[0].settle(ACCEPTED_BYTES)
    [sent] = peer.frames()
    assert sent.raw[8:11] == b"\x00\x53\x15"
    assert sent.fields == [False, FIRST, FIRST, True, Described(ULong(0x24), []), False]


@pytest.mark.parametrize(
    "outcome",
    [
        ACCEPTED_BYTES,
        RELEASED_BYTES,
        MODIFIED_BYTES,
        REJECTED_BYTES,
        Rejected(AmqpError("com.microsoft:message-lock-lost", "The lock is lost. " * 30)),
        TransactionalState(b"t" * 16, ACCEPTED),
    ],
)
def test_any_outcome_can_be_answered(outcome) -> None:
    peer, link = delivered(1)
    link.session.settle(FIRST, outcome)
    [sent] = peer.frames()
    expected = outcome if isinstance(outcome, bytes) else outcome.encoded()
    assert sent.fields[4] == decode(expected, 0)[0]
    assert len(sent.fields) == 6


def test_adjacent_settlements_leave_as_one_range() -> None:
    peer, link = delivered(6)
    for delivery_id in (0, 1, 2, 4, 5):
        link.session.settle(FIRST + delivery_id, ACCEPTED_BYTES)
    ranges = [tuple(one.fields[1:3]) for one in peer.frames("disposition")]
    assert ranges == [(FIRST, FIRST + 2), (FIRST + 4, FIRST + 5)]


def test_other_outcomes_break_the_range() -> None:
    peer, link = delivered(3)
    for delivery_id, outcome in enumerate((ACCEPTED_BYTES, REJECTED_BYTES, ACCEPTED_BYTES)):
        link.session.settle(FIRST + delivery_id, outcome)
    assert [one.fields[4].descriptor for one in peer.frames()] == [0x24, 0x25, 0x24]


def test_the_two_roles_are_never_joined() -> None:
    peer, link = delivered(1)
    sender = peer.sender(0)
    peer.send(Transfer(0, FIRST + 1, b"t", 0), payload=b"x")
    link.session.settle(FIRST, ACCEPTED_BYTES)
    sender.settle_incoming(FIRST + 1, ACCEPTED_BYTES)
    assert sorted(one.fields[0] for one in peer.frames("disposition")) == [False, True]


def test_answers_to_sends_have_the_receivers_role() -> None:
    peer = Peer().opened()
    sender = peer.sender(0)
    for number in range(3):
        peer.send(Transfer(0, number, b"t", 0), payload=b"x")
        sender.settle_incoming(number, ACCEPTED_BYTES)
    [sent] = peer.frames("disposition")
    assert sent.fields == [True, 0, 2, True, Described(ULong(0x24), []), False]
    assert ACCEPTED_BYTES in sent.raw


def test_a_refused_send_carries_an_error_of_three_fields() -> None:
    """Python waits for ever when it is shorter (docs/protocol/amqp.md#rejected-with-error)."""
    peer = Peer().opened()
    sender = peer.sender(0)
    peer.send(Transfer(0, 0, b"t", 0), payload=b"x")
    sender.settle_incoming(0, Rejected(AmqpError("amqp:link:message-size-exceeded")))
    [sent] = peer.frames("disposition")
    error = sent.fields[4].value[0]
    assert error == Described(ULong(0x1D), ["amqp:link:message-size-exceeded", None, None])


def test_presettled_sends_get_no_answer() -> None:
    peer = Peer().opened()
    sender = peer.sender(0)
    peer.send(Transfer(0, 0, b"t", 0, settled=True), payload=b"x")
    sender.settle_incoming(0, ACCEPTED_BYTES)
    assert peer.frames("disposition") == []


def test_a_send_is_answered_once() -> None:
    peer = Peer().opened()
    sender = peer.sender(0)
    peer.send(Transfer(0, 0, b"t", 0), payload=b"x")
    sender.settle_incoming(0, ACCEPTED_BYTES)
    sender.settle_incoming(0, ACCEPTED_BYTES)
    assert len(peer.frames("disposition")) == 1
    assert sender.unsettled == 0


def test_a_send_is_answered_by_its_own_link_only() -> None:
    peer = Peer().opened()
    sender = peer.sender(0)
    other = peer.sender(2)
    peer.send(Transfer(0, 0, b"t", 0), payload=b"x")
    other.settle_incoming(0, ACCEPTED_BYTES)
    assert peer.frames("disposition") == []
    sender.settle_incoming(0, ACCEPTED_BYTES)
    assert len(peer.frames("disposition")) == 1


def test_a_sender_may_settle_its_own_deliveries() -> None:
    peer = Peer().opened()
    sender = peer.sender(0)
    for number in range(3):
        peer.send(Transfer(0, number, b"t", 0), payload=b"x")
    assert peer.send(Disposition(False, 0, 1, True)) == []
    assert peer.send(Disposition(False, 2, 2, False)) == []
    assert sender.unsettled == 1
    for number in range(3):
        sender.settle_incoming(number, ACCEPTED_BYTES)
    [sent] = peer.frames("disposition")
    assert sent.fields[1:3] == [2, 2]


def test_settlements_come_before_a_detach_that_follows_them() -> None:
    peer = Peer().opened()
    sender = peer.sender(0)
    peer.send(Transfer(0, 0, b"t", 0), payload=b"x")
    sender.settle_incoming(0, ACCEPTED_BYTES)
    sender.detach()
    assert [one.name for one in peer.frames()] == ["disposition", "detach"]


def test_settlements_come_before_a_close_that_follows_them() -> None:
    """What was acknowledged is said, also when the peer breaks the protocol next."""
    for end in (lambda peer: peer.feed(b"\x00" * 8), lambda peer: peer.connection.close()):
        peer = Peer().opened()
        sender = peer.sender(0)
        peer.send(Transfer(0, 0, b"t", 0), payload=b"x")
        sender.settle_incoming(0, ACCEPTED_BYTES)
        end(peer)
        assert [one.name for one in peer.frames()] == ["disposition", "close"]


@pytest.mark.parametrize(
    ("encoded", "state"),
    [
        (ACCEPTED_BYTES, Accepted()),
        (RELEASED_BYTES, Released()),
        (MODIFIED_BYTES, Modified()),
        (REJECTED_BYTES, Rejected()),
    ],
)
def test_constant_outcomes_are_what_the_encoder_writes(encoded, state) -> None:
    assert state.encoded() == encoded
    assert type(state_from(decode(encoded, 0)[0])) is type(state)


def test_shapes_are_remembered_only_while_they_are_few() -> None:
    peer, link = delivered(200)
    for number in range(200):
        state = TransactionalState(struct.pack(">I", number), ACCEPTED)
        [event] = peer.feed(frame(1, Disposition(True, FIRST + number, state=state)))
        assert event.state.txn_id == struct.pack(">I", number)
    assert len(link.session._disposition_tails) <= 8
