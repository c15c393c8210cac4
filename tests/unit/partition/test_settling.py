import pytest

from polybus.errors import InvalidOperation, MessageLockLost
from polybus.partition import settling
from tests.unit.partition.kit import body_of, queue


def test_complete_removes_the_message_and_every_row_of_it() -> None:
    solo = queue()
    solo.send(b"hello", message_id="1", ttl_ms=1000)
    solo.complete(solo.get())
    assert solo.replies[-1] == ("complete", None, None)
    assert (solo.log().active, solo.log().active_bytes, solo.broker.size) == (0, 0, 0)
    assert solo.tables() == ""


def test_a_settlement_that_was_not_committed_is_undone_by_a_crash() -> None:
    solo = queue()
    solo.send(b"1")
    solo.complete(solo.get(), commit=False)
    assert solo.replies[-1][0] == "send"
    solo.crash()
    assert body_of(solo.get()) == b"1"


def test_a_message_is_settled_once() -> None:
    solo = queue()
    solo.send()
    entry = solo.get()
    lock = entry.lock
    solo.complete(entry)
    with pytest.raises(MessageLockLost):
        settling.complete(solo.broker, entry.log, lock, solo.now, None, None)


def test_abandon_gives_the_message_back_after_the_commit_with_its_count_and_its_properties() -> None:
    solo = queue()
    solo.send(b"1", application={"a": 1, "b": 2})
    solo.abandon(solo.get(), commit=False, a="new", b=None, c=True)
    assert solo.take() is None
    solo.commit()
    for _ in range(2):
        entry = solo.get()
        assert entry.delivery_count == 1
        assert entry.overlay is not None
        assert {name: str(value) for name, value in entry.overlay.application.items()} == {
            "a": "new",
            "b": "REMOVED",
            "c": "True",
        }
        solo.crash()


def test_an_abandoned_message_comes_before_later_ones() -> None:
    solo = queue()
    for number in range(4):
        solo.send(b"%d" % number)
    first, second = solo.get(), solo.get()
    solo.abandon(second)
    solo.abandon(first)
    assert [body_of(entry) for entry in solo.take_all()] == [b"0", b"1", b"2", b"3"]


def test_the_count_reaches_its_limit_and_the_message_dies() -> None:
    solo = queue(max_delivery_count=3)
    solo.send(b"1")
    seen = []
    for _ in range(3):
        entry = solo.get()
        seen.append(entry.delivery_count)
        solo.abandon(entry)
    assert seen == [0, 1, 2]
    assert solo.take() is None
    dead = solo.get(1)
    assert dead.overlay is not None
    assert dead.overlay.application == {
        "DeadLetterReason": "MaxDeliveryCountExceeded",
        "DeadLetterErrorDescription": "Message could not be consumed after 3 delivery attempts.",
    }
    assert (dead.sequence, dead.delivery_count, dead.overlay.dead_letter_source) == (1, 3, "q")


def test_release_counts_nothing_and_writes_nothing() -> None:
    solo = queue()
    solo.send(b"1")
    solo.send(b"2")
    entry = solo.get()
    before = dict(solo.rows)
    solo.release(entry)
    assert not solo.batch
    assert solo.rows == before
    again = solo.get()
    assert (body_of(again), again.delivery_count) == (b"1", 0)


def test_too_many_properties_kill_a_message() -> None:
    solo = queue()
    solo.send(application={"own": "x" * 40_000})
    solo.abandon(solo.get(), more="y" * 30_000)
    dead = solo.get(1)
    assert dead.overlay is not None
    assert dead.overlay.application["DeadLetterReason"] == "HeaderSizeExceeded"
    solo.send()
    solo.defer(solo.get(), more="y" * 70_000)
    assert solo.log(1).active == 2
    assert solo.log().deferred == 0


def test_a_dead_letter_with_too_many_properties_stays_as_it_is() -> None:
    solo = queue()
    solo.send()
    solo.dead_letter(solo.get())
    dead = solo.get(1)
    for verb in (solo.abandon, solo.defer):
        with pytest.raises(InvalidOperation):
            verb(dead, more="y" * 70_000)
    solo.abandon(dead)
    assert solo.get(1).delivery_count == 1
    assert solo.numbers(1) == [1]


def test_properties_given_as_symbols_become_strings() -> None:
    from polybus.amqp.types import Symbol

    solo = queue()
    solo.send()
    settling.abandon(solo.broker, solo.log(), solo.get().lock, solo.now, {Symbol("a"): 1}, None, None)
    solo.commit()
    overlay = solo.get().overlay
    assert overlay is not None
    assert [type(name) for name in overlay.application] == [str]


def test_a_message_on_its_way_back_can_expire_before_it_arrives() -> None:
    solo = queue()
    solo.send(ttl_ms=1000)
    entry = solo.get()
    solo.pass_time(2000)
    solo.abandon(entry, commit=False)
    solo.upkeep()
    assert (solo.log().active, solo.take()) == (0, None)
    assert solo.tables() == ""
