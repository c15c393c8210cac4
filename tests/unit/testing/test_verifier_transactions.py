"""Transactions and batches: all effects or none, whichever it was."""

from __future__ import annotations

import pytest

from polybus.testing.history import FAILED, OK, UNKNOWN, Event, Op
from polybus.testing.verifier import FindingKind
from polybus.testing.verifier.contents import DEAD_LETTER, DEFERRED

from .history_kit import ev, final, kinds, receive, send, settle, stored

DELIVERY = receive("old", 1, 10)


def transaction(*discharge: Event) -> list[Event]:
    """Completes one message and sends two, then what is given."""
    return [
        send("old"),
        DELIVERY,
        ev(Op.DECLARE, 20, entity="", transaction="t"),
        settle(Op.COMPLETE, DELIVERY, 30, transaction="t"),
        send("m", 40, transaction="t"),
        send("n", 50, transaction="t"),
        *discharge,
    ]


def commit(outcome: str = OK) -> Event:
    return ev(Op.COMMIT, 60, entity="", transaction="t", outcome=outcome)


ALL = (stored("m", 2), stored("n", 3))
NONE = (stored("old", 1),)
PARTS = [
    (stored("m", 2),),
    (stored("n", 3),),
    (stored("old", 1), *ALL),
    (stored("old", 1), stored("m", 2)),
]


def test_committed_all_must_be_there() -> None:
    assert kinds(transaction(commit()), final(*ALL)) == set()


@pytest.mark.parametrize("part", PARTS)
def test_committed_in_part_is_torn(part: tuple[object, ...]) -> None:
    assert FindingKind.TORN in kinds(transaction(commit()), final(*part))  # type: ignore[arg-type]


def test_committed_and_nothing_done_is_lost_rather_than_torn() -> None:
    found = kinds(transaction(commit()), final(*NONE))
    assert FindingKind.LOST in found
    assert FindingKind.TORN not in found


@pytest.mark.parametrize(
    "discharge",
    [
        [ev(Op.ROLLBACK, 60, entity="", transaction="t")],
        [ev(Op.ROLLBACK, 60, entity="", transaction="t", outcome=UNKNOWN)],
        [commit(FAILED)],
        [],
    ],
)
def test_not_committed_nothing_may_be_there(discharge: list[Event]) -> None:
    assert kinds(transaction(*discharge), final(*NONE)) == set()
    for part in (ALL, *PARTS):
        assert FindingKind.TORN in kinds(transaction(*discharge), final(*part))


def test_in_doubt_it_may_be_all_or_none_but_never_a_part() -> None:
    events = transaction(commit(UNKNOWN))
    assert kinds(events, final(*ALL)) == set()
    assert kinds(events, final(*NONE)) == set()
    for part in PARTS:
        assert kinds(events, final(*part)) == {FindingKind.TORN}


def test_in_doubt_a_redelivery_shows_that_the_completion_did_not_happen() -> None:
    again = receive("old", 1, 2_000)
    events = [*transaction(commit(UNKNOWN)), again, settle(Op.COMPLETE, again, 2_100)]
    assert kinds(events, final()) == set()
    assert kinds(events, final(*ALL)) == {FindingKind.TORN}


def test_in_doubt_another_completion_in_doubt_may_be_the_reason() -> None:
    other = settle(Op.COMPLETE, DELIVERY, 55, client="b", outcome=UNKNOWN)
    assert kinds([*transaction(), other, commit(UNKNOWN)], final()) == set()


def test_a_member_that_failed_is_no_member() -> None:
    events = transaction(commit())
    events[4] = send("m", 40, transaction="t", outcome=FAILED)
    assert kinds(events, final(stored("n", 3))) == set()


def test_a_member_in_doubt_may_be_in_or_out() -> None:
    events = transaction(commit())
    events[4] = send("m", 40, transaction="t", outcome=UNKNOWN)
    assert kinds(events, final(stored("n", 3))) == set()
    assert kinds(events, final(*ALL)) == set()


def test_a_message_that_may_have_expired_says_nothing() -> None:
    events = transaction(commit(UNKNOWN))
    assert kinds(events, final(stored("m", 2), ttl_ms=100)) == set()


def test_what_is_sent_is_not_seen_before_the_commit() -> None:
    events = transaction(receive("m", 2, 55, client="b"), commit())
    assert kinds(events, final(*ALL)) == {FindingKind.TORN}
    events = transaction(receive("m", 2, 65, began=55, client="b"), commit())
    assert kinds(sorted(events, key=lambda event: event.ended_ms), final(*ALL)) == set()


@pytest.mark.parametrize(("op", "state"), [(Op.DEFER, DEFERRED), (Op.DEAD_LETTER, DEAD_LETTER)])
def test_deferring_and_dead_lettering_are_members_too(op: str, state: str) -> None:
    events = transaction(commit())
    events[3] = settle(op, DELIVERY, 30, transaction="t")
    assert kinds(events, final(stored("old", 1, state), *ALL)) == set()
    assert kinds(events, final(stored("old", 1), *ALL)) == {FindingKind.TORN}


class TestBatches:
    def batch(self, outcome: str) -> list[Event]:
        return [ev(Op.BATCH_SEND, 10, message_id=m, batch="b", outcome=outcome, after=0) for m in ("m", "n")]

    def test_in_doubt_all_or_none(self) -> None:
        assert kinds(self.batch(UNKNOWN), final()) == set()
        assert kinds(self.batch(UNKNOWN), final(stored("m", 1), stored("n", 2))) == set()
        assert kinds(self.batch(UNKNOWN), final(stored("n", 1))) == {FindingKind.TORN}

    def test_acknowledged_all(self) -> None:
        assert kinds(self.batch(OK), final(stored("n", 1))) == {FindingKind.LOST}

    def test_failed_none(self) -> None:
        assert kinds(self.batch(FAILED), final(stored("n", 1))) == {FindingKind.INVENTED}
