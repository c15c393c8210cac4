"""Messages that are managed by their numbers: made active again, given another time, moved, dead for good."""

from __future__ import annotations

from typing import Any

import pytest

from polybus.testing.history import FAILED, OK, UNKNOWN, Event, Op
from polybus.testing.verifier import EntityContents, FindingKind
from polybus.testing.verifier.contents import DEAD_LETTER, DEFERRED, SCHEDULED

from .history_kit import WALL, ev, final, kinds, receive, send, settle, stored

DEAD = "q/$DeadLetterQueue"


def undefer(at: int, **values: Any) -> Event:
    return ev(Op.UNDEFER, at, message_id="m", number=1, **values)


def reschedule(at: int, due: int, **values: Any) -> Event:
    return ev(Op.RESCHEDULE, at, message_id="m", due_ms=WALL + due, **values)


@pytest.mark.parametrize(("outcome", "found"), [(OK, set()), (UNKNOWN, set()), (FAILED, {FindingKind.REDELIVERED})])
def test_a_deferred_message_is_delivered_only_after_it_was_made_active(outcome: str, found: set[str]) -> None:
    first, again = receive("m", 1, 10), receive("m", 1, 50)
    events = [send("m"), first, settle(Op.DEFER, first, 20), undefer(30, outcome=outcome), again]
    assert kinds([*events, settle(Op.COMPLETE, again, 60)]) == found


def test_one_that_is_deferred_again_stays_deferred() -> None:
    first, second, third = receive("m", 1, 10), receive("m", 1, 40), receive("m", 1, 60)
    events = [send("m"), first, settle(Op.DEFER, first, 20), undefer(30), second, settle(Op.DEFER, second, 50)]
    assert kinds(events, final(stored("m", state=DEFERRED))) == set()
    assert kinds([*events, third, settle(Op.COMPLETE, third, 70)]) == {FindingKind.REDELIVERED}


def test_a_message_made_active_is_still_one() -> None:
    first = receive("m", 1, 10)
    events = [send("m"), first, settle(Op.DEFER, first, 20), undefer(30)]
    assert kinds(events, final(stored("m", 1))) == set()
    assert kinds(events) == {FindingKind.LOST}
    assert kinds(events, final(stored("m", 1), stored("m", 2))) == {FindingKind.INVENTED}


def test_in_a_session_it_joins_the_end_and_only_it() -> None:
    held = [ev(Op.SESSION_ACCEPT, 5, session="s")]
    sends = [send("m", session="s"), send("n", 1, session="s"), send("o", 2, session="s")]
    first = receive("m", 1, 10, session="s")
    later = [receive("n", 2, 30, session="s"), receive("m", 1, 40, session="s")]
    completed = [settle(Op.COMPLETE, delivery, 60 + place) for place, delivery in enumerate(later)]
    rest = final(stored("o", 3, session="s"), sessions=True)
    deferred = [*sends, *held, first, settle(Op.DEFER, first, 20)]
    assert kinds([*deferred, undefer(25, session="s"), *later, *completed], rest) == set()
    assert FindingKind.ORDER in kinds([*deferred, *later, *completed], rest)


@pytest.mark.parametrize(("outcome", "found"), [(OK, {FindingKind.EARLY}), (UNKNOWN, set()), (FAILED, set())])
def test_a_later_time_holds_from_its_acknowledgement_on(outcome: str, found: set[str]) -> None:
    sent = ev(Op.SCHEDULE, 0, message_id="m", due_ms=WALL + 100)
    delivery = receive("m", 1, 200)
    events = [sent, reschedule(50, 500, outcome=outcome), delivery, settle(Op.COMPLETE, delivery, 210)]
    assert kinds(events) == found


def test_a_sooner_time_lets_it_come_sooner_and_not_before() -> None:
    sent = ev(Op.SCHEDULE, 0, message_id="m", due_ms=WALL + 900)
    early, due = receive("m", 1, 80), receive("m", 1, 120)
    moved = reschedule(50, 100)
    assert kinds([sent, moved, due, settle(Op.COMPLETE, due, 130)]) == set()
    assert kinds([sent, moved, early, settle(Op.COMPLETE, early, 90)]) == {FindingKind.EARLY}
    assert kinds([sent, due, settle(Op.COMPLETE, due, 130)]) == {FindingKind.EARLY}


def test_the_last_of_two_times_counts_and_both_while_they_overlap() -> None:
    sent = ev(Op.SCHEDULE, 0, message_id="m", due_ms=WALL + 100)
    delivery = receive("m", 1, 350)
    ended = [delivery, settle(Op.COMPLETE, delivery, 360)]
    assert kinds([sent, reschedule(20, 300), reschedule(40, 700), *ended]) == {FindingKind.EARLY}
    assert kinds([sent, reschedule(20, 700), reschedule(40, 300), *ended]) == set()
    assert kinds([sent, reschedule(30, 300, began=10), reschedule(40, 700, began=20), *ended]) == set()


def test_the_bytes_with_the_new_time_are_the_messages_own() -> None:
    sent = ev(Op.SCHEDULE, 0, message_id="m", due_ms=WALL + 900, digest="old")
    moved = reschedule(50, 100, digest="new")
    for digest, found in (("old", set()), ("new", set()), ("other", {FindingKind.CORRUPTED})):
        assert kinds([sent, moved], final(stored("m", state=SCHEDULED, digest=digest))) == found


def moved(outcome: str = OK, to: str = "q") -> list[Event]:
    """A dead letter that is sent back to where it died, or elsewhere."""
    first = receive("m", 1, 10)
    return [
        send("m"),
        first,
        settle(Op.DEAD_LETTER, first, 20),
        ev(Op.COMPLETE, 40, entity=DEAD, message_id="m", number=1, transaction="x"),
        ev(Op.MOVE, 40, entity=to, message_id="m", transaction="x"),
        ev(Op.COMMIT, 41, entity="", outcome=outcome, transaction="x"),
    ]


def test_a_redriven_message_leaves_its_grave_and_enters_its_queue() -> None:
    assert kinds(moved(), final(stored("m", 2))) == set()
    assert kinds(moved()) == {FindingKind.LOST}
    both = final(stored("m", 2), stored("m", 1, state=DEAD_LETTER))
    assert FindingKind.REDELIVERED in kinds(moved(), both)


def test_a_redrive_of_unknown_outcome_is_done_or_not_done() -> None:
    assert kinds(moved(UNKNOWN), final(stored("m", 2))) == set()
    assert kinds(moved(UNKNOWN), final(stored("m", 1, state=DEAD_LETTER))) == set()
    grave = stored("m", 1, state=DEAD_LETTER)
    for here, there, found in (((), ("m",), set()), ((grave,), (), set()), ((grave,), ("m",), {FindingKind.TORN})):
        state = final(*here)
        state.entities["p"] = EntityContents(messages=[stored(name) for name in there])
        assert kinds(moved(UNKNOWN, "p"), state) == found


def test_duplicate_detection_lets_a_moved_message_pass_and_nothing_else() -> None:
    window = {"dedup_window_ms": 60_000}
    assert kinds(moved(), final(stored("m", 2), **window)) == set()
    again = send("m", 50)
    assert kinds([*moved(), again], final(stored("m", 2), **window)) == set()
    three = final(stored("m", 2), stored("m", 3), **window)
    assert kinds([*moved(), again], three) == {FindingKind.DUPLICATE_ACCEPTED}


def test_dead_letters_go_after_their_time_to_live_and_not_before() -> None:
    first = receive("m", 1, 10)
    events = [send("m"), first, settle(Op.DEAD_LETTER, first, 20)]
    assert kinds(events, final(wall_ms=WALL + 600, dead_letter_ttl_ms=500)) == set()
    assert kinds(events, final(wall_ms=WALL + 400, dead_letter_ttl_ms=500)) == {FindingKind.LOST}
    living = [send("m"), first, settle(Op.ABANDON, first, 20)]
    assert kinds(living, final(wall_ms=WALL + 600, dead_letter_ttl_ms=500)) == {FindingKind.LOST}


def test_a_dead_letter_is_not_delivered_after_its_time_to_live() -> None:
    first = receive("m", 1, 10)
    for at, found in ((400, set()), (700, {FindingKind.EXPIRED})):
        buried = receive("m", 1, at, entity=DEAD)
        events = [send("m"), first, settle(Op.DEAD_LETTER, first, 20), buried, settle(Op.COMPLETE, buried, at + 1)]
        assert kinds(events, final(dead_letter_ttl_ms=500)) == found
