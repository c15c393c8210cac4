"""Staging, publishing and reading by position, one situation at a time: what a pipeline relies on when stores fail."""

from __future__ import annotations

import pytest

from polybus.message import outcome
from polybus.message.message import build
from polybus.namespace.delivery import entity_verbs
from polybus.namespace.delivery.source import Delivery
from polybus.namespace.pipeline.cursor import Cursor
from polybus.namespace.pipeline.cursors import Start
from polybus.namespace.pipeline.publishing import Staged
from polybus.namespace.pipeline.ranges import partition_logs
from polybus.namespace.pipeline.stage_writer import StageWriter
from polybus.partition.kinds import DEAD_LETTER, MAIN
from polybus.promise import Promise, spawn
from tests.support.inside import broker_of
from tests.support.sim_store import Fault
from tests.support.simulation.small_world import SmallWorld, body_of

WEEK_MS = 7 * 86_400_000


def staged(small: SmallWorld, *bodies: str) -> Staged:
    entity = small.namespace.entity("q")
    writer = StageWriter(small.bus, entity)
    small.do(writer.write([build(body.encode()) for body in bodies]))
    return Staged(entity.id, writer.id, writer.partitions)


def publish(small: SmallWorld, epoch: int, stage: Staged) -> None:
    small.do(small.bus.publishing.publish("sim", "producer", "query", epoch, [stage]))


@pytest.mark.parametrize("fault", [Fault.FULL, Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
def test_what_is_published_arrives_once_though_its_store_fails_at_the_move(fault: str) -> None:
    """A full store was once reported as an error of the bus instead of being waited for."""
    small = SmallWorld(1)
    small.queue("q", 4)
    stage = staged(small, "a", "b", "c")
    small.disks[0].plan(fault)
    publish(small, 0, stage)
    small.run(10)
    assert small.bodies("q") == ["a", "b", "c"]
    assert small.bus.publishing.pending == 0
    assert small.world.errors == []


def test_an_epoch_that_is_staged_again_after_its_publisher_died_is_not_doubled() -> None:
    small = SmallWorld(2)
    small.queue("q", 4)
    publish(small, 0, staged(small, "a", "b"))
    small.restart()
    publish(small, 0, staged(small, "a", "b"))
    publish(small, 1, staged(small, "c"))
    small.run(10)
    assert sorted(small.bodies("q")) == ["a", "b", "c"]


def test_a_stage_that_nobody_publishes_is_gone_after_a_day_though_its_store_was_full() -> None:
    small = SmallWorld(1)
    small.queue("q", 4)
    staged(small, "orphan")
    entity = small.namespace.entity("q")
    assert entity.counts().result().size_bytes > 0
    small.disks[0].plan(Fault.FULL)
    small.world.advance(86_400_001)
    small.run(60)
    assert entity.counts().result().size_bytes == 0
    assert small.bodies("q") == []
    assert small.world.errors == []


def tapped(small: SmallWorld) -> Cursor:
    """A plain queue `q` whose log a cursor keeps."""
    entity = small.queue("q")
    return small.do(small.bus.cursors.create(entity, MAIN, "tap", "sim", Start(), WEEK_MS, None))[0]


def settle(small: SmallWorld, delivery: Delivery) -> Promise[None]:
    done: Promise[None] = Promise()
    delivery.partition.complete(delivery, small.world.clock.now(), done.reply, None)
    return done


def kept(small: SmallWorld) -> int:
    return broker_of(small.namespace.entity("q").partitions[0]).log(MAIN).retained


def let_go(small: SmallWorld, cursor: Cursor) -> None:
    small.do(small.bus.cursors.delete(small.namespace.entity("q"), cursor))


def taken(small: SmallWorld, count: int) -> list[Delivery]:
    box = small.receive("q", count)
    small.run(1)
    return box.got


def test_a_cursor_lets_go_of_what_it_kept_though_its_store_was_full() -> None:
    small = SmallWorld(1)
    cursor = tapped(small)
    small.sent("q", "read and settled")
    small.answer(settle(small, *taken(small, 1)))
    assert kept(small) == 1
    small.disks[0].plan(Fault.FULL)
    let_go(small, cursor)
    small.run(30)
    assert kept(small) == 0
    assert small.world.errors == []


def test_a_cursor_lets_go_of_what_it_kept_though_its_store_could_not_be_read() -> None:
    small = SmallWorld(1)
    cursor = tapped(small)
    small.sent("q", "read and settled")
    small.answer(settle(small, *taken(small, 1)))
    small.set_faults(0, fail_read=1.0)
    let_go(small, cursor)
    small.run(1)
    assert kept(small) == 1
    small.heal()
    small.run(1)
    assert kept(small) == 0


def test_a_cursor_lets_go_of_what_is_settled_and_not_synced_yet() -> None:
    """The mark of the first message is in no scan while that of the second is: it was passed over for good."""
    small = SmallWorld(1)
    cursor = tapped(small)
    for body in ("first", "second"):
        small.sent("q", body)
    first, second = taken(small, 2)
    small.answer(settle(small, second))
    small.set_faults(0, commit_ms=(200.0, 200.0))
    settled = settle(small, first)
    small.run(0.01)
    let_go(small, cursor)
    small.answer(settled)
    small.run(3)
    assert kept(small) == 0


def test_a_cursor_that_moves_on_while_others_are_removed_lets_go_of_all() -> None:
    small = SmallWorld(1)
    cursor = tapped(small)
    for body in ("first", "second"):
        small.sent("q", body)
    for delivery in taken(small, 2):
        small.answer(settle(small, delivery))
    small.set_faults(0, commit_ms=(200.0, 200.0))
    entity = small.namespace.entity("q")
    small.do(small.bus.cursors.advance(entity, cursor, {0: 1}, None))
    small.run(0.1)
    let_go(small, cursor)
    small.run(3)
    assert kept(small) == 0


def test_a_settled_message_is_not_received_again_when_a_cursor_lets_go_of_it() -> None:
    """A page of the log has seen its row, and looks for its mark when both are gone."""
    small = SmallWorld(1)
    cursor = tapped(small)
    for body in ("active", "settled"):
        small.sent("q", body)
    small.answer(settle(small, taken(small, 2)[1]))
    small.restart()
    small.set_faults(0, read_ms=(50.0, 50.0))
    box = small.receive("q", 2)
    small.run(0.02)
    let_go(small, cursor)
    small.run(2)
    assert box.bodies == ["active"]


def test_a_settled_message_is_not_peeked_at_when_a_cursor_lets_go_of_it() -> None:
    small = SmallWorld(1)
    cursor = tapped(small)
    for body in ("active", "settled"):
        small.sent("q", body)
    small.answer(settle(small, taken(small, 2)[1]))
    small.set_faults(0, read_ms=(50.0, 50.0))
    entity = small.namespace.entity("q")
    peeked = spawn(entity_verbs.peek(small.namespace, entity, MAIN, 1, 10))
    small.run(0.07)
    let_go(small, cursor)
    assert [body_of(one.message) for one in small.answer(peeked)] == ["active"]


def test_a_time_is_found_among_dead_letters_though_the_newer_died_first() -> None:
    small = SmallWorld(1)
    entity = small.queue("q")
    entity.settings.bounds.sweep_rows = 2
    times: list[int] = []
    for body in "abcdef":
        times.append(small.world.clock.now().wall_ms)
        small.sent("q", body)
        small.run(10)
    by_body = dict(zip("abcdef", taken(small, 6), strict=True))
    for body in "bfdeca":
        done: Promise[None] = Promise()
        delivery = by_body[body]
        now = small.world.clock.now()
        delivery.partition.settle(delivery, now, outcome.DEAD_LETTER, None, None, None, done.reply, None)
        small.answer(done)
    expected = {0: 1, 1: 1, 2: 2, 3: 2, 4: 2, 5: 2}
    for place, position in expected.items():
        (log,) = small.do(partition_logs(entity, DEAD_LETTER, times[place]))
        assert (place, log.at_time) == (place, position)
    (log,) = small.do(partition_logs(entity, DEAD_LETTER, times[5] + 60_000))
    assert log.at_time == 7
