import pytest

from polybus.errors import MessageNotFound
from tests.unit.partition.kit import LOCK_MS, body_of, queue


def test_a_deferred_message_is_only_had_by_its_number() -> None:
    solo = queue()
    solo.send(b"1")
    solo.send(b"2")
    solo.defer(solo.get())
    assert body_of(solo.get()) == b"2"
    assert (solo.log().active, solo.log().deferred) == (1, 1)
    for _ in range(2):
        entry = solo.take_deferred(1)[0]
        assert (body_of(entry), entry.deferred, entry.marks().state) == (b"1", True, 1)
        solo.crash()


def test_completing_a_deferred_message_leaves_no_row() -> None:
    solo = queue()
    solo.send(ttl_ms=50_000)
    solo.defer(solo.get())
    assert solo.tables() == "DE"
    solo.complete(solo.take_deferred(1)[0])
    assert solo.tables() == ""
    assert (solo.log().deferred, solo.log().deferred_bytes, solo.broker.size) == (0, 0, 0)


def test_abandoning_and_expiry_of_the_lock_leave_it_deferred_and_count() -> None:
    solo = queue()
    solo.send(b"1")
    solo.defer(solo.get())
    solo.abandon(solo.take_deferred(1)[0], note="n")
    assert solo.take() is None
    solo.take_deferred(1)
    solo.move(LOCK_MS)
    solo.crash()
    entry = solo.take_deferred(1)[0]
    assert entry.delivery_count == 2
    assert entry.overlay is not None
    assert entry.overlay.application == {"note": "n"}


def test_its_count_goes_on_and_kills_it() -> None:
    solo = queue(max_delivery_count=2)
    solo.send()
    solo.abandon(solo.get())
    solo.defer(solo.get())
    solo.abandon(solo.take_deferred(1)[0])
    assert (solo.log().deferred, solo.log(1).active) == (0, 1)


def test_deferring_again_and_dead_lettering() -> None:
    solo = queue()
    solo.send(b"1")
    solo.defer(solo.get())
    solo.defer(solo.take_deferred(1)[0], a=1)
    entry = solo.take_deferred(1)[0]
    assert entry.overlay is not None
    assert (entry.delivery_count, entry.overlay.application) == (0, {"a": 1})
    solo.dead_letter(entry)
    assert (solo.log().deferred, solo.numbers(1)) == (0, [1])


def test_all_numbers_must_be_there_or_none_is_touched() -> None:
    solo = queue()
    for _ in range(3):
        solo.send()
    solo.defer(solo.get())
    solo.defer(solo.get())
    for numbers in ((1, 3), (1, 77)):
        with pytest.raises(MessageNotFound):
            solo.take_deferred(*numbers)
    assert solo.log().locked == 0
    assert len(solo.take_deferred(1, 2)) == 2
    with pytest.raises(MessageNotFound):
        solo.take_deferred(1)


def test_a_number_asked_for_twice_is_had_once() -> None:
    solo = queue()
    solo.send()
    solo.defer(solo.get())
    entries = solo.take_deferred(1, 1)
    assert (len(entries), solo.log().locked) == (1, 1)
    solo.complete(entries[0])
    assert solo.log().deferred == 0


def test_receive_and_delete_of_a_deferred_message() -> None:
    solo = queue()
    solo.send(b"1")
    solo.defer(solo.get())
    assert body_of(solo.take_deferred(1, lock=False)[0]) == b"1"
    with pytest.raises(MessageNotFound):
        solo.take_deferred(1)
    solo.commit()
    assert solo.tables() == ""


def test_what_was_just_written_is_not_forgotten_before_the_commit() -> None:
    solo = queue()
    solo.send(b"1")
    solo.defer(solo.get(), commit=False)
    entry = solo.take_deferred(1)[0]
    solo.abandon(entry, commit=False)
    again = solo.take_deferred(1)[0]
    assert again.delivery_count == 1
    solo.complete(again, commit=False)
    with pytest.raises(MessageNotFound):
        solo.take_deferred(1)
    solo.commit()
    assert solo.tables() == ""


def test_release_leaves_it_deferred_and_uncounted() -> None:
    solo = queue()
    solo.send()
    solo.defer(solo.get())
    solo.release(solo.take_deferred(1)[0])
    assert solo.take() is None
    assert solo.take_deferred(1)[0].delivery_count == 0
    assert solo.log().deferred == 1


def test_dead_letters_can_be_deferred_and_found_again() -> None:
    solo = queue()
    solo.send(b"1")
    solo.dead_letter(solo.get())
    solo.defer(solo.get(1))
    assert (solo.log(1).active, solo.log(1).deferred, solo.numbers(1)) == (0, 1, [1])
    solo.crash()
    entry = solo.take_deferred(1, log_id=1)[0]
    assert body_of(entry) == b"1"
    solo.complete(entry)
    assert solo.tables() == ""


def test_a_lock_on_a_deferred_message_is_memory_only() -> None:
    solo = queue()
    solo.send()
    solo.defer(solo.get())
    solo.take_deferred(1)
    assert solo.broker.log(0).deferrals.entries.keys() == {1}
    solo.move(LOCK_MS)
    assert solo.broker.log(0).deferrals.entries == {}
