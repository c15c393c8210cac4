"""C: receiving."""

from __future__ import annotations

import pytest

from polybus.limits import PEEK_REPLY_BYTES
from polybus.message.rendering import render
from polybus.namespace.delivery import entity_verbs
from polybus.namespace.delivery.source import give_back
from polybus.namespace.entities.names import parse_address
from tests.requirements.core.core_bus import PARTITIONS, CoreBus
from tests.support.simulation.small_world import body_of


@pytest.mark.parametrize("index", [0, 7, 15])
def test_c1_a_receive_asks_all_partitions(core: CoreBus, index: int) -> None:
    core.queue("q", PARTITIONS)
    core.sent("q", "x", partition_key=core.key_for("q", index))
    (delivery,) = core.take("q")
    assert delivery.sequence >> 48 == index


@pytest.mark.parametrize("place", ["q", "t/Subscriptions/s"])
def test_c1_partitions_are_received_from_in_turn_and_none_waits_for_another_to_be_empty(
    core: CoreBus, place: str
) -> None:
    core.queue("q", PARTITIONS)
    core.topic("t", PARTITIONS)
    core.subscribe("t", "s")
    for number in range(3 * PARTITIONS):
        core.sent(place.split("/")[0], str(number))
    received = [delivery.sequence >> 48 for delivery in core.take(place, 3 * PARTITIONS)]
    rounds = [received[start : start + PARTITIONS] for start in range(0, len(received), PARTITIONS)]
    assert [len(set(each)) for each in rounds] == [PARTITIONS] * 3


def test_c1_a_subscription_of_a_partitioned_topic_is_received_from_all_partitions(core: CoreBus) -> None:
    core.topic("t", PARTITIONS)
    core.subscribe("t", "s")
    for number in range(32):
        core.sent("t", str(number))
    received = core.take("t/Subscriptions/s", 32)
    assert {delivery.sequence >> 48 for delivery in received} == set(range(PARTITIONS))
    assert sorted(body_of(d.message) for d in received) == sorted(map(str, range(32)))


def test_c2_what_others_hold_is_not_received_until_its_lock_runs_out(core: CoreBus) -> None:
    core.queue("q", PARTITIONS, lock_duration_ms=5_000)
    for number in range(4):
        core.sent("q", str(number))
    assert len(core.take("q", 4)) == 4
    assert core.take("q") == []
    core.run(5)
    again = core.take("q", 4)
    assert [delivery.delivery_count for delivery in again] == [1] * 4


def test_c2_what_never_left_for_a_closed_connection_is_given_back_at_once(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    core.sent("q", "x")
    (delivery,) = core.take("q")
    give_back(delivery)
    (again,) = core.take("q")
    assert again.delivery_count == 0


def test_c2_a_sessions_messages_are_given_back_at_once(core: CoreBus) -> None:
    core.queue("q", PARTITIONS, requires_session=True)
    core.sent("q", "a", session_id="s")
    core.sent("q", "b", session_id="s")
    held, box = core.accept("q", "s")
    assert core.take_in_session(held, box, 2) == ["a", "b"]
    held.release()
    held, box = core.accept("q", "s")
    assert core.take_in_session(held, box, 2) == ["a", "b"]


def test_c3_the_first_message_of_an_almost_empty_queue_comes_as_fast_as_from_a_plain_one(core: CoreBus) -> None:
    took = {}
    for name, partitions in (("plain", 1), ("partitioned", PARTITIONS)):
        core.queue(name, partitions)
        box = core.receive(name)
        before = core.world.loop.time()
        core.sent(name, "x")
        core.world.run_until(lambda box=box: bool(box.got), 1.0, 0.001)
        took[name] = core.world.loop.time() - before
        assert box.bodies == ["x"]
    assert took["partitioned"] <= took["plain"] + 0.011


def test_c3_a_receiver_never_misses_a_message_that_is_free(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    box = core.receive("q", 100)
    for number in range(100):
        core.sent("q", str(number))
    core.run(0.1)
    assert sorted(box.bodies, key=int) == [str(number) for number in range(100)]


def test_c4_a_peek_on_a_plain_queue_gives_the_oldest(core: CoreBus) -> None:
    core.queue("q")
    for number in range(5):
        core.sent("q", str(number))
    core.take("q", 2)
    entity = core.namespace.entity("q")
    (peeked,) = core.do(entity_verbs.peek(core.namespace, entity, entity.log_id(parse_address("q")), 1, 1))
    assert body_of(peeked.message) == "0"


def test_c4_a_peek_on_a_partitioned_queue_gives_the_oldest_of_a_partition(core: CoreBus) -> None:
    """What was sent says which is the oldest, and not another peek: of each partition, and of the one that answers."""
    entity = core.queue("q", PARTITIONS)
    numbers = [number for body in range(3 * PARTITIONS) for number in core.sent("q", str(body))]
    oldest = {index: min(n for n in numbers if n >> 48 == index) for index in range(PARTITIONS)}
    log_id = entity.log_id(parse_address("q"))
    (peeked,) = core.do(entity_verbs.peek(core.namespace, entity, log_id, 1, 1))
    assert peeked.marks.sequence in oldest.values()
    for index, number in oldest.items():
        (first,) = core.do(entity_verbs.peek(core.namespace, entity, log_id, index << 48, 1))
        assert first.marks.sequence == number


def test_c4_a_peek_is_answered_by_the_partitions_whose_store_answers_first() -> None:
    core = CoreBus(4)  # in memory, where reads can be made slow
    entity = core.queue("q", PARTITIONS)
    numbers = [number for body in range(2 * PARTITIONS) for number in core.sent("q", str(body))]
    slow = entity.partitions[0].store
    core.restart()
    core.run(1)
    entity = core.namespace.entity("q")
    core.set_faults(next(i for i, host in enumerate(core.bus.stores) if host.url == slow.url), read_ms=(9e3, 9e3))
    (peeked,) = core.do(entity_verbs.peek(core.namespace, entity, entity.log_id(parse_address("q")), 1, 1))
    answering = {each.index for each in entity.partitions if each.store.url != slow.url}
    first = min(n for n in numbers if n >> 48 == min(answering))
    assert peeked.marks.sequence == first, "the oldest of the first partition that did not have to be waited for"
    core.close()


@pytest.mark.parametrize("place", ["q", "t/Subscriptions/s"])
def test_c5_peeking_on_reaches_every_message_and_an_empty_reply_is_the_end(core: CoreBus, place: str) -> None:
    core.queue("q", PARTITIONS)
    core.topic("t", PARTITIONS)
    core.subscribe("t", "s")
    for number in range(60):
        core.sent(place.split("/")[0], f"{number:02}" + "." * (number % 7) * 5_000)
    for count in (1, 7, 200):
        bodies = [body_of(message)[:2] for message, _ in core.peeked(place, count)]
        assert sorted(bodies) == [f"{number:02}" for number in range(60)]


def test_c5_a_reply_is_no_larger_than_256_kilobytes(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    for _ in range(20):
        core.sent("q", "." * 60_000)
    address = parse_address("q")
    entity = core.namespace.entity("q")
    page = core.do(entity_verbs.peek(core.namespace, entity, entity.log_id(address), 1, 20))
    assert 0 < sum(peeked.message.size for peeked in page) <= PEEK_REPLY_BYTES
    assert len(page) < 20


@pytest.mark.parametrize("place", ["q", "q/$DeadLetterQueue"])
def test_c5_what_the_broker_adds_counts_in_a_reply_as_well(core: CoreBus, place: str) -> None:
    """Many small messages, or dead letters with a long story, are more in the reply than what was sent."""
    entity = core.queue("q")
    for _ in range(40):
        core.sent("q", *("." for _ in range(50)))
    if place != "q":
        for delivery in core.take("q", 30):
            core.dead_letter(delivery, "x" * 20_000)
    address = parse_address(place)
    page = core.do(entity_verbs.peek(core.namespace, entity, entity.log_id(address), 1, 2_000))
    reply = sum(len(render(peeked.message, peeked.marks)) for peeked in page)
    assert PEEK_REPLY_BYTES / 2 < reply <= PEEK_REPLY_BYTES
    assert len(core.peeked(place, 2_000)) == (2_000 if place == "q" else 30)


def test_c7_what_is_in_memory_is_received_without_the_stores(core: CoreBus) -> None:
    """One receive fills the cache; those that follow come although no store can be read."""
    core.queue("q", PARTITIONS)
    for number in range(2 * PARTITIONS):
        core.sent("q", str(number))
    core.restart()
    core.run(1)
    first = core.take("q", 1)
    for index in range(len(core.disks)):
        core.set_faults(index, fail_read=1.0)
    rest = core.take("q", 2 * PARTITIONS)
    assert len({delivery.sequence for delivery in first + rest}) == 2 * PARTITIONS


def test_c5_whoever_waits_for_a_session_looks_again_when_the_stores_can_be_read(core: CoreBus) -> None:
    """And does so now and then, not more and more often: each failed look would else bring sixteen new ones."""
    queue = core.queue("q", PARTITIONS, requires_session=True)
    for index in range(PARTITIONS):
        core.sent("q", "a", session_id=core.key_for("q", index))
    stores = core.world.bus.stores  # type: ignore[union-attr]
    drivers = [store.driver for store in stores]
    for store in stores:
        store.driver = None
    source = queue.session_source(parse_address("q"))
    accepted = source.accept_next("test", 60_000)
    core.run(3)
    assert not accepted.settled
    for store, driver in zip(stores, drivers, strict=True):
        store.driver = driver
    core.run(1)
    assert accepted.settled
