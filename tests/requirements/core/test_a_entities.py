"""A: entities made of partitions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from polybus import limits
from polybus.errors import ArgumentError, EntityAlreadyExists, QuotaExceeded
from polybus.namespace.entities.description import EntityAvailability, QueueDescription, TopicDescription
from polybus.namespace.entities.rule import RuleDescription, SqlFilterDescription
from polybus.namespace.entities.tiers import BASIC, PREMIUM, STANDARD, Tier, TierName
from polybus.promise import spawn
from tests.requirements.core.conftest import Maker
from tests.requirements.core.core_bus import PARTITIONS, CoreBus
from tests.support.inside import broker_of

BOTH = pytest.mark.parametrize("partitions", [1, PARTITIONS], ids=["plain", "partitioned"])


def test_a1_a_plain_entity_has_one_broker_and_one_store(core: CoreBus) -> None:
    entity = core.queue("q")
    assert len(entity.partitions) == 1
    assert entity.partitions[0].store in core.bus.stores


def test_a1_with_as_many_stores_as_partitions_each_partition_is_alone_on_one(make: Maker) -> None:
    core = make(PARTITIONS)
    entity = core.queue("q", PARTITIONS)
    assert len({partition.store for partition in entity.partitions}) == PARTITIONS


@pytest.mark.parametrize("stores", [3, 4])
def test_a1_with_fewer_stores_partitions_share_evenly_and_each_has_its_own_broker(make: Maker, stores: int) -> None:
    entity = make(stores).queue("q", PARTITIONS)
    shares = Counter(partition.store.url for partition in entity.partitions)
    assert len(shares) == stores
    assert max(shares.values()) - min(shares.values()) <= 1
    assert len({id(broker_of(partition)) for partition in entity.partitions}) == PARTITIONS


def test_a2_the_outage_of_one_store_does_not_make_a_partitioned_entity_unavailable(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    for number in range(32):
        core.sent("q", f"before {number}")
    core.lose(0)
    for number in range(32):
        core.sent("q", f"during {number}")
    received = core.drain("q")
    assert len([body for body in received if body.startswith("during")]) == 32
    assert len([body for body in received if body.startswith("before")]) == 24


@BOTH
def test_a3_scheduling_dead_letters_and_duplicate_detection(core: CoreBus, partitions: int) -> None:
    core.queue("q", partitions, requires_duplicate_detection=True)
    for _ in range(3):
        core.sent("q", "once", message_id="same")
    core.sent("q", "later", message_id="l", scheduled_ms=core.now().wall_ms + 5_000)
    assert core.namespace.entity("q").counts().result().scheduled == 1
    (delivery,) = core.take("q", 5)
    core.dead_letter(delivery)
    assert core.bodies("q/$DeadLetterQueue") == ["once"]
    core.run(6)
    assert core.drain("q") == ["later"]


@BOTH
def test_a3_sessions_have_order_and_state(core: CoreBus, partitions: int) -> None:
    core.queue("q", partitions, requires_session=True)
    for number in range(5):
        for session in ("s", "t"):
            core.sent("q", f"{session}{number}", session_id=session)
    held, box = core.accept("q", "s")
    assert core.take_in_session(held, box, 5) == [f"s{number}" for number in range(5)]


@BOTH
def test_a3_rules_choose_the_copies(core: CoreBus, partitions: int) -> None:
    core.topic("t", partitions)
    red = RuleDescription(name="red", filter=SqlFilterDescription(expression="colour = 'red'"))
    core.subscribe("t", "red", [red])
    core.subscribe("t", "all")
    for colour in ("red", "blue", "red"):
        core.sent("t", colour, application={"colour": colour})
    assert core.drain("t/Subscriptions/red") == ["red", "red"]
    assert sorted(core.drain("t/Subscriptions/all")) == ["blue", "red", "red"]


@BOTH
def test_a3_transactions_settle_and_send_together(core: CoreBus, partitions: int) -> None:
    core.queue("q", partitions)
    core.sent("q", "in", partition_key="k")
    (delivery,) = core.take("q")
    transaction = core.transaction()
    transaction.settle(core.namespace.entity("q"), delivery, "complete")
    core.join(transaction, "q", "out", partition_key="k")
    core.commit(transaction)
    assert core.bodies("q") == ["out"]


@BOTH
def test_a4_a_receiver_cannot_tell(core: CoreBus, partitions: int) -> None:
    """Read, complete, abandon, defer, dead-letter, prefetch, receive and delete."""
    core.queue("q", partitions, max_delivery_count=3)
    for number in range(6):
        core.sent("q", str(number))
    first, second, third, fourth, *_ = core.take("q", 6)
    core.complete(first)
    core.abandon(second)
    core.defer(third)
    core.dead_letter(fourth)
    (back,) = core.deferred("q", [third.sequence])
    core.complete(back)
    assert len(core.bodies("q/$DeadLetterQueue")) == 1
    (again,) = core.take("q")
    assert again.delivery_count == 1
    core.complete(again)
    core.run(61)
    assert len(core.delete_on_receipt("q", 2)) == 2
    assert core.namespace.entity("q").counts().result().active == 0


@pytest.mark.parametrize("partitions", [1, PARTITIONS])
@pytest.mark.parametrize("description", [QueueDescription, TopicDescription])
def test_a5_partitioning_is_chosen_at_creation_and_cannot_be_changed(
    core: CoreBus, partitions: int, description: type[QueueDescription | TopicDescription]
) -> None:
    entity = core.create(description(path="e", enable_partitioning=partitions > 1), partitions)
    assert len(entity.partitions) == partitions
    changed = replace(entity.description, enable_partitioning=partitions == 1)
    with pytest.raises(ArgumentError, match="Partitioning cannot be changed"):
        core.do(core.namespace.management.update(changed))
    assert len(core.namespace.entity("e").partitions) == partitions


def test_a7_a_description_that_does_not_say_leaves_partitioning_off(core: CoreBus) -> None:
    for described in (QueueDescription(path="q"), TopicDescription(path="t")):
        entity = core.do(core.namespace.management.create(described))
        assert not entity.description.enable_partitioning
        assert len(entity.partitions) == 1


@pytest.mark.parametrize("size_gb", [1, 2, 3, 4, 5])
def test_a8_in_standard_each_of_16_partitions_has_the_chosen_size(core: CoreBus, size_gb: int) -> None:
    core.bus.tier = STANDARD
    asked = QueueDescription(path="q", enable_partitioning=True, max_size_in_megabytes=size_gb * 1024)
    entity = core.do(core.namespace.management.create(asked))
    assert len(entity.partitions) == 16
    assert entity.settings.max_bytes == size_gb << 30
    assert entity.description.shown_size_in_megabytes == 16 * size_gb * 1024


def test_a8_one_gigabyte_is_the_default_and_six_are_too_many(core: CoreBus) -> None:
    assert core.queue("q").description.shown_size_in_megabytes == 1024
    with pytest.raises(ArgumentError):
        core.do(core.namespace.management.create(QueueDescription(path="big", max_size_in_megabytes=6 * 1024)))


@pytest.mark.parametrize("size_gb", [1, 2, 3, 4, 5, 10, 20, 40, 80])
def test_a9_in_premium_the_overview_shows_the_chosen_size(core: CoreBus, size_gb: int) -> None:
    core.bus.tier = PREMIUM
    asked = QueueDescription(path="q", max_size_in_megabytes=size_gb * 1024)
    entity = core.do(core.namespace.management.create(asked))
    assert entity.description.shown_size_in_megabytes == size_gb * 1024
    assert (
        core.do(core.namespace.management.create(QueueDescription(path="d"))).description.shown_size_in_megabytes
        == 1024
    )


def test_a10_a_message_costs_the_stores_the_same(core: CoreBus) -> None:
    """As many commits for a message that is sent, received and completed, and as many bytes."""
    core.queue("plain")
    core.queue("partitioned", PARTITIONS)
    costs = []
    for path in ("plain", "partitioned"):
        for number in range(PARTITIONS):
            core.sent(path, f"warm {number}")
        core.drain(path)
        before = (sum(s.commits for s in core.bus.stores), sum(s.committed_bytes for s in core.bus.stores))
        for number in range(2 * PARTITIONS):
            core.sent(path, f"{number:04}")
            (delivery,) = core.take(path)
            core.complete(delivery)
        after = (sum(s.commits for s in core.bus.stores), sum(s.committed_bytes for s in core.bus.stores))
        costs.append((after[0] - before[0], after[1] - before[1]))
    assert costs[0] == costs[1]


def test_a11_a_namespace_has_at_most_100_partitioned_entities(make: Maker) -> None:
    core = make(1)
    core.bus.tier = Tier(partitions=2)
    for number in range(100):
        core.do(core.namespace.management.create(QueueDescription(path=f"q{number}", enable_partitioning=True)))
    with pytest.raises(QuotaExceeded):
        core.do(core.namespace.management.create(TopicDescription(path="one-more", enable_partitioning=True)))
    core.queue("plain")


def test_a11_partitioned_ones_count_towards_the_entities_of_a_namespace(
    core: CoreBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert STANDARD.entities_max == 10_000
    assert PREMIUM.entities_max is None
    monkeypatch.setattr(limits, "ENTITIES", 3)
    core.queue("a", 2)
    core.queue("b", 2)
    core.queue("c")
    with pytest.raises(QuotaExceeded):
        core.queue("d")


def test_a11_the_quotas_hold_for_entities_that_are_created_at_the_same_time(
    core: CoreBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PARTITIONED_ENTITIES", 1)
    monkeypatch.setattr(limits, "ENTITIES", 3)
    core.bus.tier = Tier(partitions=2)
    create = core.namespace.management.create
    asked = [QueueDescription(path=path, enable_partitioning=path < "c") for path in "abcdef"]
    creating = [spawn(create(each)) for each in asked]
    core.run(1)
    assert sorted(core.namespace.entities) == ["a", "c", "d"]
    for promise in (creating[1], creating[4], creating[5]):
        with pytest.raises(QuotaExceeded):
            promise.result()


def test_names_that_lie_in_one_another_are_not_created_at_the_same_time(core: CoreBus) -> None:
    create = core.namespace.management.create
    creating = [spawn(create(QueueDescription(path=path))) for path in ("x", "X/y", "z/x", "Z")]
    core.run(1)
    assert sorted(core.namespace.entities) == ["x", "z/x"]
    for promise in (creating[1], creating[3]):
        with pytest.raises(EntityAlreadyExists):
            promise.result()


def test_a12_a_partitioned_entity_goes_on_in_a_premium_namespace(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    core.sent("q", "before")
    core.restart()
    core.bus.tier = PREMIUM
    core.sent("q", "after")
    entity = core.namespace.entity("q")
    core.do(core.namespace.management.update(replace(entity.description, user_metadata="changed")))
    assert len(entity.partitions) == PARTITIONS
    assert sorted(core.drain("q")) == ["after", "before"]


def test_a12_partitioning_is_refused_for_a_new_entity_in_premium(core: CoreBus) -> None:
    core.bus.tier = PREMIUM
    with pytest.raises(ArgumentError):
        core.do(core.namespace.management.create(QueueDescription(path="q", enable_partitioning=True)))


def test_a12_premium_partitions_give_every_entity_that_many(core: CoreBus) -> None:
    core.bus.tier = Tier(TierName.PREMIUM, premium_partitions=2)
    entity = core.do(core.namespace.management.create(QueueDescription(path="q", max_size_in_megabytes=4096)))
    assert len(entity.partitions) == 2
    assert entity.description.shown_size_in_megabytes == 4096


def test_a13_premium_without_partitioning_has_sessions(core: CoreBus) -> None:
    core.bus.tier = PREMIUM
    core.do(core.namespace.management.create(QueueDescription(path="q", requires_session=True)))
    core.sent("q", "a", session_id="s")
    core.sent("q", "b", session_id="s")
    held, box = core.accept("q")
    assert held.id == "s"
    assert core.take_in_session(held, box, 2) == ["a", "b"]


def test_a14_partitioning_is_an_option_in_basic(core: CoreBus) -> None:
    core.bus.tier = BASIC
    entity = core.do(core.namespace.management.create(QueueDescription(path="q", enable_partitioning=True)))
    assert len(entity.partitions) == 16
    assert len(core.do(core.namespace.management.create(QueueDescription(path="p"))).partitions) == 1


def test_a15_deleted_and_created_again_without_partitions(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    core.sent("q", "old")
    core.do(core.namespace.management.delete("q"))
    entity = core.queue("q")
    assert len(entity.partitions) == 1
    assert entity.availability is EntityAvailability.AVAILABLE
    core.sent("q", "new")
    core.restart()
    assert core.bodies("q") == ["new"]
