import pytest

from polybus.errors import InvalidOperation, MessageLockLost
from polybus.partition import receiving, settling, upkeep
from polybus.partition.broker import NOT_DUE
from polybus.partition.tokens import read_token
from tests.unit.partition.kit import LOCK_MS, body_of, queue


def test_messages_come_in_the_order_of_their_numbers() -> None:
    solo = queue()
    for number in range(5):
        solo.send(b"%d" % number)
    assert [body_of(entry) for entry in solo.take_all()] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_locked_message_is_nobody_elses() -> None:
    solo = queue()
    solo.send()
    entry = solo.get()
    assert solo.take() is None
    assert solo.log().locked == 1
    assert entry.locked_until_ms == solo.now.mono_ms + LOCK_MS
    assert entry.marks().locked_until_ms == solo.now.wall_ms + LOCK_MS


def test_a_lock_that_runs_out_gives_the_message_back_at_its_old_place_and_counts() -> None:
    solo = queue()
    solo.send(b"first")
    solo.send(b"second")
    lost = solo.get()
    solo.move(LOCK_MS)
    again = solo.get()
    assert (body_of(again), again.delivery_count) == (b"first", 1)
    assert body_of(solo.get()) == b"second"
    assert lost.lock != 0
    solo.crash()
    assert [entry.delivery_count for entry in solo.take_all()] == [1, 0]


def test_a_lock_is_lost_at_its_end_even_before_the_upkeep_noticed() -> None:
    solo = queue()
    solo.send()
    entry = solo.get()
    solo.pass_time(LOCK_MS - 1)
    settling.held(solo.broker, entry.log, entry.lock, solo.now)
    solo.pass_time(1)
    for verb in (solo.complete, solo.abandon, solo.defer, solo.dead_letter, solo.release):
        with pytest.raises(MessageLockLost):
            verb(entry)  # type: ignore[operator]
    with pytest.raises(MessageLockLost):
        settling.renew(solo.broker, entry.log, entry.lock, solo.now)


def test_a_renewed_lock_holds_from_the_renewal_on() -> None:
    solo = queue()
    solo.send()
    entry = solo.get()
    solo.move(LOCK_MS - 1)
    until = settling.renew(solo.broker, entry.log, entry.lock, solo.now)
    assert until == solo.now.wall_ms + LOCK_MS
    solo.move(LOCK_MS - 1)
    solo.complete(entry)
    assert solo.log().active == 0


def test_renewing_twice_at_one_time_ends_the_lock_once() -> None:
    solo = queue()
    solo.send()
    entry = solo.get()
    settling.renew(solo.broker, entry.log, entry.lock, solo.now)
    solo.move(LOCK_MS)
    assert solo.get().delivery_count == 1


def test_a_shorter_lock_ends_first_whatever_was_locked_before() -> None:
    solo = queue()
    solo.send(b"long")
    solo.send(b"short")
    solo.get()
    solo.settings.own.lock_ms = 5_000
    solo.get()
    assert upkeep.next_due(solo.broker, solo.now) == 5_000
    solo.move(5_000)
    assert body_of(solo.get()) == b"short"


def test_locks_end_with_the_broker_and_an_old_token_gives_no_lock() -> None:
    solo = queue(index=3)
    solo.send()
    entry = solo.get()
    old = solo.broker.token(entry.lock)
    assert len(old) == 16
    assert read_token(old) == (7, 3, 1, entry.lock)
    solo.crash()
    again = solo.get()
    assert again.delivery_count == 0
    assert solo.broker.token(again.lock) != old
    with pytest.raises(MessageLockLost):
        settling.complete(solo.broker, solo.log(), 99, solo.now, None, None)


def test_a_token_of_another_log_settles_nothing() -> None:
    solo = queue()
    solo.send()
    entry = solo.get()
    with pytest.raises(MessageLockLost):
        settling.complete(solo.broker, solo.log(1), entry.lock, solo.now, None, None)
    assert solo.log().active == 1


def test_receive_and_delete_removes_with_the_commit() -> None:
    solo = queue()
    solo.send(b"1")
    entry = solo.take_away()
    assert entry is not None
    assert solo.take_away() is None
    solo.crash()
    again = solo.take_away()
    assert again is not None
    assert body_of(again) == b"1"
    solo.commit()
    assert solo.tables() == ""
    solo.crash()
    assert solo.take_away() is None


def test_nothing_is_due_without_locks_times_and_ids() -> None:
    solo = queue()
    solo.send()
    assert upkeep.next_due(solo.broker, solo.now) == NOT_DUE
    entry = solo.get()
    assert upkeep.next_due(solo.broker, solo.now) == LOCK_MS
    solo.complete(entry)
    assert upkeep.next_due(solo.broker, solo.now) == NOT_DUE


def test_one_lock_held_for_long_does_not_keep_memory_of_all_that_came_after() -> None:
    solo = queue()
    solo.audited = False
    solo.send(b"held")
    solo.get()
    for _ in range(1_000):
        solo.send(commit=False)
    solo.commit()
    for _ in range(1_000):
        solo.complete(solo.get(), commit=False)
    solo.commit()
    for _ in range(1_000):
        solo.send(commit=False)
        solo.commit()
        solo.complete(solo.get(), commit=False)
    assert sum(len(line) for line in solo.broker.lock_ends._lines.values()) == 1
    assert len(solo.log().memory) == 1
    solo.move(LOCK_MS)
    assert body_of(solo.get()) == b"held"


def test_a_log_that_forwards_has_nothing_to_receive() -> None:
    solo = queue(forward_to="other")
    with pytest.raises(InvalidOperation, match="forwards its messages"):
        receiving.check_receivable(solo.log())
    receiving.check_receivable(solo.log(1))


def test_the_watcher_hears_of_messages_after_their_commit_and_of_those_given_back() -> None:
    class Watch:
        heard = 0

        def available(self) -> None:
            self.heard += 1

    solo = queue()
    watch = solo.log().watcher = Watch()
    solo.send(commit=False)
    assert watch.heard == 0
    solo.commit()
    assert watch.heard == 1
    entry = solo.get()
    solo.release(entry)
    assert watch.heard == 2
    solo.abandon(solo.get())
    assert watch.heard == 3
