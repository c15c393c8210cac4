import pytest

from polybus.errors import ServerBusy
from polybus.message.message import build
from polybus.partition import sending, upkeep
from polybus.partition.broker import NOT_DUE
from tests.unit.partition.kit import body_of, main, queue, topic
from tests.unit.partition.solo import Solo

WINDOW_MS = 60_000


def watchful(recent: int = 20_000) -> Solo:
    solo = queue()
    solo.settings.duplicate_window_ms = WINDOW_MS
    solo.settings.bounds.recent_ids = recent
    solo.crash()
    return solo


def test_a_duplicate_is_answered_and_dropped() -> None:
    solo = watchful()
    assert solo.send(b"1", message_id="a") == 1
    assert solo.send(b"2", message_id="a") == 0
    assert solo.send(b"3", message_id="b") == 2
    assert [body_of(entry) for entry in solo.take_all()] == [b"1", b"3"]


def test_without_an_id_nothing_is_compared() -> None:
    solo = watchful()
    assert [solo.send(), solo.send()] == [1, 2]


def test_within_one_batch_too() -> None:
    solo = watchful()
    assert solo.send_all([build(b"", message_id=name) for name in ("a", "b", "a")]) == [1, 2, 0]


def test_ids_outlive_their_messages_and_the_broker() -> None:
    solo = watchful()
    solo.send(message_id="a")
    solo.complete(solo.get())
    assert solo.send(message_id="a") == 0
    solo.crash()
    assert sending.rows_needed(solo.broker, [build(b"", message_id="a")]) != []
    assert solo.send(message_id="a") == 0


def test_an_id_of_a_batch_that_was_lost_is_new() -> None:
    solo = watchful()
    solo.send(message_id="a", commit=False)
    solo.crash()
    assert solo.send(message_id="a") == 1


def test_the_window_is_not_extended_by_duplicates() -> None:
    solo = watchful()
    solo.send(message_id="a")
    solo.pass_time(WINDOW_MS - 1)
    assert solo.send(message_id="a") == 0
    solo.pass_time(1)
    assert solo.send(message_id="a") == 2
    solo.pass_time(WINDOW_MS - 1)
    assert solo.send(message_id="a") == 0


def test_ids_that_memory_has_let_go_of_are_read() -> None:
    solo = watchful(recent=3)
    for number in range(10):
        solo.send(message_id=str(number))
    assert not solo.broker.duplicates.whole
    assert sending.rows_needed(solo.broker, [build(b"", message_id="9")]) == []
    assert len(sending.rows_needed(solo.broker, [build(b"", message_id="0")])) == 1
    assert [solo.send(message_id=str(number)) for number in range(10)] == [0] * 10


def test_no_id_leaves_memory_before_its_row_can_be_read() -> None:
    solo = watchful(recent=2)
    for number in range(10):
        solo.send(message_id=str(number), commit=False)
    solo.seal()
    solo.send(message_id="x", commit=False)
    solo.seal()
    assert [solo.send_all([build(b"", message_id=str(n))], commit=False) for n in range(10)]
    assert all(result == [0] for _, _, result in solo.batch.replies)


def test_nor_in_the_middle_of_the_batch_that_asks_for_it() -> None:
    solo = watchful(recent=2)
    solo.send_all([build(b"", message_id="a"), build(b"", message_id="b")])
    assert solo.send_all([build(b"", message_id="c"), build(b"", message_id="d"), build(b"", message_id="a")])[2] == 0


def test_an_id_that_can_no_longer_be_judged_is_refused_and_nothing_is_stored() -> None:
    solo = watchful(recent=1)
    solo.send_all([build(b"", message_id="a"), build(b"", message_id="b")])
    asked = [build(b"", message_id="b")]
    assert sending.rows_needed(solo.broker, asked) == []
    for name in "cde":
        solo.send(message_id=name)
    with pytest.raises(ServerBusy):
        sending.send(solo.broker, solo.now, asked, {}, None, None)
    assert solo.log().counter == 5


def test_old_ids_are_forgotten_and_memory_vouches_for_all_again() -> None:
    solo = watchful(recent=2)
    solo.settings.bounds.sweep_rows = 2
    for number in range(7):
        solo.send(message_id=str(number))
        solo.complete(solo.get())
    solo.crash()
    due_ms = upkeep.next_due(solo.broker, solo.now)
    assert due_ms != NOT_DUE
    solo.move(WINDOW_MS * 2)
    assert solo.tables() == ""
    assert solo.broker.duplicates.whole
    assert upkeep.next_due(solo.broker, solo.now) == NOT_DUE
    assert solo.send(message_id="0") == 8


def test_pruning_does_not_forget_an_id_that_was_accepted_again() -> None:
    for commit in (True, False):
        solo = watchful()
        solo.send(message_id="a")
        solo.pass_time(WINDOW_MS + WINDOW_MS // 4)
        solo.send(message_id="a", commit=commit)
        solo.run(upkeep.prune_duplicates(solo.broker, solo.now))
        solo.commit()
        solo.crash()
        assert solo.send(message_id="a") == 0


def test_an_idle_history_asks_for_no_time() -> None:
    solo = watchful()
    solo.send()
    assert upkeep.next_due(solo.broker, solo.now) == NOT_DUE


def test_scheduled_messages_and_topics_are_watched_too() -> None:
    solo = topic(1)
    solo.settings.duplicate_window_ms = WINDOW_MS
    assert solo.send(message_id="a", scheduled_ms=solo.now.wall_ms + 1000) == 1
    assert solo.send(message_id="a") == 0
    solo.move(1000)
    assert len(solo.take_all(main(1))) == 1


def test_a_window_that_grows_in_the_middle_of_pruning_is_waited_for() -> None:
    solo = watchful()
    solo.settings.bounds.sweep_rows = 2
    solo.run(upkeep.prune_duplicates(solo.broker, solo.now))
    solo.send_all([build(b"", message_id=str(number)) for number in range(5)])
    solo.pass_time(2 * WINDOW_MS)
    assert solo.run(upkeep.prune_duplicates(solo.broker, solo.now))
    solo.commit()
    solo.settings.duplicate_window_ms = 4 * WINDOW_MS
    assert not solo.run(upkeep.prune_duplicates(solo.broker, solo.now))
    assert upkeep.next_due(solo.broker, solo.now) == WINDOW_MS + 1
    solo.move(3 * WINDOW_MS)
    assert "U" not in solo.tables()
