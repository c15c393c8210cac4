"""Order by sends and by keys; numbers; what comes out is what went in."""

from __future__ import annotations

from typing import Any

import pytest

from polybus.testing.history import FAILED, OK, UNKNOWN, Event, Op
from polybus.testing.verifier import FindingKind, verify
from polybus.testing.verifier.contents import SCHEDULED

from .history_kit import WALL, ev, final, kinds, receive, send, stored


def at(partition: int, counter: int) -> int:
    return (partition << 48) + counter


class TestSendOrder:
    STATE = final(stored("m", 2), stored("n", 1))

    def test_a_send_after_an_acknowledged_one_gets_the_higher_number(self) -> None:
        assert kinds([send("m", 10), send("n", 20)], self.STATE) == {FindingKind.ORDER}
        assert kinds([send("n", 10), send("m", 20)], self.STATE) == set()

    def test_sends_that_overlap_may_go_either_way(self) -> None:
        assert kinds([send("m", 10), send("n", 20, began=5)], self.STATE) == set()

    def test_sends_of_different_clients_may_go_either_way(self) -> None:
        assert kinds([send("m", 10), send("n", 20, client="b")], self.STATE) == set()

    @pytest.mark.parametrize("outcome", [UNKNOWN])
    def test_a_send_in_doubt_may_come_late(self, outcome: str) -> None:
        assert kinds([send("m", 10, outcome=outcome), send("n", 20)], self.STATE) == set()

    def test_a_batch_keeps_its_order(self) -> None:
        batch = [ev(Op.BATCH_SEND, 10, message_id=m, batch="b", after=0) for m in ("m", "n")]
        assert kinds(batch, self.STATE) == {FindingKind.ORDER}

    @pytest.mark.parametrize(("key", "found"), [("k", {FindingKind.ORDER}), (None, set())])
    def test_on_partitions_a_key_buys_the_order(self, key: str | None, found: set[str]) -> None:
        state = final(stored("m", 2, key=key), stored("n", 1, key=key), partitions=4)
        assert kinds([send("m", 10, key=key), send("n", 20, key=key)], state) == found


class TestKeyOrder:
    STATE = final(stored("m", 1, key="k"), stored("n", 2, key="k"), partitions=2)

    def sends(self) -> list[Event]:
        return [send("m", 1, key="k"), send("n", 2, key="k")]

    def get(self, message_id: str, number: int, time: int, **values: Any) -> Event:
        return receive(message_id, number, time, key="k", **values)

    def test_first_deliveries_go_by_number(self) -> None:
        one, two = self.get("m", 1, 10), self.get("n", 2, 20, client="b")
        assert kinds([*self.sends(), one, two], self.STATE) == set()
        one, two = self.get("m", 1, 20), self.get("n", 2, 10, client="b")
        assert kinds([*self.sends(), two, one], self.STATE) == {FindingKind.ORDER}

    def test_a_delivery_that_may_have_been_first_is_no_fault(self) -> None:
        events = [*self.sends(), self.get("n", 2, 10, client="b"), self.get("m", 1, 20, began=5)]
        assert kinds(events, self.STATE) == set()

    def test_redeliveries_do_not_count(self) -> None:
        events = [*self.sends(), self.get("n", 2, 10, client="b"), self.get("m", 1, 20, count=1)]
        assert kinds(events, self.STATE) == set()

    @pytest.mark.parametrize("op", [Op.LINK_CLOSED, Op.RESTART, Op.FENCED])
    def test_what_was_held_for_a_closed_link_comes_later(self, op: str) -> None:
        between = ev(op, 15, entity="q" if op == Op.LINK_CLOSED else "")
        events = [*self.sends(), self.get("n", 2, 10), between, self.get("m", 1, 20)]
        assert kinds(events, self.STATE) == set()

    def test_what_was_committed_later_comes_later(self) -> None:
        sent = send("m", 1, key="k", transaction="t")
        events = [sent, send("n", 2, key="k"), self.get("n", 2, 10), ev(Op.COMMIT, 15, transaction="t")]
        assert kinds([*events, self.get("m", 1, 20)], self.STATE) == set()


class TestNumbers:
    def test_a_number_is_never_used_again(self) -> None:
        taken = ev(Op.RECEIVE_AND_DELETE, 10, message_id="m", number=1)
        assert kinds([send("m"), taken, send("n", 20)], final(stored("n", 1))) == {FindingKind.NUMBERS}

    def test_nor_that_of_a_cancelled_schedule(self) -> None:
        events = [
            ev(Op.SCHEDULE, 0, message_id="m", number=1, due_ms=WALL + 9_000),
            ev(Op.CANCEL, 10, number=1),
            send("n", 20),
        ]
        assert kinds(events, final(stored("n", 1))) == {FindingKind.NUMBERS}
        assert kinds(events, final(stored("n", 2))) == set()

    def test_no_two_messages_are_stored_under_one(self) -> None:
        state = final(stored("m", 1, partition=0), stored("m", 1, partition=0))
        assert FindingKind.NUMBERS in kinds([send("m"), send("m", 10)], state)

    def test_its_top_bits_are_the_partition(self) -> None:
        assert kinds([send("m")], final(stored("m", at(3, 1)), partitions=4)) == set()
        assert kinds([send("m")], final(stored("m", at(4, 1)), partitions=4)) == {FindingKind.NUMBERS}
        assert kinds([send("m")], final(stored("m", at(2, 1), partition=3), partitions=4)) == {FindingKind.NUMBERS}
        told = receive("m", at(2, 1), 10, partition=3)
        assert FindingKind.NUMBERS in kinds([send("m"), told], final(stored("m", at(2, 1)), partitions=4))

    def test_a_key_has_one_partition(self) -> None:
        sends = [send("m", 0, key="k"), send("n", 0, began=0, client="b", key="k")]
        apart = final(stored("m", at(1, 1), key="k"), stored("n", at(2, 1), key="k"), partitions=4)
        assert kinds(sends, apart) == {FindingKind.NUMBERS}
        together = final(stored("m", at(1, 1), key="k"), stored("n", at(1, 2), key="k"), partitions=4)
        assert kinds(sends, together) == set()

    def test_a_failed_operation_says_nothing(self) -> None:
        failed = ev(Op.SCHEDULE, 5, message_id="n", number=1, outcome=FAILED)
        assert kinds([send("m"), failed], final(stored("m", 1))) == set()


class TestIntegrity:
    @pytest.mark.parametrize("op", [Op.PEEK, Op.RECEIVE])
    def test_a_body_comes_out_as_it_went_in(self, op: str) -> None:
        state = final(stored("m", 1))
        seen = {"message_id": "m", "number": 1, "token": "t"}
        assert kinds([send("m", digest="1"), ev(op, 10, digest="1", **seen)], state) == set()  # type: ignore[arg-type]
        assert kinds([send("m", digest="1"), ev(op, 10, digest="2", **seen)], state) == {FindingKind.CORRUPTED}  # type: ignore[arg-type]

    def test_what_is_peeked_at_was_sent(self) -> None:
        peek = ev(Op.PEEK, 10, message_id="m", number=1)
        assert kinds([peek]) == {FindingKind.INVENTED}
        assert kinds([send("m", outcome=FAILED), peek]) == {FindingKind.INVENTED}
        assert kinds([send("m", outcome=UNKNOWN), peek]) == set()

    def test_so_it_does_from_the_store(self) -> None:
        assert kinds([send("m", digest="1")], final(stored("m", 1, digest="1"))) == set()
        assert kinds([send("m", digest="1")], final(stored("m", 1, digest="2"))) == {FindingKind.CORRUPTED}

    def test_sent_with_two_bodies_either_will_do(self) -> None:
        sends = [send("m", 0, digest="1"), send("m", 10, digest="2")]
        assert kinds(sends, final(stored("m", 1, digest="2"), stored("m", 2, digest="1"))) == set()

    @pytest.mark.parametrize("field", ["session", "key"])
    def test_session_and_key_stay(self, field: str) -> None:
        assert kinds([send("m", **{field: "x"})], final(stored("m", 1, **{field: "x"}))) == set()  # type: ignore[arg-type]
        assert kinds([send("m", **{field: "x"})], final(stored("m", 1, **{field: "y"}))) == {FindingKind.CORRUPTED}  # type: ignore[arg-type]

    def test_a_sessions_id_may_be_shown_as_the_key_that_its_sender_left_out(self) -> None:
        assert kinds([send("m", session="s")], final(stored("m", 1, session="s", key="s"))) == set()
        assert kinds([send("m", session="s")], final(stored("m", 1, session="s", key="t"))) == {FindingKind.CORRUPTED}
        keyed = [send("m", session="s", key="s")]
        assert kinds(keyed, final(stored("m", 1, session="s"))) == {FindingKind.CORRUPTED}


class TestTiming:
    SCHEDULE = ev(Op.SCHEDULE, 0, message_id="m", number=1, due_ms=WALL + 500)

    @pytest.mark.parametrize(("time", "found"), [(400, {FindingKind.EARLY}), (500, set())])
    def test_nothing_is_delivered_before_it_is_due(self, time: int, found: set[str]) -> None:
        assert kinds([self.SCHEDULE, receive("m", 2, time)], final(stored("m", 2))) == found

    def test_a_jump_of_the_wall_clock_counts_even_when_it_is_set_back(self) -> None:
        ahead = ev(Op.CLOCK_MOVED, 100, entity="", wall_ms=WALL + 600)
        assert kinds([self.SCHEDULE, ahead, receive("m", 2, 110)], final(stored("m", 2))) == set()

    def test_in_several_histories_readings_of_one_millisecond_count_for_all(self) -> None:
        ahead = ev(Op.CLOCK_MOVED, 110, entity="", wall_ms=WALL + 600)
        histories = [[self.SCHEDULE, receive("m", 2, 110)], [ahead]]
        assert verify(histories, final(stored("m", 2))).clean
        histories = [[self.SCHEDULE, receive("m", 2, 109)], [ahead]]
        assert verify(histories, final(stored("m", 2))).kinds() == {FindingKind.EARLY}

    def test_moving_the_clock_of_the_bus_makes_it_due(self) -> None:
        moved = ev(Op.CLOCK_MOVED, 10, entity="", moved_wall_ms=1_000, moved_mono_ms=1_000)
        assert kinds([self.SCHEDULE, moved, receive("m", 2, 20)], final(stored("m", 2))) == set()

    def test_nor_is_it_active_before(self) -> None:
        assert kinds([self.SCHEDULE], final(stored("m", 2), wall_ms=WALL + 400)) == {FindingKind.EARLY}
        assert kinds([self.SCHEDULE], final(stored("m", 1, SCHEDULED), wall_ms=WALL + 400)) == set()

    @pytest.mark.parametrize(("time", "found"), [(90, set()), (150, {FindingKind.EXPIRED})])
    def test_nothing_is_delivered_after_its_time_to_live(self, time: int, found: set[str]) -> None:
        assert kinds([send("m"), receive("m", 1, time)], final(stored("m", 1), ttl_ms=100)) == found

    def test_a_delivery_seen_late_may_have_been_in_time(self) -> None:
        events = [send("m"), receive("m", 1, 150, began=50)]
        assert kinds(events, final(stored("m", 1), ttl_ms=100)) == set()

    def test_the_bus_says_when_it_became_active(self) -> None:
        events = [self.SCHEDULE, receive("m", 2, 700, enqueued_ms=WALL + 550)]
        assert kinds(events, final(stored("m", 2), ttl_ms=200)) == set()
        events = [self.SCHEDULE, receive("m", 2, 800, enqueued_ms=WALL + 550)]
        assert kinds(events, final(stored("m", 2), ttl_ms=200)) == {FindingKind.EXPIRED}

    def test_the_dead_letter_queue_knows_no_time_to_live(self) -> None:
        events = [send("m"), receive("m", 1, 900, entity="q/$deadletterqueue")]
        assert kinds(events, final(stored("m", 1), ttl_ms=100)) == set()

    def test_an_acknowledged_outcome_is_needed_to_know_when_it_was_sent(self) -> None:
        events = [send("m", outcome=UNKNOWN), receive("m", 1, 150)]
        assert kinds(events, final(stored("m", 1), ttl_ms=100)) == set()
        assert kinds([send("m", outcome=OK), receive("m", 1, 150)], final(stored("m", 1), ttl_ms=100)) != set()
