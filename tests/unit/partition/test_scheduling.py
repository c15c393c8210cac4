import pytest

from polybus.errors import MessageNotFound
from polybus.message.message import build
from polybus.partition import upkeep
from polybus.partition.broker import NOT_DUE
from tests.unit.partition.kit import body_of, main, queue, topic


def test_a_scheduled_message_has_a_number_and_waits() -> None:
    solo = queue()
    assert solo.send(b"later", scheduled_ms=solo.now.wall_ms + 1000) == 1
    assert solo.send(b"now") == 2
    assert body_of(solo.get()) == b"now"
    assert solo.take() is None
    assert (solo.broker.scheduled, solo.log().active) == (1, 1)
    peeked = solo.peek()[0]
    assert (peeked.marks.sequence, peeked.marks.state) == (1, 2)


def test_its_time_comes_and_it_gets_a_new_number() -> None:
    solo = queue()
    due = solo.now.wall_ms + 1000
    solo.send(b"later", scheduled_ms=due, ttl_ms=500)
    solo.move(999)
    assert solo.take() is None
    solo.move(1)
    entry = solo.get()
    assert (entry.sequence, entry.original, entry.enqueued_ms) == (2, 1, due)
    assert entry.expires_ms == due + 500
    assert (solo.broker.scheduled, solo.broker.scheduled_bytes) == (0, 0)
    solo.complete(entry)
    assert solo.tables() == ""


def test_a_time_in_the_past_is_now() -> None:
    solo = queue()
    solo.send(b"1", scheduled_ms=solo.now.wall_ms)
    assert body_of(solo.get()) == b"1"


def test_they_become_active_by_time_and_then_by_number() -> None:
    solo = queue()
    solo.settings.bounds.sweep_rows = 2
    times = [3000, 1000, 2000, 1000, 1000, 3000]
    for place, delay_ms in enumerate(times):
        solo.send(b"%d" % place, scheduled_ms=solo.now.wall_ms + delay_ms)
    solo.crash()
    solo.move(5000)
    assert [body_of(entry) for entry in solo.take_all()] == [b"1", b"3", b"4", b"2", b"0", b"5"]


def test_cancel_takes_them_back_all_or_none() -> None:
    solo = queue()
    for _ in range(3):
        solo.send(scheduled_ms=solo.now.wall_ms + 1000)
    with pytest.raises(MessageNotFound):
        solo.cancel(1, 9)
    assert solo.broker.scheduled == 3
    solo.cancel(1, 3, 1)
    assert (solo.broker.scheduled, solo.replies[-1][0]) == (1, "cancel")
    with pytest.raises(MessageNotFound):
        solo.cancel(1)
    solo.move(2000)
    assert [entry.original for entry in solo.take_all()] == [2]


def test_what_is_cancelled_or_active_cannot_be_cancelled_even_before_the_commit() -> None:
    solo = queue()
    solo.send(scheduled_ms=solo.now.wall_ms + 1000)
    solo.send(scheduled_ms=solo.now.wall_ms + 1000)
    solo.run(upkeep.cancel(solo.broker, solo.now, [1], solo.reply, "cancel"))
    with pytest.raises(MessageNotFound):
        solo.cancel(1)
    solo.pass_time(1000)
    solo.run(upkeep.activate(solo.broker, solo.now))
    with pytest.raises(MessageNotFound):
        solo.cancel(2)
    solo.commit()
    assert solo.log().active == 1


def test_one_of_the_open_batch_is_not_forgotten_by_a_step_that_cannot_see_it() -> None:
    solo = queue()
    solo.send(b"third", scheduled_ms=solo.now.wall_ms + 9000)
    solo.send(b"first", scheduled_ms=solo.now.wall_ms + 1000)
    solo.pass_time(1000)
    solo.send(b"second", commit=False, scheduled_ms=solo.now.wall_ms + 500)
    solo.run(upkeep.activate(solo.broker, solo.now))
    solo.commit()
    assert upkeep.next_due(solo.broker, solo.now) == 500
    solo.crash()
    assert upkeep.next_due(solo.broker, solo.now) == 500
    solo.move(10_000)
    assert [body_of(entry) for entry in solo.take_all()] == [b"first", b"second", b"third"]


def test_a_crash_between_activation_and_commit_activates_again_once() -> None:
    solo = queue()
    solo.send(b"1", scheduled_ms=solo.now.wall_ms + 1000)
    solo.pass_time(1000)
    solo.run(upkeep.activate(solo.broker, solo.now))
    solo.crash()
    assert solo.broker.scheduled == 1
    solo.move(0)
    assert [body_of(entry) for entry in solo.take_all()] == [b"1"]
    assert upkeep.next_due(solo.broker, solo.now) != NOT_DUE  # its lock
    assert solo.broker.due_ms == NOT_DUE


def test_on_a_topic_they_wait_at_the_topic_and_rules_look_when_their_time_comes() -> None:
    solo = topic(1)
    solo.send(b"1", scheduled_ms=solo.now.wall_ms + 1000)
    assert [peeked.marks.state for peeked in solo.peek()] == [2]
    assert solo.numbers(main(1)) == []
    solo.settings.rules.remove(1, "$Default")
    solo.move(1000)
    assert solo.log(main(1)).active == 0
    assert solo.tables() == ""


def test_they_count_towards_the_size() -> None:
    solo = queue()
    message = build(b"x" * 100, scheduled_ms=solo.now.wall_ms + 1000)
    solo.send_all([message])
    assert (solo.broker.size, solo.broker.scheduled_bytes) == (message.size, message.size)
    solo.cancel(1)
    assert solo.broker.size == 0


def test_the_furthest_time_that_can_be_written_is_stored() -> None:
    solo = queue()
    solo.send(scheduled_ms=(1 << 63) - 1)
    solo.crash()
    assert solo.broker.scheduled == 1
    assert solo.broker.due_ms == 253_402_300_799_999
