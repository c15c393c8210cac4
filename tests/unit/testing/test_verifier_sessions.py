"""Sessions: one holder, who alone receives and settles, and strict order by number."""

from __future__ import annotations

from typing import Any

import pytest

from polybus.testing.history import FAILED, OK, UNKNOWN, Event, Op
from polybus.testing.verifier import FinalState, FindingKind, StoredMessage

from .history_kit import LOCK_MS, WALL, ev, kinds, receive, send, settle, stored
from .history_kit import final as queue


def final(*messages: StoredMessage, **options: Any) -> FinalState:
    return queue(*messages, sessions=True, **options)


def accept(at: int, client: str = "a", **values: Any) -> Event:
    return ev(Op.SESSION_ACCEPT, at, client=client, session="s", **values)


def session(op: str, at: int, client: str = "a", **values: Any) -> Event:
    return ev(op, at, client=client, session="s", **values)


def get(number: int, at: int, client: str = "a", **values: Any) -> Event:
    return receive(f"m{number}", number, at, client=client, session="s", **values)


def put(*numbers: int) -> list[Event]:
    return [send(f"m{number}", 0, client="sender", session="s") for number in numbers]


def there(*numbers: int, **options: Any) -> FinalState:
    return final(*(stored(f"m{number}", number, session="s") for number in numbers), **options)


class TestHolders:
    def test_two_at_a_time_are_found(self) -> None:
        assert kinds([accept(100), accept(500, "b")], final()) == {FindingKind.TWO_HOLDERS}
        assert kinds([accept(100), accept(100 + LOCK_MS, "b")], final()) == set()

    def test_a_renewal_keeps_it(self) -> None:
        events = [accept(100), session(Op.SESSION_RENEW, 900), accept(1_500, "b")]
        assert kinds(events, final()) == {FindingKind.TWO_HOLDERS}

    @pytest.mark.parametrize("op", [Op.SESSION_RELEASE, Op.SESSION_LOST, Op.LINK_CLOSED])
    def test_it_is_free_once_given_back_or_taken(self, op: str) -> None:
        assert kinds([accept(100), session(op, 200), accept(300, "b")], final()) == set()
        late = session(op, 400, began=350)
        assert kinds([accept(100), accept(300, "b"), late], final()) == {FindingKind.TWO_HOLDERS}

    def test_a_closed_link_gives_back_all_its_sessions(self) -> None:
        closed = ev(Op.LINK_CLOSED, 200)
        assert kinds([accept(100), closed, accept(300, "b")], final()) == set()
        others = ev(Op.LINK_CLOSED, 200, client="c")
        assert kinds([accept(100), others, accept(300, "b")], final()) == {FindingKind.TWO_HOLDERS}

    def test_an_outage_frees_it(self) -> None:
        assert kinds([accept(100), ev(Op.RESTART, 200, entity=""), accept(300, "b")], final()) == set()

    def test_a_fencing_of_a_partition_that_is_not_known_may_free_it(self) -> None:
        fenced = ev(Op.FENCED, 200, partitions=(3,))
        assert kinds([accept(100), fenced, accept(300, "b")], final(partitions=4)) == set()
        events = [*put(1), accept(100), get(1, 150), fenced, accept(300, "b")]
        assert kinds(events, there(1, partitions=4)) == {FindingKind.TWO_HOLDERS}


class TestRights:
    def test_only_the_holder_receives(self) -> None:
        events = [*put(1), accept(100, "a"), session(Op.SESSION_RELEASE, 150), accept(200, "b")]
        assert kinds([*events, get(1, 300, "b")], there(1)) == set()
        assert kinds([*events, get(1, 300, "a")], there(1)) == {FindingKind.TWO_HOLDERS}
        assert kinds([*events, get(1, 300, "c")], there(1)) == {FindingKind.TWO_HOLDERS}

    def test_a_delivery_on_its_way_when_the_session_changed_hands_is_no_fault(self) -> None:
        events = [*put(1), accept(100, "a"), session(Op.SESSION_RELEASE, 150), accept(200, "b")]
        assert kinds([*events, get(1, 300, "a", began=140)], there(1)) == set()

    def test_one_message_is_not_delivered_twice_under_one_lock(self) -> None:
        events = [*put(1), accept(100), get(1, 200)]
        assert FindingKind.TWO_HOLDERS in kinds([*events, get(1, 300)], there(1))
        back = settle(Op.ABANDON, events[-1], 250)
        assert kinds([*events, back, get(1, 300)], there(1)) == set()

    def test_a_redelivery_may_arrive_before_the_answer_to_the_abandon(self) -> None:
        first = get(1, 200)
        back = settle(Op.ABANDON, first, 400, began=250)
        assert kinds([*put(1), accept(100), first, get(1, 300), back], there(1)) == set()

    @pytest.mark.parametrize(("at", "found"), [(1_050, set()), (1_200, {FindingKind.SETTLED_LATE})])
    def test_a_lost_session_settles_nothing(self, at: int, found: set[str]) -> None:
        delivery = get(1, 200)
        assert kinds([*put(1), accept(100), delivery, settle(Op.COMPLETE, delivery, at)], final()) == found

    def test_the_next_holder_ends_the_rights_of_the_last(self) -> None:
        delivery = get(1, 200)
        events = [*put(1), accept(100), delivery, session(Op.SESSION_RELEASE, 300), accept(400, "b")]
        assert kinds([*events, settle(Op.COMPLETE, delivery, 500)], final()) == {FindingKind.SETTLED_LATE}
        assert kinds([*events, settle(Op.COMPLETE, delivery, 500, began=250)], final()) == set()

    def test_a_session_that_is_lost_cannot_be_renewed(self) -> None:
        assert kinds([accept(100), session(Op.SESSION_RENEW, 1_500)], final()) == {FindingKind.SETTLED_LATE}
        failed = session(Op.SESSION_RENEW, 1_500, outcome=FAILED)
        assert kinds([accept(100), failed], final()) == set()
        stranger = session(Op.SESSION_RENEW, 300, "b")
        assert kinds([accept(100), stranger], final()) == {FindingKind.SETTLED_LATE}

    def test_a_renewal_of_unknown_outcome_may_have_worked(self) -> None:
        events = [accept(100), session(Op.SESSION_RENEW, 900, outcome=UNKNOWN)]
        assert kinds([*events, session(Op.SESSION_RENEW, 1_700)], final()) == set()

    def test_the_dead_letter_queue_has_no_sessions(self) -> None:
        buried = get(1, 200, entity="q/$deadletterqueue")
        assert kinds([*put(1), buried, settle(Op.COMPLETE, buried, 300)], final()) == set()


class TestOrder:
    def test_deliveries_go_by_number(self) -> None:
        assert kinds([*put(1, 2), accept(100), get(1, 200), get(2, 300)], there(1, 2)) == set()
        assert kinds([*put(1, 2), accept(100), get(2, 200), get(1, 300)], there(1, 2)) == {FindingKind.ORDER}

    def test_a_message_that_was_never_delivered_counts_too(self) -> None:
        assert kinds([*put(1, 2), accept(100), get(2, 200)], there(1, 2)) == {FindingKind.ORDER}

    def test_what_was_abandoned_comes_before_what_follows(self) -> None:
        first = get(1, 200, count=0)
        events = [*put(1, 2), accept(100), first, settle(Op.ABANDON, first, 250)]
        assert kinds([*events, get(1, 300, count=1), get(2, 310)], there(1, 2)) == set()
        assert kinds([*events, get(2, 300)], there(1, 2)) == {FindingKind.ORDER}

    def test_what_was_delivered_ahead_of_an_abandon_is_no_fault(self) -> None:
        first = get(1, 200)
        prefetched = get(2, 300, began=210)
        events = [*put(1, 2), accept(100), first, settle(Op.ABANDON, first, 250), prefetched, get(1, 400)]
        assert kinds(events, there(1, 2)) == set()

    @pytest.mark.parametrize("op", [Op.DEFER, Op.DEAD_LETTER, Op.COMPLETE])
    @pytest.mark.parametrize("outcome", [OK, UNKNOWN])
    def test_what_was_taken_away_is_passed_over(self, op: str, outcome: str) -> None:
        first = get(1, 200)
        events = [*put(1, 2), accept(100), first, settle(op, first, 250, outcome=outcome), get(2, 300)]
        state = there(2) if op == Op.COMPLETE else there(1, 2)
        assert kinds(events, state) == set()

    def test_the_next_holder_begins_with_what_the_last_one_left(self) -> None:
        events = [*put(1, 2), accept(100), get(1, 200), session(Op.SESSION_RELEASE, 300), accept(400, "b")]
        assert kinds([*events, get(1, 500, "b"), get(2, 510, "b")], there(1, 2)) == set()
        assert kinds([*events, get(2, 500, "b")], there(1, 2)) == {FindingKind.ORDER}

    def test_unless_a_settlement_of_his_was_on_its_way(self) -> None:
        first = get(1, 200)
        events = [*put(1, 2), accept(100), first, session(Op.SESSION_RELEASE, 300), accept(400, "b")]
        done = settle(Op.COMPLETE, first, 600, began=290)
        assert kinds([*events, get(2, 500, "b"), done], there(2)) == set()

    def test_what_may_have_gone_to_the_dead_letter_queue_is_passed_over(self) -> None:
        first = get(1, 200, count=2)
        events = [*put(1, 2), accept(100), first, settle(Op.ABANDON, first, 250), get(2, 300)]
        assert kinds(events, there(1, 2, max_delivery_count=3)) == set()
        assert kinds(events, there(1, 2, max_delivery_count=4)) == {FindingKind.ORDER}

    def test_what_may_have_expired_is_passed_over(self) -> None:
        events = [*put(1, 2), accept(100), get(2, 200, enqueued_ms=WALL + 190)]
        assert kinds(events, there(1, 2, ttl_ms=150)) == set()
        assert kinds(events, there(1, 2, ttl_ms=250)) == {FindingKind.ORDER}

    def test_what_was_sent_in_a_transaction_counts_from_its_commit(self) -> None:
        sent = send("m1", 50, session="s", transaction="t")
        after = [*put(2), accept(100), sent, get(2, 200), ev(Op.COMMIT, 300, transaction="t")]
        assert kinds([*after, get(1, 400)], there(1, 2)) == set()
        before = [*put(2), sent, ev(Op.COMMIT, 60, transaction="t"), accept(100), get(2, 200)]
        assert kinds(before, there(1, 2)) == {FindingKind.ORDER}

    def test_sessions_do_not_order_each_other(self) -> None:
        events = [
            send("m1", 0, session="x"),
            send("m2", 1, session="s"),
            accept(100),
            get(2, 200),
        ]
        assert kinds(events, final(stored("m1", 1, session="x"), stored("m2", 2, session="s"))) == set()
