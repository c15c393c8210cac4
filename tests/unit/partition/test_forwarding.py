"""From the outbox of one partition to the inbox of another: exactly once and in order, whatever crashes."""

from __future__ import annotations

from typing import Any

import pytest

from polybus.errors import EntityNotFound, QuotaExceeded
from polybus.message.message import build
from polybus.partition import inbox, transfers
from polybus.partition.data import OutboxMessage
from polybus.partition.settings import EntitySettings
from tests.unit.partition.kit import add_rule, body_of, main, queue, topic
from tests.unit.partition.solo import Solo


def pair(**own: Any) -> tuple[Solo, Solo]:
    """A queue that forwards, and the queue to which it does."""
    source = queue(forward_to="target", **own)
    target = Solo(EntitySettings("target", 1, False), index=2, entity_id=9)
    source.routes["target"] = (9, 2)
    return source, target


def pending(source: Solo, after: int = 0) -> list[OutboxMessage]:
    return list(source.run(transfers.pending(source.broker, 9, 2, after, 100, 1 << 20)))


def take_over(source: Solo, target: Solo, moving: list[OutboxMessage], commit: bool = True) -> None:
    keys = inbox.rows_needed(target.broker, moving)
    rows: dict[bytes, object] = {key: target.rows.get(key) for key in keys}
    where = (source.entity_id, source.index)
    inbox.take_over(target.broker, target.now, where, moving, rows, target.reply, "over")
    if commit:
        target.commit()


def sent_on(source: Solo, moving: list[OutboxMessage], commit: bool = True) -> None:
    transfers.sent_on(source.broker, 9, 2, moving)
    if commit:
        source.commit()


def move(source: Solo, target: Solo) -> None:
    moving = pending(source)
    take_over(source, target, moving)
    sent_on(source, moving)


def test_a_message_goes_from_the_outbox_to_the_other_entity_with_a_new_number_and_its_old_one() -> None:
    source, target = pair()
    assert source.send(b"1") == 1
    assert (source.log().active, source.broker.transfers, source.grown) == (0, 1, 1)
    assert source.run(transfers.destinations(source.broker)) == [(9, 2)]
    target.send(b"0")
    move(source, target)
    assert (source.tables(), source.broker.transfers, source.broker.size) == ("", 0, 0)
    assert source.run(transfers.destinations(source.broker)) == []
    entry = target.take_all()[1]
    assert (entry.sequence, entry.original, body_of(entry)) == (2 << 48 | 2, 1, b"1")


def test_in_order_and_the_destination_is_chosen_by_key() -> None:
    source, target = pair()
    for number in range(5):
        source.send(b"%d" % number, session_id="s")
    move(source, target)
    assert [body_of(entry) for entry in target.take_all()] == [b"0", b"1", b"2", b"3", b"4"]
    assert source.routed[0] == ("target", "s")


@pytest.mark.parametrize("crashing", ["source", "target", "both"])
@pytest.mark.parametrize("moment", ["before the target's commit", "after it", "before the source's commit"])
def test_exactly_once_whatever_crashes_when(crashing: str, moment: str) -> None:
    source, target = pair()
    for number in range(3):
        source.send(b"%d" % number)
    moving = pending(source)
    take_over(source, target, moving, commit=moment != "before the target's commit")
    if moment == "before the source's commit":
        sent_on(source, moving, commit=False)
    if crashing != "target":
        source.crash()
    if crashing != "source":
        target.crash()
    target.commit()
    move(source, target)
    assert [body_of(entry) for entry in target.take_all()] == [b"0", b"1", b"2"]
    assert source.broker.transfers == 0


def test_numbers_of_transfers_are_not_used_again() -> None:
    source, target = pair()
    source.send(b"1")
    move(source, target)
    source.crash()
    target.crash()
    source.send(b"2")
    move(source, target)
    assert [body_of(entry) for entry in target.take_all()] == [b"1", b"2"]


def test_saying_twice_that_they_have_arrived_is_harmless_and_they_are_not_offered_again() -> None:
    source, target = pair()
    source.send(b"1")
    moving = pending(source)
    take_over(source, target, moving)
    sent_on(source, moving, commit=False)
    assert pending(source) == []
    sent_on(source, moving)
    assert (source.broker.transfers, source.broker.size) == (0, 0)


def test_one_source_does_not_hide_another() -> None:
    source, target = pair()
    other = Solo(source.settings, index=1)
    other.routes = source.routes
    source.send(b"1")
    other.send(b"2")
    move(source, target)
    move(other, target)
    assert [body_of(entry) for entry in target.take_all()] == [b"1", b"2"]


def test_too_many_hops_end_in_the_transfer_dead_letters_of_the_last_source() -> None:
    source, target = pair()
    target.settings.own.forward_to = "target"
    target.routes["target"] = (9, 2)
    target.index = 2
    source.send(b"1")
    move(source, target)
    for _ in range(4):
        move(target, target)
    rests = target.get(2)
    assert rests.overlay is not None
    assert rests.overlay.application["DeadLetterReason"] == "MaxTransferHopCountExceeded"
    assert (rests.overlay.hops, target.broker.transfers) == (4, 0)


def test_without_a_destination_they_rest_in_the_transfer_dead_letters() -> None:
    source = queue(forward_to="nowhere")
    source.send(b"1")
    rests = source.get(2)
    assert rests.overlay is not None
    assert rests.overlay.application["DeadLetterReason"] == "amqp:not-found"
    assert rests.overlay.dead_letter_source == "q"
    assert (source.broker.transfers, source.broker.size) == (0, build(b"1").size)


def test_what_the_destination_refuses_rests_where_it_came_from() -> None:
    solo = topic(1, 2)
    solo.settings.subscriptions[2].forward_to = "target"
    solo.routes["target"] = (9, 2)
    solo.send(b"1")
    moving = pending(solo)
    transfers.refused(solo.broker, solo.now, 9, 2, moving, QuotaExceeded("full"))
    transfers.refused(solo.broker, solo.now, 9, 2, moving, QuotaExceeded("full"))
    solo.commit()
    rests = solo.get(main(2) + 2)
    assert rests.overlay is not None
    assert rests.overlay.application == {
        "DeadLetterReason": "amqp:resource-limit-exceeded",
        "DeadLetterErrorDescription": "full",
    }
    assert rests.overlay.dead_letter_source == "t/Subscriptions/s2"
    assert (solo.log(2).active, solo.broker.transfers) == (0, 0)


def test_a_destination_that_is_full_takes_nothing_at_all() -> None:
    source, target = pair()
    source.send(b"1")
    source.send(b"2")
    target.settings.max_bytes = 5
    moving = pending(source)
    with pytest.raises(QuotaExceeded):
        take_over(source, target, moving)
    target.settings.max_bytes = 1 << 20
    move(source, target)
    assert len(target.take_all()) == 2


def test_the_destination_applies_its_own_duplicate_detection_and_rules() -> None:
    source, target = pair()
    target.settings.duplicate_window_ms = 60_000
    target.send(b"0", message_id="a")
    source.send(b"1", message_id="a")
    source.send(b"2", message_id="b")
    move(source, target)
    assert [body_of(entry) for entry in target.take_all()] == [b"0", b"2"]


def test_into_a_topic() -> None:
    source, _ = pair()
    target = topic(1, 2)
    source.send(b"1")
    take_over(source, target, pending(source))
    assert [entry.original for entry in (target.get(main(1)), target.get(main(2)))] == [1, 1]


def test_without_a_session_id_it_is_dead_at_a_destination_with_sessions() -> None:
    source, target = pair()
    target.settings.own.requires_session = True
    target.crash()
    source.send(b"1")
    source.send(b"2", session_id="s")
    move(source, target)
    dead = target.get(1)
    assert dead.overlay is not None
    assert (body_of(dead), dead.overlay.application["DeadLetterReason"]) == (b"1", "Session ID is null.")
    session = target.accept_next()
    assert session is not None
    assert session.id == "s"


def test_forwarding_does_not_prolong_a_life() -> None:
    source, target = pair(ttl_ms=10_000)
    source.send(b"1")
    source.send(b"2", ttl_ms=4_000)
    end = source.now.wall_ms
    target.pass_time(3_000)
    move(source, target)
    first, second = target.take_all()
    assert (first.expires_ms, second.expires_ms) == (end + 10_000, end + 4_000)
    assert first.overlay is not None
    assert first.overlay.ttl_ms == 7_000


def test_one_whose_life_ended_on_the_way_expires_at_the_destination() -> None:
    source, target = pair()
    target.settings.own.dead_letter_expired = True
    source.send(b"1", ttl_ms=1_000)
    target.pass_time(5_000)
    move(source, target)
    target.upkeep()
    assert body_of(target.get(1)) == b"1"


def test_a_dead_letter_that_is_forwarded_does_not_die_of_its_old_time_to_live_again() -> None:
    source, target = pair()
    source.settings.own.forward_to = None
    source.settings.own.forward_dead_letters_to = "target"
    source.settings.own.dead_letter_expired = True
    source.send(b"1", ttl_ms=1_000)
    source.move(1_000)
    move(source, target)
    target.pass_time(100_000)
    entry = target.get()
    assert (body_of(entry), entry.expires_ms) == (b"1", 0)
    assert entry.overlay is not None
    assert entry.overlay.dead_letter_source == "q"


def test_a_message_for_a_subscription_that_is_gone_is_refused_before_anything_is_done() -> None:
    source, _ = pair()
    target = topic(1)
    source.settings.own.forward_to = None
    source.send(b"1")
    from polybus.partition import moving

    source.run(moving.move(source.broker, source.log(), source.now, [1], {}, {}, "target", 5, source.reply, "move"))
    source.commit()
    arriving = pending(source)
    with pytest.raises(EntityNotFound):
        take_over(source, target, arriving)
    target.commit()
    assert target.tables() == ""
    transfers.refused(source.broker, source.now, 9, 2, arriving, EntityNotFound("gone"))
    source.commit()
    overlay = source.get(2).overlay
    assert overlay is not None
    assert set(overlay.application) == {"DeadLetterReason", "DeadLetterErrorDescription"}


def test_a_message_for_one_subscription_passes_by_the_others_and_their_rules() -> None:
    from polybus.partition import moving
    from polybus.rules import FalseFilter

    source, _ = pair()
    target = topic(1, 2, all_rules=False)
    add_rule(target, 2, "never", FalseFilter())
    source.settings.own.forward_to = None
    source.send(b"1")
    source.run(moving.move(source.broker, source.log(), source.now, [1], {}, {}, "target", 2, source.reply, "move"))
    source.commit()
    take_over(source, target, pending(source))
    entry = target.get(main(2))
    assert body_of(entry) == b"1"
    assert target.log(main(1)).active == 0
    assert entry.overlay is None or entry.overlay.application == {}


def test_a_moved_message_is_no_duplicate_of_its_first_life_and_lives_anew() -> None:
    from polybus.partition import moving

    source, target = pair()
    source.settings.own.forward_to = None
    target.settings.duplicate_window_ms = 60_000
    target.send_all([build(b"first", message_id="a")])
    source.send_all([build(b"again", message_id="a", ttl_ms=5_000), build(b"new", message_id="b")])
    source.pass_time(4_000)
    target.pass_time(4_000)
    numbers = [1, 2]
    source.run(
        moving.move(source.broker, source.log(), source.now, numbers, {}, {}, "target", 0, source.reply, "move")
    )
    source.commit()
    take_over(source, target, pending(source))
    # What a client sends is judged as ever, also by the ids of what was moved.
    target.send_all([build(b"twice", message_id="a"), build(b"twice", message_id="b")])
    entries = target.take_all()
    assert [body_of(entry) for entry in entries] == [b"first", b"again", b"new"]
    assert entries[1].expires_ms == target.now.wall_ms + 5_000


def test_one_subscription_that_needs_sessions_makes_a_dead_letter_of_one_without() -> None:
    from polybus.partition import moving

    source, _ = pair()
    target = topic(1)
    target.settings.subscriptions[1].requires_session = True
    target.crash()
    source.settings.own.forward_to = None
    source.send(b"1")
    source.run(moving.move(source.broker, source.log(), source.now, [1], {}, {}, "target", 1, source.reply, "move"))
    source.commit()
    take_over(source, target, pending(source))
    assert body_of(target.get(main(1) + 1)) == b"1"


def test_a_message_scheduled_for_later_waits_at_the_destination_of_a_transfer() -> None:
    from polybus.partition import transactions

    source, target = pair()
    work = transactions.Work()
    work.transfers = [("target", build(b"1", scheduled_ms=source.now.wall_ms + 5_000))]
    transactions.commit(source.broker, work, source.now, None, source.reply, None)
    source.commit()
    move(source, target)
    assert (target.take(), target.broker.scheduled) == (None, 1)
    target.crash()
    target.move(5_000)
    entry = target.get()
    assert (body_of(entry), entry.original) == (b"1", 1)


def test_a_forwarding_source_uses_up_its_numbers() -> None:
    source, _ = pair()
    source.send()
    source.crash()
    assert source.send() == 2
