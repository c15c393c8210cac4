"""Messages deleted, deferred, un-deferred and given another time by their numbers."""

from __future__ import annotations

from typing import Any

import pytest

from polybus.errors import MessageNotFound
from polybus.partition import by_number, rescheduling, upkeep
from polybus.partition.data import Moved
from polybus.partition.session_list import list_sessions
from tests.unit.partition.kit import body_of, queue, tiny
from tests.unit.partition.solo import Solo


def said(solo: Solo, steps: Any) -> tuple[list[int], list[int], list[int]]:
    solo.run(steps)
    solo.commit()
    assert isinstance(solo.said, Moved)
    return solo.said.moved, solo.said.missing, solo.said.locked


def delete(solo: Solo, *numbers: int, log_id: int = 0) -> tuple[list[int], list[int], list[int]]:
    return said(solo, by_number.delete(solo.broker, solo.log(log_id), solo.now, list(numbers), solo.reply, "delete"))


def undefer(solo: Solo, *numbers: int, log_id: int = 0) -> tuple[list[int], list[int], list[int]]:
    return said(
        solo, by_number.undefer(solo.broker, solo.log(log_id), solo.now, list(numbers), solo.reply, "undefer")
    )


def defer(solo: Solo, *numbers: int, log_id: int = 0) -> tuple[list[int], list[int], list[int]]:
    return said(solo, by_number.defer(solo.broker, solo.log(log_id), solo.now, list(numbers), solo.reply, "defer"))


def reschedule(solo: Solo, *numbers: int, due_ms: int = 0, by_ms: int = 0) -> tuple[list[int], list[int], list[int]]:
    steps = rescheduling.reschedule(solo.broker, solo.now, list(numbers), due_ms, by_ms, solo.reply, "move")
    return said(solo, steps)


def test_deleting_leaves_what_a_receiver_holds() -> None:
    solo = tiny(queue(), 2)
    for number in range(6):
        solo.send(b"%d" % number)
    solo.get()
    solo.defer(solo.get())
    assert delete(solo, 1, 2, 5, 5, 99) == ([2, 5], [99], [1])
    assert [body_of(entry) for entry in solo.take_all()] == [b"2", b"3", b"5"]
    assert solo.log().deferred == 0


def test_dead_letters_are_deleted_by_their_numbers() -> None:
    solo = queue()
    for _ in range(3):
        solo.send(b"x" * 100)
        solo.dead_letter(solo.get(), "why")
    assert delete(solo, 1, 3, log_id=1) == ([1, 3], [], [])
    assert (solo.log(1).active, solo.broker.size) == (1, solo.log(1).active_bytes)


def test_what_waits_in_a_session_that_is_held_stays() -> None:
    solo = queue(sessions=True)
    for session in ("a", "a", "b"):
        solo.send(session_id=session)
    solo.accept("a")
    assert delete(solo, 1, 2, 3) == ([3], [], [1, 2])


def test_a_deferred_message_becomes_active_behind_the_others() -> None:
    solo = queue()
    solo.send(b"0", ttl_ms=90_000)
    solo.send(b"1")
    entry = solo.get()
    solo.abandon(entry)
    solo.defer(solo.get())
    expires_ms = solo.now.wall_ms + 90_000
    assert undefer(solo, 1, 2, 9) == ([1], [9, 2], [])
    entries = solo.take_all()
    assert [body_of(entry) for entry in entries] == [b"1", b"0"]
    again = entries[1]
    assert (again.sequence, again.original, again.delivery_count, again.expires_ms) == (3, 1, 1, expires_ms)
    assert (solo.log().deferred, solo.log().active) == (0, 2)
    solo.crash()
    assert [body_of(entry) for entry in solo.take_all()] == [b"1", b"0"]


def test_a_message_that_nobody_holds_is_deferred_under_its_number() -> None:
    solo = tiny(queue(), 2)
    for number in range(6):
        solo.send(b"%d" % number, ttl_ms=90_000)
    solo.get()
    expires_ms = solo.now.wall_ms + 90_000
    assert defer(solo, 1, 3, 6, 6, 99) == ([3, 6], [99], [1])
    assert defer(solo, 3) == ([], [3], [])
    assert [body_of(entry) for entry in solo.take_all()] == [b"1", b"3", b"4"]
    assert (solo.log().deferred, solo.log().active) == (2, 4)
    solo.crash()
    assert {body_of(entry) for entry in solo.take_all()} == {b"0", b"1", b"3", b"4"}
    assert undefer(solo, 3, 6) == ([3, 6], [], [])
    again = solo.take_all()
    assert [body_of(entry) for entry in again] == [b"2", b"5"]
    assert [entry.expires_ms for entry in again] == [expires_ms] * 2


def test_what_waits_in_a_session_that_is_held_is_not_deferred() -> None:
    solo = queue(sessions=True)
    for session in ("a", "a", "b"):
        solo.send(session_id=session)
    solo.accept("a")
    assert defer(solo, 1, 2, 3) == ([3], [], [1, 2])


def test_a_deferred_dead_letter_keeps_its_number() -> None:
    solo = queue()
    solo.send(b"0")
    solo.dead_letter(solo.get(), "why")
    solo.defer(solo.get(1))
    assert undefer(solo, 1, log_id=1) == ([1], [], [])
    assert solo.get(1).sequence == 1


def test_a_scheduled_message_is_moved_in_time_and_keeps_its_number() -> None:
    solo = queue()
    start_ms = solo.now.wall_ms
    solo.send(b"0", scheduled_ms=start_ms + 1000)
    solo.send(b"1", scheduled_ms=start_ms + 1000)
    assert reschedule(solo, 1, 7, due_ms=start_ms + 5000) == ([1], [7], [])
    solo.move(1000)
    assert [body_of(entry) for entry in solo.take_all()] == [b"1"]
    peeked = [each for each in solo.peek() if each.marks.sequence == 1]
    assert peeked[0].message.scheduled_ms == start_ms + 5000
    solo.crash()
    solo.move(4000)
    assert [body_of(entry) for entry in solo.take_all()] == [b"1", b"0"]
    assert (solo.broker.scheduled, solo.broker.scheduled_bytes) == (0, 0)


def test_one_that_is_moved_into_the_past_comes_at_once() -> None:
    solo = queue()
    solo.send(b"0", scheduled_ms=solo.now.wall_ms + 1000)
    assert reschedule(solo, 1, by_ms=-5000) == ([1], [], [])
    solo.move(0)
    assert body_of(solo.get()) == b"0"


def test_cancelling_after_a_move_that_is_not_synced_leaves_nothing() -> None:
    solo = queue()
    solo.send(b"0", scheduled_ms=solo.now.wall_ms + 1000)
    start = rescheduling.reschedule(solo.broker, solo.now, [1], 0, 9000, solo.reply, "move")
    solo.run(start)
    solo.cancel(1)
    assert solo.tables() == ""
    with pytest.raises(MessageNotFound):
        solo.cancel(1)
    solo.move(20_000)
    assert solo.take() is None


def test_an_activation_that_has_read_the_old_time_leaves_it() -> None:
    solo = queue()
    solo.send(b"0", scheduled_ms=solo.now.wall_ms + 1000)
    solo.pass_time(1000)
    pending = solo.begin(upkeep.activate(solo.broker, solo.now))
    solo.run(rescheduling.reschedule(solo.broker, solo.now, [1], 0, 9000, solo.reply, "move"))
    pending.finish()
    solo.commit()
    assert solo.take() is None
    solo.move(9000)
    assert body_of(solo.get()) == b"0"


def test_sessions_are_listed_with_counts_and_holders() -> None:
    solo = queue(sessions=True)
    for session in ("a", "a", "b"):
        solo.send(session_id=session)
    held = solo.accept("a")
    solo.accept("empty")
    del held
    found = solo.run(list_sessions(solo.log(), None, 10))
    assert [(each.id, each.messages, each.holder is None) for each in found] == [
        ("a", 2, False),
        ("b", 1, True),
        ("empty", 0, False),
    ]
    assert found[0].locked_until_ms > solo.now.wall_ms
    rest = solo.run(list_sessions(solo.log(), "a", 1))
    assert [each.id for each in rest] == ["b"]
