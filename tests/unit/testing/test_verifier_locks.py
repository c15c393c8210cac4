"""Two holders, late settlements, redeliveries, delivery counts: what is certain, and what is not."""

from __future__ import annotations

import pytest

from polybus.testing.history import FAILED, OK, UNKNOWN, Event, Op
from polybus.testing.verifier import FindingKind, verify

from .history_kit import LOCK_MS, ev, final, kinds, receive, send, settle, stored

THERE = final(stored("m", 1))


def with_send(*events: Event) -> list[Event]:
    return [send("m"), *events]


class TestTwoHolders:
    FIRST = receive("m", 1, 100)

    def test_a_second_delivery_under_a_running_lock_is_found(self) -> None:
        second = receive("m", 1, 500, client="b")
        assert kinds(with_send(self.FIRST, second), THERE) == {FindingKind.TWO_HOLDERS}

    def test_a_lock_that_has_run_out_holds_nothing(self) -> None:
        second = receive("m", 1, 100 + LOCK_MS, client="b")
        assert kinds(with_send(self.FIRST, second), THERE) == set()

    def test_a_renewal_makes_it_longer(self) -> None:
        renewal = settle(Op.RENEW, self.FIRST, 900)
        second = receive("m", 1, 1_500, client="b")
        assert kinds(with_send(self.FIRST, renewal, second), THERE) == {FindingKind.TWO_HOLDERS}
        failed = settle(Op.RENEW, self.FIRST, 900, outcome=FAILED)
        assert kinds(with_send(self.FIRST, failed, second), THERE) == set()

    @pytest.mark.parametrize("op", [Op.ABANDON, Op.RELEASE])
    @pytest.mark.parametrize(
        ("outcome", "found"), [(OK, set()), (UNKNOWN, set()), (FAILED, {FindingKind.TWO_HOLDERS})]
    )
    def test_giving_it_back_ends_it(self, op: str, outcome: str, found: set[str]) -> None:
        back = settle(op, self.FIRST, 200, outcome=outcome)
        second = receive("m", 1, 300, client="b", count=1)
        assert kinds(with_send(self.FIRST, back, second), THERE) == found

    def test_giving_it_back_counts_from_the_call_not_from_the_answer(self) -> None:
        second = receive("m", 1, 300, client="b")
        back = settle(Op.ABANDON, self.FIRST, 400, began=250)
        assert kinds(with_send(self.FIRST, second, back), THERE) == set()
        late = settle(Op.ABANDON, self.FIRST, 400, began=350)
        assert kinds(with_send(self.FIRST, second, late), THERE) == {FindingKind.TWO_HOLDERS}

    def test_a_lock_that_may_have_begun_long_before_it_was_seen_is_not_certain(self) -> None:
        first = receive("m", 1, 1_500, began=100)
        assert kinds(with_send(first, receive("m", 1, 1_600, client="b")), THERE) == set()

    def test_a_delivery_seen_after_its_own_lock_had_ended_holds_nothing(self) -> None:
        first = receive("m", 1, 1_200, began=1_150)
        stale = receive("m", 1, 1_300, began=100, client="b")
        assert kinds(with_send(first, stale), THERE) == set()

    @pytest.mark.parametrize(
        ("outage", "found"),
        [
            (ev(Op.RESTART, 200, entity=""), set()),
            (ev(Op.FENCED, 200, partitions=(0, 3)), set()),
            (ev(Op.FENCED, 200, entity="", partitions=(0,)), set()),
            (ev(Op.FENCED, 200, partitions=(1,)), {FindingKind.TWO_HOLDERS}),
            (ev(Op.FENCED, 200, entity="other", partitions=(0,)), {FindingKind.TWO_HOLDERS}),
            (ev(Op.RESTART, 600, began=400, entity=""), set()),
            (ev(Op.RESTART, 50, entity=""), {FindingKind.TWO_HOLDERS}),
        ],
    )
    def test_restarts_and_fencings_end_locks(self, outage: Event, found: set[str]) -> None:
        events = with_send(self.FIRST, outage, receive("m", 1, 500, client="b"))
        assert kinds(sorted(events, key=lambda event: event.ended_ms), THERE) == found

    def test_a_completion_in_an_open_transaction_keeps_the_lock(self) -> None:
        done = settle(Op.COMPLETE, self.FIRST, 200, transaction="t")
        second = receive("m", 1, 300, client="b")
        rollback = ev(Op.ROLLBACK, 400, transaction="t")
        assert kinds(with_send(self.FIRST, done, second, rollback), THERE) == {FindingKind.TWO_HOLDERS}

    def test_the_clock_of_the_bus_can_be_moved_past_the_lock(self) -> None:
        moved = ev(Op.CLOCK_MOVED, 300, moved_mono_ms=LOCK_MS, moved_wall_ms=LOCK_MS)
        second = receive("m", 1, 400, client="b")
        assert kinds(with_send(self.FIRST, moved, second), THERE) == set()
        later = ev(Op.CLOCK_MOVED, 500, moved_mono_ms=LOCK_MS, moved_wall_ms=LOCK_MS)
        assert kinds(with_send(self.FIRST, second, later), THERE) == {FindingKind.TWO_HOLDERS}


class TestSettlingLate:
    FIRST = receive("m", 1, 100)

    @pytest.mark.parametrize("op", [Op.COMPLETE, Op.ABANDON, Op.DEFER, Op.DEAD_LETTER, Op.RENEW])
    @pytest.mark.parametrize(("at", "found"), [(1_100, set()), (1_200, {FindingKind.SETTLED_LATE})])
    def test_a_lock_that_has_run_out_settles_nothing(self, op: str, at: int, found: set[str]) -> None:
        state = final() if op == Op.COMPLETE else THERE
        assert kinds(with_send(self.FIRST, settle(op, self.FIRST, at)), state) == found
        refused = settle(op, self.FIRST, at, outcome=FAILED)
        assert kinds(with_send(self.FIRST, refused), THERE) == set()

    def test_the_lock_may_have_begun_when_the_delivery_was_seen(self) -> None:
        slow = receive("m", 1, 1_000, began=0)
        assert kinds(with_send(slow, settle(Op.COMPLETE, slow, 1_900))) == set()
        assert kinds(with_send(slow, settle(Op.COMPLETE, slow, 2_100))) == {FindingKind.SETTLED_LATE}

    def test_a_call_made_in_time_may_be_answered_late(self) -> None:
        done = settle(Op.COMPLETE, self.FIRST, 5_000, began=1_050)
        assert kinds(with_send(self.FIRST, done)) == set()

    def test_slack_is_given_to_clocks_that_differ(self) -> None:
        events = with_send(self.FIRST, settle(Op.COMPLETE, self.FIRST, 1_150))
        assert kinds(events) == {FindingKind.SETTLED_LATE}
        assert kinds(events, slack_ms=60) == set()

    @pytest.mark.parametrize(
        ("outcome", "found"), [(OK, set()), (UNKNOWN, set()), (FAILED, {FindingKind.SETTLED_LATE})]
    )
    def test_a_renewal_that_may_have_worked_counts(self, outcome: str, found: set[str]) -> None:
        renewal = settle(Op.RENEW, self.FIRST, 900, outcome=outcome)
        assert kinds(with_send(self.FIRST, renewal, settle(Op.COMPLETE, self.FIRST, 1_800))) == found

    @pytest.mark.parametrize("outage", [ev(Op.RESTART, 200, entity=""), ev(Op.FENCED, 200, partitions=(0,))])
    def test_a_token_of_an_earlier_life_settles_nothing(self, outage: Event) -> None:
        done = settle(Op.COMPLETE, self.FIRST, 300)
        assert kinds(with_send(self.FIRST, outage, done)) == {FindingKind.SETTLED_LATE}
        assert kinds(with_send(outage, receive("m", 1, 250), settle(Op.COMPLETE, self.FIRST, 300))) != set()

    def test_a_token_that_nobody_was_given_settles_nothing(self) -> None:
        made_up = ev(Op.RENEW, 10, message_id="m", number=1, token="made up")
        assert kinds(with_send(made_up), THERE) == {FindingKind.SETTLED_LATE}

    def test_a_token_settles_its_own_message_only(self) -> None:
        other = ev(Op.ABANDON, 200, message_id="n", number=2, token=self.FIRST.token)
        state = final(stored("m", 1), stored("n", 2))
        assert kinds([send("m"), send("n"), self.FIRST, other], state) == {FindingKind.SETTLED_LATE}


class TestRedelivery:
    FIRST = receive("m", 1, 100)

    @pytest.mark.parametrize("op", [Op.COMPLETE, Op.DEAD_LETTER, Op.DEFER])
    def test_what_was_taken_away_does_not_come_back(self, op: str) -> None:
        away = settle(op, self.FIRST, 200)
        assert FindingKind.REDELIVERED in kinds(with_send(self.FIRST, away, receive("m", 1, 300)), THERE)

    def test_a_delivery_under_way_at_the_completion_is_not_held_against_it(self) -> None:
        events = with_send(self.FIRST, settle(Op.COMPLETE, self.FIRST, 200), receive("m", 1, 300, began=150))
        assert FindingKind.REDELIVERED not in kinds(events)

    def test_a_deferred_message_comes_back_on_request(self) -> None:
        events = with_send(self.FIRST, settle(Op.DEFER, self.FIRST, 200))
        asked = ev(Op.RECEIVE_DEFERRED, 300, message_id="m", number=1, token="u")
        assert kinds([*events, asked], THERE) == set()
        gone = [*events, asked, settle(Op.COMPLETE, asked, 310)]
        again = ev(Op.RECEIVE_DEFERRED, 400, message_id="m", number=1, token="v")
        assert kinds([*gone, again]) == {FindingKind.REDELIVERED}

    def test_a_committed_completion_counts_from_the_commit(self) -> None:
        done = settle(Op.COMPLETE, self.FIRST, 200, transaction="t")
        commit = ev(Op.COMMIT, 300, transaction="t")
        assert FindingKind.REDELIVERED in kinds(with_send(self.FIRST, done, commit, receive("m", 1, 400)))

    def test_the_dead_letter_queue_is_another_place(self) -> None:
        buried = receive("m", 1, 300, entity="q/$deadletterqueue")
        assert kinds(with_send(self.FIRST, settle(Op.DEAD_LETTER, self.FIRST, 200), buried), THERE) == set()


class TestDeliveryCounts:
    def test_an_abandon_raises_it(self) -> None:
        first = receive("m", 1, 100, count=0)
        events = with_send(first, settle(Op.ABANDON, first, 200))
        assert kinds([*events, receive("m", 1, 300, count=1)], THERE) == set()
        assert kinds([*events, receive("m", 1, 300, count=0)], THERE) == {FindingKind.DELIVERY_COUNT}

    def test_a_release_need_not(self) -> None:
        first = receive("m", 1, 100, count=0)
        events = with_send(first, settle(Op.RELEASE, first, 200), receive("m", 1, 300, count=0))
        assert kinds(events, THERE) == set()

    def test_it_never_falls(self) -> None:
        events = with_send(receive("m", 1, 100, count=2), receive("m", 1, 2_000, count=1))
        assert kinds(events, THERE) == {FindingKind.DELIVERY_COUNT}

    def test_an_abandon_answered_after_the_redelivery_raises_it_once(self) -> None:
        first = receive("m", 1, 100, count=0)
        second = receive("m", 1, 200, count=1)
        back = settle(Op.ABANDON, first, 300, began=150)
        third = receive("m", 1, 2_000, count=1)
        assert kinds(with_send(first, second, back, third), THERE) == set()

    @pytest.mark.parametrize(("count", "found"), [(2, set()), (3, {FindingKind.DELIVERY_COUNT})])
    def test_it_stays_below_the_maximum(self, count: int, found: set[str]) -> None:
        events = with_send(receive("m", 1, 100, count=count))
        assert kinds(events, final(stored("m", 1), max_delivery_count=3)) == found


def test_events_of_several_processes_in_one_millisecond_are_not_ordered() -> None:
    delivery = receive("m", 1, 100, client="a")
    done = settle(Op.COMPLETE, delivery, 200)
    again = receive("m", 1, 200, client="b")
    assert FindingKind.REDELIVERED in verify([[send("m"), delivery, done, again]], final()).kinds()
    assert verify([[send("m"), delivery, done], [again]], final()).clean
    later = receive("m", 1, 201, client="b")
    assert FindingKind.REDELIVERED in verify([[send("m"), delivery, done], [later]], final()).kinds()


def test_operations_that_overlap_inside_a_millisecond_are_not_ordered() -> None:
    """Recorded after the completion, the delivery had begun before it."""
    delivery = receive("m", 1, 100)
    done = settle(Op.COMPLETE, delivery, 200)
    again = receive("m", 1, 200, client="b", after=2)
    assert kinds([send("m"), delivery, done, again]) == set()
    again = receive("m", 1, 200, client="b", after=3)
    assert FindingKind.REDELIVERED in kinds([send("m"), delivery, done, again])
