"""Rows that are handed over late, after other verbs and commits: each race that was thought of, or found."""

import pytest

from polybus.errors import MessageNotFound, SessionLockLost
from polybus.message.message import build
from polybus.partition import cursors, moving, receiving, session_verbs, upkeep
from tests.unit.partition.kit import LOCK_MS, body_of, main, queue, tiny, topic
from tests.unit.partition.solo import Pending, Solo

LARGE = b"x" * 40_000


def page(solo: Solo, log_id: int = 0) -> Pending:
    return solo.begin(receiving.load_page(solo.broker, solo.log(log_id)))


def move(solo: Solo, *numbers: int, log_id: int = 0) -> Pending:
    solo.routes["other"] = (9, 0)
    log = solo.log(log_id)
    return solo.begin(moving.move(solo.broker, log, solo.now, list(numbers), {}, {}, "other", 0, solo.reply, "move"))


def reopened(*bodies: bytes, **fields: object) -> Solo:
    """A queue whose messages are all in the store and none in memory."""
    solo = queue()
    solo.send_all([build(body, **fields) for body in bodies])  # type: ignore[arg-type]
    solo.crash()
    return solo


@pytest.mark.parametrize("commit", [True, False])
def test_a_message_removed_while_a_page_is_read_is_not_in_it(commit: bool) -> None:
    for bodies in ((b"1", b"2"), (LARGE, b"2")):
        solo = reopened(*bodies)
        reading = page(solo)
        move(solo, 1).finish()
        if commit:
            solo.commit()
        reading.finish()
        solo.commit()
        assert [body_of(entry) for entry in solo.take_all()] == [b"2"]
        assert solo.log().removed._changes == {}


def test_nor_one_removed_between_its_record_and_its_body() -> None:
    solo = reopened(LARGE, b"2")
    reading = page(solo)
    reading.step()
    move(solo, 1).finish()
    solo.commit()
    reading.finish()
    assert [body_of(entry) for entry in solo.take_all()] == [b"2"]
    assert solo.broker.bodies.memory == {}


def test_a_body_that_others_let_go_of_while_a_page_is_read_is_still_there_for_it() -> None:
    solo = topic(1, 2)
    solo.send(b"1" * 1000)
    solo.send(b"2" * 1000)
    solo.settings.bounds.page_entries = 1
    solo.crash()
    first = solo.get(main(1))
    assert list(solo.broker.bodies.memory) == [1]
    solo.settings.bounds.page_entries = 2
    reading = page(solo, main(2))
    reading.step()
    solo.complete(first)
    reading.finish()
    assert [body_of(entry) for entry in solo.take_all(main(2))] == [b"1" * 1000, b"2" * 1000]


def test_a_message_paged_in_before_memory_was_told_of_it_is_there_once() -> None:
    for sent_before in (b"1", None):
        solo = reopened(b"0", sent_before or b"")
        move(solo, 1).finish()
        if sent_before is None:
            move(solo, 2).finish()
        solo.commit()
        solo.send(b"2", commit=False)
        solo.seal()
        solo.write()
        page(solo).finish()
        solo.land()
        expected = [b"1", b"2"] if sent_before else [b"2"]
        assert [body_of(entry) for entry in solo.take_all()] == expected


def test_one_that_was_moved_before_memory_was_told_of_it_does_not_arrive() -> None:
    for solo in (queue(), queue(sessions=True)):
        solo.send(LARGE, commit=False, session_id="s")
        solo.seal()
        solo.write()
        move(solo, 1).finish()
        solo.land()
        assert (solo.take(), solo.log().active) == (None, 0)
        if solo.log().sessions is not None:
            assert solo.accept_next() is None
        solo.commit()
        assert solo.tables() == "F"
        assert solo.broker.bodies.memory == {}


def test_nor_does_it_join_a_session_that_is_held() -> None:
    solo = queue(sessions=True)
    session = solo.accept("s")
    solo.send(LARGE, commit=False, session_id="s")
    solo.seal()
    solo.write()
    move(solo, 1).finish()
    solo.land()
    assert solo.take_from(session) is None


def test_messages_that_arrive_while_the_last_page_is_read_are_not_forgotten() -> None:
    solo = reopened(b"1")
    reading = page(solo)
    solo.send(b"2")
    reading.finish()
    assert [body_of(entry) for entry in solo.take_all()] == [b"1", b"2"]


def test_a_page_dropped_in_the_middle_leaves_no_body_behind() -> None:
    solo = reopened(LARGE)
    reading = page(solo)
    reading.step()
    reading.drop()
    assert (solo.broker.bodies.memory, solo.broker.bodies.has_reads()) == ({}, False)
    assert body_of(solo.get()) == LARGE


@pytest.mark.parametrize("verb", ["complete", "defer", "dead_letter"])
def test_a_sweep_does_not_kill_what_was_settled_while_it_read(verb: str) -> None:
    solo = queue(dead_letter_expired=True)
    solo.send(b"1", ttl_ms=1000)
    solo.crash()
    solo.pass_time(1000)
    sweeping = solo.begin(upkeep.sweep(solo.broker, solo.now))
    sweeping.step()
    solo.pass_time(-500)  # the clock was wrong
    getattr(solo, verb)(solo.get())
    sweeping.finish()
    solo.commit()
    expected = {"complete": (0, 0, 0), "defer": (0, 0, 1), "dead_letter": (0, 0, 1)}[verb]
    assert (solo.log().active, solo.log().deferred, solo.log(1).active) == expected


def test_a_message_taken_while_it_is_looked_for_is_locked() -> None:
    solo = reopened(b"1")
    moving_one = move(solo, 1)
    entry = solo.get()
    moving_one.finish()
    solo.commit()
    assert (solo.said.moved, solo.said.locked) == ([], [1])
    solo.complete(entry)


def test_two_who_move_one_message_do_not_both_move_it() -> None:
    for body in (b"1", LARGE):
        for steps in (0, 1):
            solo = reopened(body)
            first, second = move(solo, 1), move(solo, 1)
            for _ in range(steps):
                if not first.done:
                    first.step()
                    second.step()
            if not first.done:
                first.finish()
                solo.commit()
                second.finish()
            solo.commit()
            moved = [result.moved for context, result, _ in solo.replies if context == "move"]
            assert sorted(moved) == [[], [1]]
            assert solo.broker.transfers == 1


def test_two_who_ask_for_one_deferred_message_do_not_both_get_it() -> None:
    solo = queue()
    solo.send(LARGE)
    solo.defer(solo.get())
    solo.crash()
    steps = receiving.take_deferred
    first = solo.begin(steps(solo.broker, solo.log(), solo.now, [1], True, None, None))
    second = solo.begin(steps(solo.broker, solo.log(), solo.now, [1], True, None, None))
    entry = first.finish()[0]
    with pytest.raises(MessageNotFound):
        second.finish()
    third = solo.begin(steps(solo.broker, solo.log(), solo.now, [1], True, None, None))
    solo.complete(entry)
    with pytest.raises(MessageNotFound):
        third.finish()
    assert (solo.tables(), solo.broker.bodies.memory) == ("", {})


def test_a_deferred_message_read_before_it_was_abandoned_has_the_new_count() -> None:
    solo = queue()
    solo.send()
    solo.defer(solo.get())
    reading = solo.begin(receiving.take_deferred(solo.broker, solo.log(), solo.now, [1], True, None, None))
    solo.abandon(solo.take_deferred(1)[0])
    assert reading.finish()[0].delivery_count == 1


def test_cancelling_and_activating_meet_and_one_of_them_wins() -> None:
    for cancel_first in (True, False):
        solo = queue()
        solo.send(b"1", scheduled_ms=solo.now.wall_ms + 1000)
        solo.pass_time(1000)
        activating = solo.begin(upkeep.activate(solo.broker, solo.now))
        activating.step()
        cancelling = solo.begin(upkeep.cancel(solo.broker, solo.now, [1], solo.reply, "cancel"))
        if cancel_first:
            cancelling.finish()
            solo.commit()
            activating.finish()
        else:
            activating.finish()
            solo.commit()
            with pytest.raises(MessageNotFound):
                cancelling.finish()
        solo.commit()
        assert (solo.log().active, solo.broker.scheduled) == (int(not cancel_first), 0)


def test_pruning_does_not_take_an_id_that_was_accepted_again_while_it_read() -> None:
    solo = queue()
    solo.settings.duplicate_window_ms = 10_000
    solo.settings.bounds.recent_ids = 1
    solo.crash()
    solo.send(message_id="a")
    solo.pass_time(20_000)
    pruning = solo.begin(upkeep.prune_duplicates(solo.broker, solo.now))
    solo.send(message_id="a")
    solo.send(message_id="b")
    solo.send(message_id="c")
    pruning.finish()
    solo.commit()
    assert solo.send(message_id="a") == 0


def test_a_session_lost_while_its_page_is_read_leaves_nothing_in_memory() -> None:
    solo = queue(sessions=True)
    solo.send(LARGE, session_id="a")
    session = solo.accept("a")
    solo.send(LARGE, session_id="a")
    solo.crash()
    accepting = solo.begin(session_verbs.accept(solo.broker, solo.log(), "a", solo.now, "me"))
    accepting.step()
    solo.move(LOCK_MS)
    with pytest.raises(SessionLockLost):
        accepting.finish()
    assert (solo.log().memory, solo.broker.bodies.memory) == ({}, {})
    assert not session.lost
    again = solo.accept_next()
    assert again is not None
    assert len(again.ready) == 2


def test_a_session_taken_over_while_messages_are_on_their_way_back_keeps_order_and_counts() -> None:
    solo = queue(sessions=True)
    for number in range(3):
        solo.send(b"%d" % number, session_id="a")
    session = solo.accept("a")
    first = solo.take_from(session)
    assert first is not None
    assert solo.take_from(session) is not None
    solo.abandon(first, commit=False)
    session_verbs.release(solo.broker, solo.log(), session, solo.now)
    accepting = solo.begin(session_verbs.accept(solo.broker, solo.log(), "a", solo.now, "you"))
    solo.commit()
    session = accepting.finish()
    found = []
    while (entry := solo.take_from(session)) is not None:
        found.append((body_of(entry), entry.delivery_count))
    assert found == [(b"0", 1), (b"1", 1), (b"2", 0)]


def test_a_message_settled_while_the_page_of_its_session_is_read_is_not_in_it() -> None:
    solo = tiny(queue(sessions=True), 2)
    for number in range(4):
        solo.send(b"%d" % number, session_id="a")
    session = solo.accept("a")
    solo.take_from(session)
    solo.take_from(session)
    reading = solo.begin(session_verbs.load_page(solo.broker, solo.log(), session))
    reading.step()
    move(solo, 3).finish()
    solo.commit()
    reading.finish()
    entry = solo.take_from(session)
    assert entry is not None
    assert body_of(entry) == b"3"


def test_deferred_messages_of_a_session_lost_meanwhile_are_not_locked() -> None:
    solo = queue(sessions=True)
    solo.send(LARGE, session_id="a")
    session = solo.accept("a")
    entry = solo.take_from(session)
    assert entry is not None
    solo.defer(entry)
    steps = session_verbs.take_deferred(solo.broker, solo.log(), session, solo.now, [1], True)
    reading = solo.begin(steps)
    solo.release_session(session)
    with pytest.raises(SessionLockLost):
        reading.finish()
    assert (solo.log().locked, solo.broker.bodies.memory) == (0, {})


def test_counts_of_a_shared_body_read_before_a_copy_went_are_not_believed() -> None:
    solo = topic(1, 2, 3)
    solo.send(b"x" * 1000)
    solo.crash()
    reading = page(solo, main(1))
    reading.step()  # the counts it asked for say three
    for number in (2, 3):
        solo.complete(solo.get(main(number)))
    reading.finish()
    solo.complete(solo.get(main(1)))
    assert (solo.tables(), solo.broker.size) == ("", 0)


def test_a_second_trim_does_not_begin_while_one_is_reading() -> None:
    solo = queue()
    solo.log().floor = 0
    for _ in range(3):
        solo.send(LARGE)
    for entry in solo.take_all():
        solo.complete(entry)
    solo.log().floor = 3
    first = solo.begin(cursors.trim(solo.broker, solo.log()))
    assert solo.run(cursors.trim(solo.broker, solo.log())) is True
    first.finish()
    solo.commit()
    assert solo.tables() == ""


def test_a_deferred_message_that_leaves_memory_as_the_read_ends_is_still_whole() -> None:
    for verb in ("move", "take", "fail"):
        solo = queue()
        solo.send(b"1")
        solo.send(LARGE)
        solo.get()
        solo.defer(solo.get(), commit=False)
        if verb == "move":
            verb_under_way = move(solo, 9, 2)
        else:
            numbers = [9, 2] if verb == "fail" else [2]
            steps = receiving.take_deferred(solo.broker, solo.log(), solo.now, numbers, True, None, None)
            verb_under_way = solo.begin(steps)
        solo.commit()
        if verb == "fail":
            with pytest.raises(MessageNotFound):
                verb_under_way.finish()
        else:
            verb_under_way.finish()
        solo.commit()
        assert solo.log().deferred == (0 if verb == "move" else 1)
        assert len(solo.broker.bodies.memory) == (1 if verb == "take" else 0)


def test_a_body_that_went_while_a_range_is_read_is_no_damage_though_a_cursor_has_begun() -> None:
    """What begins to be kept now was let go of before."""
    solo = queue()
    for _ in range(2):
        solo.send(LARGE)
    reading = solo.begin(cursors.read_range(solo.broker, solo.log(), 1, 2, 10, 1 << 20))
    reading.step()  # the place of the first position is known; what is captured now are the rows
    solo.complete(solo.get())
    solo.log().floor = 0
    rows, complete_to = reading.finish()
    assert ([row.stored.position for row in rows], complete_to) == ([2], 2)
