"""F: health and management."""

from __future__ import annotations

from dataclasses import replace

import pytest

from polybus.errors import PartitionUnavailable, ServerBusy
from polybus.message.message import build
from polybus.namespace.entities.description import EntityAvailability, QueueDescription, SubscriptionDescription
from tests.requirements.core.core_bus import PARTITIONS, CoreBus
from tests.support.sim_store import Fault


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


@pytest.mark.parametrize("trouble", ["slow reads", "hanging commit"])
def test_f1_sessions_of_other_stores_do_not_wait_for_one_that_is_slow(core: CoreBus, trouble: str) -> None:
    queue = core.queue("q", PARTITIONS, requires_session=True)
    for index in range(PARTITIONS):
        core.sent("q", "x", session_id=core.key_for("q", index))
    healthy = sum(core.store_of(partition) != 0 for partition in queue.partitions)
    if trouble == "slow reads":
        core.restart()
        core.run(1)
        core.set_faults(0, read_ms=(9_000.0, 9_000.0))
    else:
        slow = next(partition for partition in queue.partitions if core.store_of(partition) == 0)
        core.disks[0].plan(Fault.HANG)
        core.send("q", build(b"y", session_id=core.key_for("q", slow.index)))
        core.run(0.05)
    before = core.world.loop.time()
    held = [core.accept("q")[0].id for _ in range(healthy)]
    assert core.world.loop.time() - before < 1.0
    core.heal()
    for disk in core.disks:
        disk.release()
    core.run(20)
    held += [core.accept("q")[0].id for _ in range(PARTITIONS - healthy)]
    assert len(set(held)) == PARTITIONS


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
    counts = core.namespace.entity("q").counts().result()
    assert (counts.active, counts.deferred, counts.dead_letter, counts.scheduled) == (38, 1, 1, 1)
    assert counts.total == 41
    assert counts.size_bytes > 0
    core.restart()
    again = core.namespace.entity("q").counts().result()
    assert (again.total, again.size_bytes) == (counts.total, counts.size_bytes)


def test_f3_with_an_unhealthy_partition_the_entity_is_limited(core: CoreBus) -> None:
    entity = core.queue("q", PARTITIONS)
    for number in range(PARTITIONS):
        core.sent("q", str(number))
    assert entity.availability is EntityAvailability.AVAILABLE
    core.lose(3)
    assert entity.availability is EntityAvailability.LIMITED  # type: ignore[comparison-overlap]
    assert len(entity.missing_partitions()) == 4
    assert entity.counts().result().active == 12
    core.heal()
    core.run(10)
    assert entity.availability is EntityAvailability.AVAILABLE
    assert entity.counts().result().active == 16
