"""Backlogs larger than the window: everything comes, in order, and memory stays small."""

import random

import pytest

from polybus.message.message import build
from polybus.partition import receiving
from tests.unit.partition.kit import LOCK_MS, body_of, main, queue, tiny, topic
from tests.unit.partition.solo import Solo


def numbers(solo: Solo, log_id: int = 0) -> list[int]:
    found = []
    while (entry := solo.take(log_id)) is not None:
        found.append(entry.sequence & (1 << 48) - 1)
        solo.complete(entry, commit=False)
    solo.commit()
    return found


@pytest.mark.parametrize("index", [0, 9])
@pytest.mark.parametrize("entries", [1, 2, 7])
def test_everything_comes_in_order(entries: int, index: int) -> None:
    solo = tiny(queue(index), entries)
    solo.send_all([build(b"x") for _ in range(50)])
    assert len(solo.log().memory) <= entries
    assert numbers(solo) == list(range(1, 51))
    assert solo.tables() == ""
    solo.send()
    assert numbers(solo) == [51]


def test_a_backlog_of_tens_of_thousands_after_a_restart() -> None:
    solo = queue()
    solo.audited = False
    for _ in range(20):
        solo.send_all([build(b"x") for _ in range(1000)], commit=False)
    solo.commit()
    assert len(solo.log().ready) == solo.settings.bounds.window_entries
    solo.crash()
    assert solo.log().memory == {}
    found = []
    most = 0
    for _ in range(20_000):
        entry = solo.get()
        found.append(entry.sequence)
        most = max(most, len(solo.log().memory))
        solo.complete(entry, commit=False)
        if len(found) % 1000 == 0:
            solo.commit()
    assert found == list(range(1, 20_001))
    assert most <= solo.settings.bounds.window_entries + solo.settings.bounds.page_entries
    assert solo.tables() == ""


def test_what_is_locked_does_not_keep_others_from_the_rest() -> None:
    solo = tiny(queue(), 2, size=3000)
    solo.send_all([build(b"x" * 1000) for _ in range(20)])
    assert [entry.sequence for entry in solo.take_all()] == list(range(1, 21))
    assert solo.log().locked == 20


def test_large_messages_are_paged_in_few_at_a_time_and_none_is_skipped() -> None:
    for size in (900, 5000, 40_000):
        solo = tiny(queue(), 100, size=10_000)
        solo.send_all([build(b"x" * size) for _ in range(30)])
        solo.crash()
        entry = solo.get()
        assert solo.log().ready_bytes <= 10_000 + size + 100
        solo.release(entry)
        assert numbers(solo) == list(range(1, 31))


def test_a_scan_that_stops_for_its_bytes_is_not_taken_for_the_end() -> None:
    solo = tiny(queue(), 100, size=2000)
    solo.send_all([build(b"x" * 300), build(b"x" * 1900), build(b"x" * 300), build(b"x")])
    solo.crash()
    assert numbers(solo) == [1, 2, 3, 4]


def test_order_is_kept_with_abandons_and_locks_that_end() -> None:
    solo = tiny(queue(), 3)
    solo.send_all([build(b"x") for _ in range(30)])
    rng = random.Random(7)
    waiting: list[int] = list(range(1, 31))
    while waiting:
        entry = solo.get()
        assert entry.sequence == waiting[0]
        if entry.delivery_count < 5 and rng.random() < 0.5:
            solo.abandon(entry)
        else:
            solo.complete(entry)
            waiting.pop(0)
    assert solo.take() is None


def test_messages_come_back_to_their_place_before_what_is_not_paged_in() -> None:
    solo = tiny(queue(), 2)
    solo.send_all([build(b"%d" % number) for number in range(10)])
    taken = [solo.get() for _ in range(6)]
    solo.abandon(taken[4])
    solo.abandon(taken[1])
    assert [body_of(entry) for entry in solo.take_all()] == [b"1", b"4", b"6", b"7", b"8", b"9"]
    solo.move(LOCK_MS)
    assert [body_of(entry) for entry in solo.take_all()] == [b"%d" % number for number in range(10)]


def test_what_was_skipped_and_then_removed_leaves_no_hole_to_wait_for() -> None:
    solo = tiny(queue(), 1)
    solo.send(b"1")
    solo.send(b"2", ttl_ms=1000)
    solo.complete(solo.get())
    assert not solo.log().whole
    solo.move(1000)
    assert solo.take() is None
    assert solo.log().whole
    solo.send(b"3")
    assert body_of(solo.get()) == b"3"


def test_messages_that_arrive_while_a_backlog_is_paged_wait_their_turn() -> None:
    solo = tiny(queue(), 2)
    solo.send_all([build(b"x") for _ in range(6)])
    solo.crash()
    found = []
    for number in range(12):
        found.append(solo.get().sequence)
        if number < 6:
            solo.send()
    assert found == list(range(1, 13))


def test_dead_letters_and_subscriptions_are_paged_too() -> None:
    solo = tiny(topic(1), 2)
    solo.send_all([build(b"x") for _ in range(9)])
    for entry in reversed(solo.take_all(main(1))):
        solo.dead_letter(entry)
    solo.crash()
    assert numbers(solo, main(1) + 1) == list(range(9, 0, -1))


def test_a_scan_begins_where_the_last_one_ended_also_after_a_restart() -> None:
    solo = queue(index=6)
    for _ in range(5):
        solo.send()
        solo.complete(solo.get())
    solo.crash()
    assert solo.log().paged_to == (6 << 48) + 5
    solo.send()
    solo.crash()
    reading = receiving.load_page(solo.broker, solo.log())
    scan = next(reading)
    assert int.from_bytes(scan.start[-8:], "big") == (6 << 48) + 6  # type: ignore[union-attr]
    reading.close()


def test_a_page_that_fails_can_be_read_again() -> None:
    solo = tiny(queue(), 2)
    solo.send_all([build(b"x") for _ in range(5)])
    solo.crash()
    reading = solo.begin(receiving.load_page(solo.broker, solo.log()))
    assert not solo.log().wants_page()
    reading.drop()
    assert numbers(solo) == [1, 2, 3, 4, 5]


def test_the_last_page_is_known_to_be_the_last() -> None:
    solo = queue()
    solo.send_all([build(b"x") for _ in range(5)])
    solo.crash()
    solo.run(receiving.load_page(solo.broker, solo.log()))
    assert solo.log().whole
    assert len(solo.log().ready) == 5
