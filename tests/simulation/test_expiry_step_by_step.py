"""Messages whose time is over, one situation at a time."""

from __future__ import annotations

import pytest

from polybus.errors import MessageNotFound, PolybusError
from polybus.message.message import build
from polybus.message.outcome import DEFER
from polybus.namespace.delivery import entity_verbs
from polybus.namespace.entities.names import parse_address
from polybus.partition.kinds import MAIN
from polybus.partition.records import number_key
from polybus.promise import Promise
from tests.support.inside import broker_of
from tests.support.simulation.small_world import SmallWorld


def test_a_message_that_expired_under_its_lock_and_was_then_deferred_is_not_received_by_number() -> None:
    """It was handed out until the sweep came by."""
    small = SmallWorld(1)
    entity = small.queue("q")
    (number,) = small.sent("q", "too late", ttl_ms=4_000)
    box = small.receive("q")
    small.run(5)
    (held,) = box.got
    done: Promise[None] = Promise()
    held.partition.settle(held, small.world.clock.now(), DEFER, None, None, None, done.reply, None)
    with pytest.raises(MessageNotFound):
        small.do(entity_verbs.receive_deferred(small.namespace, entity, MAIN, [number], True, None))
    small.answer(done)
    small.run(60)
    assert entity.counts().result().total == 0


def test_steady_sends_do_not_put_off_what_is_due() -> None:
    """Every commit asks whether the timer rings soon enough; one that was late already was set anew each time."""
    small = SmallWorld(1)
    small.set_faults(0, commit_ms=(0.2, 0.2), read_ms=(0.0, 0.0))
    entity = small.queue("q")
    entity.settings.bounds.sweep_rows = 2
    small.sent("q", *("old" for _ in range(10)), ttl_ms=500)
    sending = True

    def send_on(context: object, result: object, error: PolybusError | None) -> None:
        if sending:
            small.namespace.send(entity, [build(b"new")], send_on, None)

    send_on(None, None, None)
    small.run(1)
    sending = False
    assert entity.settings.own.totals.expired == 10


def test_a_damaged_record_does_not_stop_the_clock_of_its_partition() -> None:
    """The sweep comes upon it again and again; locks end all the same."""
    small = SmallWorld(1)
    small.queue("q", lock_duration_ms=5_000)
    (number,) = small.sent("q", "damaged", ttl_ms=10_000)
    small.run(1)
    (held,) = small.receive("q").got
    done: Promise[None] = Promise()
    log = broker_of(held.partition).log(held.log_id)
    held.partition.settle(held, small.world.clock.now(), DEFER, None, None, None, done.reply, None)
    small.answer(done)
    store = small.bus.stores[0]
    store.batch.put(number_key(log.deferred_prefix, number), b"damaged")
    store.touch()
    small.run(1)
    small.restart()
    small.run(20)
    small.sent("q", "good")
    (held,) = small.receive("q").got
    small.run(7)
    (again,) = broker_of(held.partition).log(MAIN).memory.values()
    assert again.delivery_count == 1
    assert held.partition.problem == "a message record is too short"


def test_a_session_is_found_behind_many_in_which_everything_has_expired() -> None:
    small = SmallWorld(1)
    small.queue("q", requires_session=True)
    for number in range(200):
        small.sent("q", "old", session_id=f"{number:03}", ttl_ms=60_000)
    small.sent("q", "new", session_id="200")
    small.restart()
    small.world.jump_wall(100_000)  # no timer has rung yet: the sweep did not come to them
    entity = small.namespace.entity("q")
    held = small.answer(entity.session_source(parse_address("q")).accept_next("test", 5_000))
    assert held.id == "200"
