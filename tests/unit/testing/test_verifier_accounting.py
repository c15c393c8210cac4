"""Lost, invented, duplicated, duplicate accepted, cancelled; what is excused and what is only reported."""

from __future__ import annotations

import pytest

from polybus.testing.history import FAILED, OK, UNKNOWN, Op
from polybus.testing.verifier import EntityContents, EntityOptions, FinalState, FindingKind
from polybus.testing.verifier.contents import DEAD_LETTER, DEFERRED, LOCKED, SCHEDULED

from .history_kit import WALL, ev, final, judge, kinds, receive, send, settle, stored


def test_a_message_sent_received_and_completed_is_clean() -> None:
    delivery = receive("m", 1, 10)
    assert kinds([send("m"), delivery, settle(Op.COMPLETE, delivery, 20)]) == set()


@pytest.mark.parametrize("state", [LOCKED, DEFERRED, DEAD_LETTER, SCHEDULED])
def test_a_message_still_stored_is_not_lost(state: str) -> None:
    assert kinds([send("m")], final(stored("m", state=state))) == set()


@pytest.mark.parametrize(("outcome", "found"), [(OK, {FindingKind.LOST}), (UNKNOWN, set()), (FAILED, set())])
def test_only_what_was_acknowledged_can_be_lost(outcome: str, found: set[str]) -> None:
    assert kinds([send("m", outcome=outcome)]) == found


def test_received_and_abandoned_but_gone_is_lost() -> None:
    delivery = receive("m", 1, 10)
    assert kinds([send("m"), delivery, settle(Op.ABANDON, delivery, 20)]) == {FindingKind.LOST}


@pytest.mark.parametrize(("outcome", "found"), [(UNKNOWN, set()), (FAILED, {FindingKind.LOST})])
def test_a_completion_of_unknown_outcome_excuses_absence(outcome: str, found: set[str]) -> None:
    delivery = receive("m", 1, 10)
    assert kinds([send("m"), delivery, settle(Op.COMPLETE, delivery, 20, outcome=outcome)]) == found


def test_dead_lettered_and_consumed_from_the_dead_letter_queue_is_accounted_for() -> None:
    delivery = receive("m", 1, 10)
    buried = receive("m", 1, 30, entity="q/$DeadLetterQueue")
    events = [send("m"), delivery, settle(Op.DEAD_LETTER, delivery, 20)]
    assert kinds(events) == {FindingKind.LOST}
    assert kinds([*events, buried, settle(Op.COMPLETE, buried, 40)]) == set()


def test_two_sends_of_one_id_leave_two_copies_without_duplicate_detection() -> None:
    sends = [send("m", 0), send("m", 5)]
    assert kinds(sends, final(stored("m", 1), stored("m", 2))) == set()
    assert kinds(sends, final(stored("m", 1))) == {FindingKind.LOST}
    assert kinds(sends, final(stored("m", 1), stored("m", 2), stored("m", 3))) == {FindingKind.INVENTED}


def test_received_but_never_sent_is_invented() -> None:
    assert FindingKind.INVENTED in kinds([receive("m", 1, 10)], final(stored("m")))
    assert kinds([send("m", outcome=FAILED)], final(stored("m"))) == {FindingKind.INVENTED}


def test_an_unknown_send_that_is_found_is_reported_as_recovered() -> None:
    verdict = judge([send("m", outcome=UNKNOWN)], final(stored("m")))
    assert verdict.clean
    assert verdict.report["recovered"] == 1


def test_completed_twice_and_acknowledged_twice_is_duplicated() -> None:
    first, second = receive("m", 1, 10), receive("m", 1, 2_000, client="b")
    events = [send("m"), first, second, settle(Op.COMPLETE, second, 2_100)]
    assert kinds([*events, settle(Op.COMPLETE, first, 2_200, outcome=FAILED)]) == set()
    assert FindingKind.DUPLICATED in kinds([*events, settle(Op.COMPLETE, first, 2_200)])


def test_two_copies_of_one_send_both_consumed_are_duplicated() -> None:
    one, two = receive("m", 1, 10), receive("m", 2, 20)
    events = [send("m"), one, two, settle(Op.COMPLETE, one, 30), settle(Op.COMPLETE, two, 40)]
    assert kinds(events) == {FindingKind.INVENTED, FindingKind.DUPLICATED}


def test_receive_and_delete_counts_as_received() -> None:
    taken = ev(Op.RECEIVE_AND_DELETE, 10, message_id="m", number=1)
    assert kinds([send("m"), taken]) == set()
    again = ev(Op.RECEIVE_AND_DELETE, 20, message_id="m", number=1)
    assert kinds([send("m"), taken, again]) == {FindingKind.DUPLICATED, FindingKind.REDELIVERED}


def test_a_receive_and_delete_of_unknown_outcome_may_have_taken_its_number_of_messages() -> None:
    events = [send("m"), send("n"), ev(Op.RECEIVE_AND_DELETE, 10, outcome=UNKNOWN)]
    verdict = judge(events)
    assert [finding.kind for finding in verdict.findings] == [FindingKind.LOST]
    assert verdict.report["vanished"] == 1
    events[-1] = ev(Op.RECEIVE_AND_DELETE, 10, outcome=UNKNOWN, at_most=2)
    assert judge(events).clean


def test_a_receive_and_delete_cannot_have_taken_what_was_sent_later() -> None:
    assert kinds([ev(Op.RECEIVE_AND_DELETE, 10, outcome=UNKNOWN), send("m", 20)]) == {FindingKind.LOST}


def test_consumed_and_still_stored_is_redelivered() -> None:
    delivery = receive("m", 1, 10)
    events = [send("m"), delivery, settle(Op.COMPLETE, delivery, 20)]
    assert kinds(events, final(stored("m", 1))) == {FindingKind.REDELIVERED}


class TestDuplicateDetection:
    def test_a_second_copy_inside_the_window_is_found(self) -> None:
        state = final(stored("m", 1), stored("m", 2), dedup_window_ms=100)
        assert kinds([send("m", 0), send("m", 50)], state) == {FindingKind.DUPLICATE_ACCEPTED}
        assert kinds([send("m", 0), send("m", 150)], state) == set()

    def test_one_copy_of_many_sends_is_what_it_is_for(self) -> None:
        state = final(stored("m", 1), dedup_window_ms=100)
        assert kinds([send("m", 0), send("m", 50, outcome=UNKNOWN), send("m", 90)], state) == set()

    def test_acknowledged_a_window_later_it_must_be_a_further_copy(self) -> None:
        state = final(stored("m", 1), dedup_window_ms=100)
        assert kinds([send("m", 0), send("m", 150)], state) == {FindingKind.LOST}

    def test_a_slow_send_may_have_come_after_the_window(self) -> None:
        state = final(stored("m", 1), stored("m", 2), dedup_window_ms=100)
        assert kinds([send("m", 0), send("m", 130, began=60)], state) == set()
        assert kinds([send("m", 0), send("m", 90, began=60)], state) == {FindingKind.DUPLICATE_ACCEPTED}

    def test_duplicates_do_not_extend_the_window(self) -> None:
        state = final(stored("m", 1), stored("m", 2), dedup_window_ms=100)
        assert kinds([send("m", 0), send("m", 70), send("m", 140)], state) == set()

    def test_on_partitions_equal_ids_under_other_keys_need_not_meet(self) -> None:
        messages = (stored("m", 1, key="x"), stored("m", (1 << 48) + 1, key="y"))
        sends = [send("m", 0, key="x"), send("m", 10, key="y")]
        assert kinds(sends, final(*messages, dedup_window_ms=100, partitions=4)) == set()
        plain = (stored("m", 1, key="x"), stored("m", 2, key="y"))
        assert kinds(sends, final(*plain, dedup_window_ms=100)) == {FindingKind.DUPLICATE_ACCEPTED}

    def test_a_single_send_with_two_copies_is_invented(self) -> None:
        state = final(stored("m", 1), stored("m", 2), dedup_window_ms=100)
        assert kinds([send("m")], state) == {FindingKind.INVENTED}


class TestCancelling:
    SCHEDULE = ev(Op.SCHEDULE, 0, message_id="m", number=7, due_ms=WALL + 500)

    @pytest.mark.parametrize(("outcome", "found"), [(OK, {FindingKind.CANCELLED}), (UNKNOWN, set()), (FAILED, set())])
    def test_what_was_cancelled_is_not_there(self, outcome: str, found: set[str]) -> None:
        events = [self.SCHEDULE, ev(Op.CANCEL, 10, number=7, outcome=outcome)]
        assert kinds(events, final(stored("m", 8))) == found

    @pytest.mark.parametrize(("outcome", "found"), [(OK, set()), (UNKNOWN, set()), (FAILED, {FindingKind.LOST})])
    def test_what_was_cancelled_is_not_lost(self, outcome: str, found: set[str]) -> None:
        assert kinds([self.SCHEDULE, ev(Op.CANCEL, 10, number=7, outcome=outcome)]) == found


class TestExpiry:
    def test_what_has_outlived_its_time_may_be_gone(self) -> None:
        assert kinds([send("m")], final(ttl_ms=100, wall_ms=WALL + 200)) == set()
        assert kinds([send("m")], final(ttl_ms=100, wall_ms=WALL + 50)) == {FindingKind.LOST}
        assert kinds([send("m", ttl_ms=100)], final(wall_ms=WALL + 200)) == set()
        assert kinds([send("m", ttl_ms=100)], final(wall_ms=WALL + 50)) == {FindingKind.LOST}

    def test_where_expiry_dead_letters_it_must_be_found(self) -> None:
        options = {"ttl_ms": 100, "dead_letter_on_expiry": True, "wall_ms": WALL + 200}
        assert kinds([send("m")], final(**options)) == {FindingKind.LOST}
        assert kinds([send("m")], final(stored("m", state=DEAD_LETTER), **options)) == set()

    def test_a_scheduled_message_lives_from_its_activation(self) -> None:
        schedule = ev(Op.SCHEDULE, 0, message_id="m", number=1, due_ms=WALL + 500)
        assert kinds([schedule], final(ttl_ms=100, wall_ms=WALL + 550)) == {FindingKind.LOST}
        assert kinds([schedule], final(ttl_ms=100, wall_ms=WALL + 700)) == set()

    def test_seen_to_be_gone_before_its_time_is_lost(self) -> None:
        state = final(ttl_ms=100)
        assert kinds([send("m"), ev(Op.EXPIRE, 50, message_id="m")], state) == {FindingKind.LOST}
        assert kinds([send("m"), ev(Op.EXPIRE, 150, message_id="m")], state) == set()


class TestTopics:
    def topic(self, first: EntityContents, second: EntityContents) -> FinalState:
        topic = EntityContents(EntityOptions(delivers_to=("t/one", "t/two"), dedup_window_ms=100))
        return FinalState({"t": topic, "t/one": first, "t/two": second}, WALL + 1_000)

    def test_a_copy_belongs_in_each_subscription(self) -> None:
        both = self.topic(EntityContents(messages=[stored("m")]), EntityContents(messages=[stored("m")]))
        assert kinds([send("m", entity="t")], both) == set()
        verdict = judge([send("m", entity="t")], self.topic(EntityContents(messages=[stored("m")]), EntityContents()))
        assert [(finding.kind, finding.entity) for finding in verdict.findings] == [(FindingKind.LOST, "t/two")]

    def test_the_topic_detects_duplicates_for_its_subscriptions(self) -> None:
        twice = EntityContents(messages=[stored("m", 1), stored("m", 2)])
        once = EntityContents(messages=[stored("m", 1)])
        verdict = judge([send("m", entity="t"), send("m", 50, entity="t")], self.topic(twice, once))
        assert [(f.kind, f.entity) for f in verdict.findings] == [(FindingKind.DUPLICATE_ACCEPTED, "t/one")]

    def test_scheduled_messages_wait_in_the_topic(self) -> None:
        state = self.topic(EntityContents(), EntityContents())
        schedule = ev(Op.SCHEDULE, 0, entity="t", message_id="m", number=3, due_ms=WALL + 5_000)
        assert kinds([schedule], state) == {FindingKind.LOST}
        state.entities["t"].messages.append(stored("m", 3, SCHEDULED))
        assert kinds([schedule], state) == set()
