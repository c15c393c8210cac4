"""F: health and management."""

from __future__ import annotations

from dataclasses import replace

import pytest

from polybus.errors import PartitionUnavailable, ServerBusy
from polybus.namespace.description import EntityAvailability, QueueDescription, SubscriptionDescription
from polybus.testing.sim_store import Fault
from tests.requirements.core.core_bus import PARTITIONS, CoreBus


def test_f1_what_belongs_to_the_lost_partition_fails_and_the_rest_goes_on(core: CoreBus) -> None:
    core.queue("keys", PARTITIONS)
    core.queue("sessions", PARTITIONS, requires_session=True)
    core.queue("unique", PARTITIONS, requires_duplicate_detection=True)
    core.queue("plain")
    core.lose(0)
    for path, field in (("keys", "partition_key"), ("sessions", "session_id"), ("unique", "message_id")):
        for partition in core.namespace.entity(path).partitions:
            key = core.key_for(path, partition.index)
            if partition.available:
                core.sent(path, key, **{field: key})
                continue
            with pytest.raises(PartitionUnavailable):
                core.sent(path, key, **{field: key})
            if path == "sessions":
                with pytest.raises(PartitionUnavailable):
                    core.accept(path, key)
        assert sum(p.available for p in core.namespace.entity(path).partitions) == 12
    held, box = core.accept("sessions")
    assert core.take_in_session(held, box, 1) == [held.id]


def test_f1_a_plain_entity_is_lost_as_a_whole(core: CoreBus) -> None:
    entity = core.queue("plain")
    core.sent("plain", "kept")
    core.lose(core.store_of(entity.partitions[0]))
    with pytest.raises(PartitionUnavailable):
        core.sent("plain", "x")
    core.heal()
    core.run(10)
    assert core.bodies("plain") == ["kept"]


def test_f2_management_needs_every_partition_and_is_never_half_done(core: CoreBus) -> None:
    entity = core.queue("q", PARTITIONS)
    core.topic("t", PARTITIONS)
    core.sent("q", "kept")
    core.lose(2)
    management = core.namespace.management
    changed = replace(entity.description, user_metadata="changed")
    asked = QueueDescription(path="new", enable_partitioning=True)
    subscription = SubscriptionDescription(topic="t", name="s")
    attempts = (
        lambda: management.create(asked),
        lambda: management.update(changed),
        lambda: management.delete("q"),
        lambda: management.create_subscription(subscription),
    )
    for attempt in attempts:
        with pytest.raises(ServerBusy) as refused:
            core.do(attempt())
        assert refused.value.retryable
    core.restart()
    core.heal()
    core.run(10)
    assert core.namespace.find("new") is None
    assert core.namespace.entity("q").description.user_metadata is None
    assert core.bodies("q") == ["kept"]
    management = core.namespace.management
    core.do(management.create(asked))
    core.do(management.update(changed))
    core.do(management.create_subscription(subscription))
    core.do(management.delete("q"))
    assert core.namespace.find("q") is None


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
def test_f2_a_catalogue_that_fails_leaves_all_or_nothing_also_over_a_restart(core: CoreBus, fault: str) -> None:
    core.topic("t", PARTITIONS)
    core.world.catalogue.plan(fault)
    try:
        core.subscribe("t", "s")
        created = True
    except ServerBusy:
        created = False
    assert created is (fault == Fault.FAIL_AFTER)
    assert ("s" in core.namespace.entity("t").subscriptions) is created
    core.restart()
    assert ("s" in core.namespace.entity("t").subscriptions) is created


def test_f3_counts_and_sizes_are_those_of_all_partitions(core: CoreBus) -> None:
    core.queue("q", PARTITIONS)
    for number in range(40):
        core.sent("q", str(number))
    core.sent("q", "later", scheduled_ms=core.now().wall_ms + 60_000)
    first, second, *_ = core.take("q", 4)
    core.defer(first)
    core.dead_letter(second)
    counts = core.namespace.entity("q").counts()
    assert (counts.active, counts.deferred, counts.dead_letter, counts.scheduled) == (38, 1, 1, 1)
    assert counts.total == 41
    assert counts.size_bytes > 0
    core.restart()
    again = core.namespace.entity("q").counts()
    assert (again.total, again.size_bytes) == (counts.total, counts.size_bytes)


def test_f3_with_an_unhealthy_partition_the_entity_is_limited(core: CoreBus) -> None:
    entity = core.queue("q", PARTITIONS)
    for number in range(PARTITIONS):
        core.sent("q", str(number))
    assert entity.availability is EntityAvailability.AVAILABLE
    core.lose(3)
    assert entity.availability is EntityAvailability.LIMITED
    assert len(entity.missing_partitions()) == 4
    assert entity.counts().active == 12
    core.heal()
    core.run(10)
    assert entity.availability is EntityAvailability.AVAILABLE
    assert entity.counts().active == 16
