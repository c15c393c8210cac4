"""E1 and E2: messages move on by themselves, and their keys choose the partition where they arrive."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage as Message

from polybus.hashing import partition_for
from tests.requirements.kit import PARTITIONS, Bus, Gate, keys_for, until
from tests.sdk.python.bus import partition_of, peek_all


@pytest.mark.parametrize(("source", "target"), [(True, False), (False, True), (True, True)])
def test_e1_e2_from_to_and_between_partitioned_entities(bus: Bus, gate: Gate, source: bool, target: bool) -> None:
    last = bus.queue(enable_partitioning=target)
    first = bus.queue(enable_partitioning=source, forward_to=last.name)
    keys = [f"key {number}" for number in range(8)]
    first.send(*[Message(key, partition_key=key) for key in keys], *["no key"] * PARTITIONS)
    until(lambda: sum(gate.totals(last.name)) == 8 + PARTITIONS)
    until(lambda: sum(gate.totals(first.name)) == 0)  # the source lets go when the destination has synced
    count = PARTITIONS if target else 1
    for each in peek_all(last.receiver()):
        if each.partition_key is not None:
            assert partition_of(each) == partition_for(each.partition_key, count)


def test_e1_a_subscription_forwards_to_a_partitioned_topic(bus: Bus, gate: Gate) -> None:
    first, second = bus.topic(), bus.topic()
    end = bus.subscription(second, "end")
    bus.subscription(first, "on", forward_to=second.name)
    first.send(*["x"] * PARTITIONS)
    until(lambda: end.runtime().active_message_count == PARTITIONS)
    assert {str(each) for each in peek_all(end.receiver())} == {"x"}


def test_e2_a_message_id_counts_only_where_the_destination_detects_duplicates(bus: Bus, gate: Gate) -> None:
    detecting, plain = bus.queue(requires_duplicate_detection=True), bus.queue()
    ids = keys_for(6, PARTITIONS)
    for target in (detecting, plain):
        source = bus.queue(forward_to=target.name)
        source.send(*[Message("x", message_id=each) for each in ids])
        until(lambda target=target: sum(gate.totals(target.name)) == PARTITIONS)
    assert gate.totals(detecting.name) == [PARTITIONS if index == 6 else 0 for index in range(PARTITIONS)]
    assert len([count for count in gate.totals(plain.name) if count]) > 1
