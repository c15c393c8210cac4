import pytest

from polybus.errors import InvalidOperation
from polybus.partition import settling
from tests.unit.partition.kit import LOCK_MS, body_of, main, queue, topic


def test_dead_lettering_keeps_number_time_and_bytes_and_adds_the_reason() -> None:
    solo = queue(index=2)
    number = solo.send(b"1", application={"a": 1})
    solo.pass_time(1000)
    solo.dead_letter(solo.get(), "why", "because", more="m")
    for _ in range(2):
        dead = solo.get(1)
        assert (dead.sequence, dead.enqueued_ms, body_of(dead)) == (number, solo.now.wall_ms - 1000, b"1")
        assert dead.overlay is not None
        assert dead.overlay.application == {
            "more": "m",
            "DeadLetterReason": "why",
            "DeadLetterErrorDescription": "because",
        }
        solo.crash()
    assert (solo.log().active, solo.log(1).active) == (0, 1)


def test_without_reason_no_reason_is_invented() -> None:
    solo = queue()
    solo.send()
    solo.dead_letter(solo.get(), None, None)
    overlay = solo.get(1).overlay
    assert overlay is not None
    assert (overlay.application, overlay.dead_letter_source) == ({}, "q")


def test_dead_letters_come_in_the_order_of_their_death_and_are_peeked_by_number() -> None:
    solo = queue()
    for _ in range(3):
        solo.send()
    first, second, third = solo.take_all()
    for entry in (third, first, second):
        solo.dead_letter(entry)
    assert solo.numbers(1) == [1, 2, 3]
    solo.crash()
    assert [entry.sequence for entry in solo.take_all(1)] == [3, 1, 2]


def test_a_dead_letter_does_not_die_again() -> None:
    solo = queue(max_delivery_count=1, ttl_ms=1000)
    solo.send()
    solo.dead_letter(solo.get())
    dead = solo.get(1)
    assert dead.expires_ms == 0
    with pytest.raises(InvalidOperation):
        settling.dead_letter(solo.broker, dead.log, dead.lock, solo.now, "r", "d", None, None, None)
    solo.abandon(dead)
    solo.get(1)
    solo.move(10 * LOCK_MS)
    dead = solo.get(1)
    assert dead.delivery_count == 2
    solo.complete(dead)
    assert solo.tables() == ""


def test_a_subscriptions_dead_letters_are_its_own() -> None:
    solo = topic(1, 2)
    solo.send(b"1")
    solo.dead_letter(solo.get(main(1)))
    dead = solo.get(main(1) + 1)
    assert dead.overlay is not None
    assert dead.overlay.dead_letter_source == "t/Subscriptions/s1"
    assert solo.take(main(2) + 1) is None
    assert solo.take(1) is None


def test_dead_letters_of_a_session_entity_have_no_sessions() -> None:
    solo = queue(sessions=True)
    solo.send(b"1", session_id="a")
    session = solo.accept("a")
    entry = solo.take_from(session)
    assert entry is not None
    solo.dead_letter(entry)
    assert body_of(solo.get(1)) == b"1"


def test_they_are_forwarded_where_the_entity_says_so() -> None:
    solo = queue(forward_dead_letters_to="graveyard", ttl_ms=5_000)
    solo.routes["graveyard"] = (9, 1)
    solo.send(b"1")
    solo.dead_letter(solo.get(), "why", "because")
    assert (solo.log(1).active, solo.broker.transfers) == (0, 1)
    assert solo.tables() == "F"


def test_where_they_cannot_be_forwarded_they_rest_in_the_transfer_dead_letters() -> None:
    solo = queue(forward_dead_letters_to="nowhere")
    solo.send(b"1")
    solo.dead_letter(solo.get(), "why", "because")
    rests = solo.get(2)
    assert rests.overlay is not None
    assert rests.overlay.application["DeadLetterReason"] == "amqp:not-found"
    assert solo.broker.transfers == 0
