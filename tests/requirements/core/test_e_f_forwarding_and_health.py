"""E: forwarding. F: health and management."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from polybus.errors import PartitionUnavailable, ServerBusy
from polybus.namespace.description import EntityAvailability, QueueDescription, SubscriptionDescription
from polybus.testing.sim_store import Fault
from tests.requirements.core.core_bus import PARTITIONS, CoreBus


def partitions_of(core: CoreBus, path: str) -> Counter[int]:
    return Counter(number >> 48 for _, number in core.peeked(path))


@pytest.mark.parametrize(("source", "target"), [(1, 1), (1, 16), (16, 1), (16, 16)])
def test_E1_a_queue_forwards_from_and_to_partitions(core: CoreBus, source: int, target: int) -> None:
    core.queue("there", target)
    core.queue("here", source, forward_to="there")
    for number in range(32):
        core.sent("here", str(number))
    core.run(5)
    assert sorted(core.bodies("there"), key=int) == [str(number) for number in range(32)]
    assert core.namespace.entity("here").counts().total == 0


@pytest.mark.parametrize(("source", "target"), [(1, 16), (16, 1), (16, 16)])
def test_E1_a_subscription_forwards_from_and_to_partitions(core: CoreBus, source: int, target: int) -> None:
    core.queue("there", target)
    core.topic("t", source)
    core.subscribe("t", "onward", forward_to="there")
    core.subscribe("t", "stays")
    for number in range(32):
        core.sent("t", str(number))
    core.run(5)
    assert sorted(core.bodies("there"), key=int) == [str(number) for number in range(32)]
    assert len(core.bodies("t/Subscriptions/stays")) == 32


def test_E1_forwarding_waits_for_a_store_and_arrives_once(core: CoreBus) -> None:
    core.queue("there", PARTITIONS)
    here = core.queue("here", PARTITIONS, forward_to="there")
    for number in range(40):
        core.sent("here", str(number))
        core.disks[core.store_of(here.partitions[here.turn])].plan(Fault.FAIL_AFTER)
        core.run(2)
    core.run(20)
    assert sorted(core.bodies("there"), key=int) == [str(number) for number in range(40)]


def test_E2_a_key_chooses_the_partition_at_the_destination(core: CoreBus) -> None:
    core.queue("there", PARTITIONS)
    core.queue("here", forward_to="there")
    for field in ("partition_key", "session_id"):
        for key in ("a", "b", "c"):
            core.sent("here", key, **{field: key})
    core.run(5)
    for message, number in core.peeked("there"):
        key = message.session_id or message.partition_key
        assert key is not None
        assert number >> 48 == core.partition("there", key).index


def test_E2_without_a_key_forwarded_messages_go_round(core: CoreBus) -> None:
    core.queue("there", PARTITIONS)
    core.queue("here", forward_to="there")
    for number in range(2 * PARTITIONS):
        core.sent("here", str(number), message_id="same")
    core.run(5)
    assert partitions_of(core, "there") == dict.fromkeys(range(PARTITIONS), 2)


def test_E2_a_message_id_counts_where_the_destination_detects_duplicates(core: CoreBus) -> None:
    core.queue("there", PARTITIONS, requires_duplicate_detection=True)
    core.queue("here", forward_to="there")
    for name in ("a", "b", "a", "c", "b"):
        core.sent("here", name, message_id=name)
    core.run(5)
    found = {message.message_id: number >> 48 for message, number in core.peeked("there")}
    assert found == {name: core.partition("there", name).index for name in ("a", "b", "c")}
    assert sorted(core.bodies("there")) == ["a", "b", "c"]


def test_F1_what_belongs_to_the_lost_partition_fails_and_the_rest_goes_on(core: CoreBus) -> None:
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


def test_F1_a_plain_entity_is_lost_as_a_whole(core: CoreBus) -> None:
    entity = core.queue("plain")
    core.sent("plain", "kept")
    core.lose(core.store_of(entity.partitions[0]))
    with pytest.raises(PartitionUnavailable):
        core.sent("plain", "x")
    core.heal()
    core.run(10)
    assert core.bodies("plain") == ["kept"]


def test_F2_management_needs_every_partition_and_is_never_half_done(core: CoreBus) -> None:
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
def test_F2_a_catalogue_that_fails_leaves_all_or_nothing_also_over_a_restart(core: CoreBus, fault: str) -> None:
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


def test_F3_counts_and_sizes_are_those_of_all_partitions(core: CoreBus) -> None:
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


def test_F3_with_an_unhealthy_partition_the_entity_is_limited(core: CoreBus) -> None:
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
