"""Abandoned messages that come again later, and dead letters that do not live for ever."""

from __future__ import annotations

import pytest

from polybus.errors import InvalidOperation
from polybus.message.outcome import RETRY_PROPERTY
from polybus.partition.entry import Entry
from tests.unit.partition.kit import body_of, queue, tiny, topic
from tests.unit.partition.solo import Solo


def abandon(solo: Solo, entry: Entry, properties: dict[str, object]) -> None:
    solo.abandon(entry, True, **properties)


def later(solo: Solo, seconds: object, log_id: int = 0) -> None:
    abandon(solo, solo.get(log_id), {RETRY_PROPERTY: seconds})


@pytest.mark.parametrize("seconds", [10, 10.0, "10"])
def test_it_comes_again_after_the_delay(seconds: object) -> None:
    solo = queue()
    solo.send(b"first")
    solo.send(b"second")
    later(solo, seconds)
    assert [body_of(entry) for entry in solo.take_all()] == [b"second"]
    solo.move(9_999)
    assert solo.take() is None
    solo.move(1)
    again = solo.get()
    assert (body_of(again), again.delivery_count, again.original, again.sequence) == (b"first", 1, 1, 3)
    assert RETRY_PROPERTY not in again.own_overlay().application
    solo.complete(again)
    assert solo.log().deferred == 0


def test_a_restart_forgets_nothing() -> None:
    solo = tiny(queue(), 2)
    for number in range(5):
        solo.send(b"%d" % number)
    later(solo, 60)
    solo.crash()
    assert [body_of(entry) for entry in solo.take_all()] == [b"1", b"2", b"3", b"4"]
    solo.crash()
    solo.move(60_000)
    assert b"0" in [body_of(entry) for entry in solo.take_all()]


def test_other_properties_are_changed_as_ever() -> None:
    solo = queue()
    solo.send()
    abandon(solo, solo.get(), {RETRY_PROPERTY: 1, "tried": 1})
    solo.move(1_000)
    assert solo.get().own_overlay().application == {"tried": 1}


def test_meanwhile_it_is_deferred_and_can_be_fetched_by_number() -> None:
    solo = queue()
    solo.send(b"x")
    later(solo, 60)
    assert (solo.log().deferred, solo.peek()[0].marks.state) == (1, 1)
    (entry,) = solo.take_deferred(1)
    solo.complete(entry)
    assert solo.tables() == ""
    solo.move(60_000)
    assert solo.take() is None


def test_one_that_is_fetched_when_its_time_comes_returns_when_it_is_let_go() -> None:
    solo = queue(lock_ms=30_000)
    solo.send(b"x")
    later(solo, 10)
    solo.take_deferred(1)
    solo.move(10_000)
    assert solo.take() is None
    solo.move(20_000)
    again = solo.get()
    assert (body_of(again), again.delivery_count) == (b"x", 2)


def test_deferring_it_ends_the_delay() -> None:
    solo = queue()
    solo.send(b"x")
    later(solo, 10)
    (entry,) = solo.take_deferred(1)
    solo.defer(entry)
    solo.move(10_000)
    assert solo.take() is None
    assert solo.log().deferred == 1


def test_the_entitys_delay_is_fixed_or_grows() -> None:
    solo = queue(retry_ms=1_000)
    solo.send(b"x")
    for _ in range(3):
        solo.abandon(solo.get())
        solo.move(999)
        assert solo.take() is None
        solo.move(1)
    solo.settings.own.retry_grows = True
    solo.settings.own.retry_max_ms = 10_000
    for delay_ms in (8_000, 10_000, 10_000):
        solo.abandon(solo.get())
        solo.move(delay_ms - 1)
        assert solo.take() is None
        solo.move(1)
    abandon(solo, solo.get(), {RETRY_PROPERTY: 0})
    assert solo.get().delivery_count == 7


def test_it_still_dies_of_too_many_deliveries() -> None:
    solo = queue(retry_ms=1_000, max_delivery_count=2)
    solo.send(b"x")
    solo.abandon(solo.get())
    solo.move(1_000)
    solo.abandon(solo.get())
    assert body_of(solo.get(1)) == b"x"


def test_a_delay_beyond_the_time_to_live_is_refused_and_nothing_is_lost() -> None:
    solo = queue()
    solo.send(b"x", ttl_ms=5_000)
    entry = solo.get()
    for wrong in (5, 60, -1, "soon", True, 1e12):
        with pytest.raises(InvalidOperation):
            abandon(solo, entry, {RETRY_PROPERTY: wrong})
    assert solo.log().locked == 1
    abandon(solo, entry, {RETRY_PROPERTY: 4.999})
    solo.move(4_999)
    assert body_of(solo.get()) == b"x"


def test_the_entitys_delay_gives_way_to_the_time_to_live() -> None:
    solo = queue(retry_ms=60_000)
    solo.send(b"x", ttl_ms=5_000)
    solo.abandon(solo.get())
    assert body_of(solo.get()) == b"x"


def test_a_resting_message_expires_all_the_same() -> None:
    solo = queue(dead_letter_expired=True)
    solo.send(b"x", ttl_ms=5_000)
    later(solo, 4)
    solo.pass_time(10_000)  # nobody looked at the clock meanwhile
    solo.upkeep()
    assert solo.take() is None
    assert body_of(solo.get(1)) == b"x"


def test_in_a_session_it_steps_aside() -> None:
    solo = queue(sessions=True)
    for body in (b"0", b"1"):
        solo.send(body, session_id="s")
    session = solo.accept("s")
    entry = solo.take_from(session)
    assert entry is not None
    abandon(solo, entry, {RETRY_PROPERTY: 10})
    following = solo.take_from(session)
    assert following is not None
    assert body_of(following) == b"1"
    solo.complete(following)
    solo.move(10_000)
    again = solo.take_from(session)
    assert again is not None
    assert body_of(again) == b"0"


def test_in_the_dead_letters_the_number_stays() -> None:
    solo = queue()
    solo.send(b"x")
    solo.dead_letter(solo.get(), "why")
    later(solo, 10, log_id=1)
    assert solo.take(1) is None
    solo.move(10_000)
    assert solo.get(1).sequence == 1


def test_dead_letters_have_a_time_to_live_from_when_they_died() -> None:
    solo = queue(dead_letter_ttl_ms=10_000)
    for _ in range(2):
        solo.send(b"x" * 50)
    solo.move(60_000)
    solo.dead_letter(solo.get(), "why")
    solo.move(5_000)
    solo.dead_letter(solo.get(), "why")
    solo.move(4_999)
    assert solo.log(1).active == 2
    solo.crash()
    solo.move(1)
    assert solo.log(1).active == 1
    solo.move(5_000)
    assert solo.tables() == ""
    assert solo.settings.own.totals.expired == 2


def test_a_subscriptions_dead_letters_too() -> None:
    solo = topic(1)
    solo.settings.subscriptions[1].dead_letter_ttl_ms = 10_000
    solo.send(b"x")
    solo.dead_letter(solo.get(4), "why")
    solo.move(10_000)
    assert solo.tables() == ""


def test_a_deferred_message_that_is_abandoned_stays_deferred_unless_it_is_wished_for() -> None:
    solo = queue(retry_ms=1_000)
    solo.send(b"x")
    solo.defer(solo.get())
    (entry,) = solo.take_deferred(1)
    solo.abandon(entry)
    solo.move(5_000)
    assert solo.take() is None
    (entry,) = solo.take_deferred(1)
    abandon(solo, entry, {RETRY_PROPERTY: 2})
    solo.move(2_000)
    assert body_of(solo.get()) == b"x"
