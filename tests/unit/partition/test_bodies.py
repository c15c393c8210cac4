"""Bodies with a record of their own: shared by copies, counted, and freed with the last of them."""

from polybus.message.message import build
from polybus.partition import records
from tests.unit.partition.kit import LOCK_MS, body_of, main, queue, tiny, topic
from tests.unit.partition.solo import Solo

BODY = b"x" * 1000


def rows_in(solo: Solo, table: bytes) -> int:
    at = len(solo.broker.prefix)
    return sum(1 for key in solo.rows if key[at : at + 1] == table)


def test_copies_share_one_body_that_is_counted_once() -> None:
    solo = topic(1, 2, 3)
    message = build(BODY)
    solo.send_all([message])
    assert (rows_in(solo, records.BODIES), solo.broker.size) == (1, message.size)
    for number in (1, 2, 3):
        assert body_of(solo.get(main(number))) == BODY


def test_it_goes_with_the_last_copy_whatever_happens_to_them() -> None:
    for crash in (False, True):
        solo = topic(1, 2, 3)
        solo.send(BODY)
        solo.complete(solo.get(main(1)))
        if crash:
            solo.crash()
        solo.dead_letter(solo.get(main(2)))
        solo.defer(solo.get(main(3)))
        assert rows_in(solo, records.BODIES) == 1
        if crash:
            solo.crash()
        solo.complete(solo.get(main(2) + 1))
        assert (rows_in(solo, records.BODIES), solo.broker.size) == (1, build(BODY).size)
        solo.complete(solo.take_deferred(1, log_id=main(3))[0])
        assert (solo.tables(), solo.broker.size) == ("", 0)


def test_small_bodies_and_single_copies_are_in_the_messages_own_record() -> None:
    solo = topic(1, 2)
    solo.send(b"small")
    assert solo.tables() == "M"
    single = topic(1)
    single.send(BODY)
    assert single.tables() == "M"


def test_a_large_body_is_not_written_again_when_its_message_is_abandoned_deferred_or_dies() -> None:
    solo = queue()
    large = b"y" * 40_000
    solo.send(large)
    solo.abandon(solo.get(), commit=False)
    assert solo.batch.bytes < 1000
    solo.commit()
    solo.defer(solo.get(), commit=False)
    assert solo.batch.bytes < 1000
    solo.commit()
    solo.crash()
    solo.dead_letter(solo.take_deferred(1)[0], commit=False)
    assert solo.batch.bytes < 1000
    solo.commit()
    solo.crash()
    assert body_of(solo.get(1)) == large
    assert solo.broker.size == build(large).size


def test_a_body_leaves_memory_with_the_last_entry_that_refers_to_it() -> None:
    solo = tiny(topic(1, 2), 1)
    for _ in range(5):
        solo.send(BODY)
    assert len(solo.broker.bodies.memory) == 1
    solo.crash()
    assert solo.broker.bodies.memory == {}
    entry = solo.get(main(1))
    assert len(solo.broker.bodies.memory) >= 1
    solo.complete(entry)
    for number in (1, 2):
        for entry in solo.take_all(main(number)):
            solo.complete(entry)
    assert solo.broker.bodies.memory == {}
    assert solo.tables() == ""


def test_a_count_that_is_not_synced_is_not_taken_from_the_store() -> None:
    solo = tiny(topic(1, 2), 1)
    solo.send(BODY)
    solo.crash()
    solo.complete(solo.get(main(1)), commit=False)
    solo.complete(solo.get(main(2)), commit=False)
    solo.commit()
    assert solo.tables() == ""


def test_sessions_that_are_given_back_do_not_keep_bodies() -> None:
    solo = queue(sessions=True)
    solo.send(b"y" * 40_000, session_id="a")
    assert solo.broker.bodies.memory == {}
    session = solo.accept("a")
    assert len(solo.broker.bodies.memory) == 1
    assert solo.take_from(session) is not None
    solo.move(LOCK_MS)
    assert solo.broker.bodies.memory == {}
