from polybus.partition import upkeep
from polybus.partition.broker import NOT_DUE
from tests.unit.partition.kit import LOCK_MS, body_of, main, queue, tiny, topic


def test_the_shorter_of_message_and_entity_counts() -> None:
    solo = queue(ttl_ms=10_000)
    for ttl_ms, life_ms in ((None, 10_000), (2_000, 2_000), (90_000, 10_000)):
        solo.send(ttl_ms=ttl_ms)
        assert solo.get().expires_ms == solo.now.wall_ms + life_ms


def test_a_message_without_an_end_has_no_row_in_the_index() -> None:
    solo = queue()
    solo.send()
    assert (solo.get().expires_ms, solo.tables()) == (0, "M")


def test_an_expired_message_is_neither_given_nor_shown_even_before_the_sweep() -> None:
    solo = queue()
    solo.send(b"old", ttl_ms=1000)
    solo.send(b"new")
    solo.pass_time(1000)
    assert [body_of(entry) for entry in solo.take_all()] == [b"new"]
    assert solo.numbers() == [2]


def test_the_sweep_removes_it() -> None:
    solo = queue()
    solo.send(ttl_ms=1000)
    assert upkeep.next_due(solo.broker, solo.now) == 1000
    solo.move(999)
    assert solo.log().active == 1
    solo.move(1)
    assert solo.tables() == ""
    assert (solo.log().active, solo.broker.size) == (0, 0)
    assert upkeep.next_due(solo.broker, solo.now) == NOT_DUE


def test_or_makes_it_a_dead_letter() -> None:
    solo = queue(dead_letter_expired=True)
    solo.send(b"1", ttl_ms=1000)
    solo.move(1000)
    dead = solo.get(1)
    assert dead.overlay is not None
    assert dead.overlay.application == {
        "DeadLetterReason": "TTLExpiredException",
        "DeadLetterErrorDescription": "The message expired and was dead lettered.",
    }
    assert (dead.delivery_count, dead.expires_ms) == (0, 0)


def test_it_holds_over_a_restart_and_in_the_backlog_that_is_not_in_memory() -> None:
    solo = tiny(queue(), 2)
    for _ in range(9):
        solo.send(ttl_ms=1000)
    solo.crash()
    assert upkeep.next_due(solo.broker, solo.now) == 1000
    solo.move(1000)
    assert solo.tables() == ""


def test_a_locked_message_can_be_completed_after_its_end_and_expires_when_the_lock_ends() -> None:
    solo = queue()
    solo.send(b"1", ttl_ms=1000)
    solo.send(b"2", ttl_ms=1000)
    first, second = solo.get(), solo.get()
    solo.move(5_000)
    assert solo.log().active == 2
    assert upkeep.next_due(solo.broker, solo.now) == LOCK_MS - 5_000
    solo.complete(first)
    solo.abandon(second)
    assert upkeep.next_due(solo.broker, solo.now) == 0
    solo.upkeep()
    assert solo.tables() == ""


def test_release_and_the_end_of_the_lock_let_it_expire_too() -> None:
    solo = queue()
    for _ in range(2):
        solo.send(ttl_ms=1000)
    released, _ = solo.get(), solo.get()
    solo.move(2_000)
    solo.release(released)
    solo.upkeep()
    assert solo.log().active == 1
    solo.move(LOCK_MS)
    assert solo.tables() == ""


def test_many_locked_expired_messages_neither_block_the_sweep_nor_make_it_spin() -> None:
    solo = queue()
    solo.settings.bounds.sweep_rows = 3
    for _ in range(10):
        solo.send(ttl_ms=1000)
    for _ in range(10):
        solo.get()
    for _ in range(5):
        solo.send(ttl_ms=1500)
    solo.move(3_000)
    assert solo.log().active == 10
    assert upkeep.next_due(solo.broker, solo.now) == LOCK_MS - 3_000


def test_deferred_messages_expire_and_dead_letters_do_not() -> None:
    solo = queue(ttl_ms=1000)
    solo.send()
    solo.send()
    solo.defer(solo.get())
    solo.dead_letter(solo.get())
    solo.crash()
    solo.move(2000)
    assert (solo.log().deferred, solo.log(1).active) == (0, 1)
    assert solo.tables() == "MX"


def test_a_message_deferred_in_the_open_batch_still_expires() -> None:
    solo = queue()
    solo.send(ttl_ms=1000)
    entry = solo.get()
    solo.pass_time(1000)
    solo.defer(entry, commit=False)
    solo.upkeep()
    assert solo.tables() == ""
    assert solo.log().deferred == 0


def test_a_message_of_the_open_batch_is_not_forgotten_by_a_sweep_that_cannot_see_it() -> None:
    solo = queue()
    solo.send(b"first", ttl_ms=1000)
    solo.pass_time(1000)
    solo.send(b"second", commit=False, ttl_ms=500)
    solo.run(upkeep.sweep(solo.broker, solo.now))
    solo.commit()
    assert upkeep.next_due(solo.broker, solo.now) == 500
    solo.crash()
    assert upkeep.next_due(solo.broker, solo.now) == 500
    solo.move(500)
    assert solo.tables() == ""


def test_copies_of_a_topic_live_as_long_as_topic_and_subscription_allow() -> None:
    solo = topic(1, 2)
    solo.settings.own.ttl_ms = 10_000
    solo.settings.subscriptions[1].ttl_ms = 3_000
    solo.send()
    assert solo.get(main(1)).expires_ms == solo.now.wall_ms + 3_000
    assert solo.get(main(2)).expires_ms == solo.now.wall_ms + 10_000


def test_a_failed_sweep_is_tried_again() -> None:
    solo = queue()
    solo.send(ttl_ms=1000)
    solo.pass_time(1000)
    solo.begin(upkeep.sweep(solo.broker, solo.now)).drop()
    assert upkeep.next_due(solo.broker, solo.now) == 0
    solo.upkeep()
    assert solo.tables() == ""
