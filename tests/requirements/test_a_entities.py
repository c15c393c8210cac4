"""A1 to A10 and A15: entities made of partitions, through the SDK's administration and message clients."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage as Message
from azure.servicebus.management import SqlRuleFilter

from polybus.testing.server import ServerProcess
from tests.requirements.kit import PARTITIONS, Bus, Entity, Gate, entry
from tests.sdk.python.bus import nothing_comes, receive, receive_one, take, texts

SERVER = ("--clock", "movable")
STORES = 4
GIGABYTE_MB = 1024


def test_a1_partitions_share_the_stores_evenly_and_each_has_its_own_broker(bus: Bus, gate: Gate) -> None:
    queue, plain = bus.queue(), bus.queue(enable_partitioning=False)
    parts = gate.partitions(queue.name)
    assert sorted(Counter(each["store_id"] for each in parts).values()) == [PARTITIONS // STORES] * STORES
    assert len(gate.partitions(plain.name)) == 1
    queue.send(*["x"] * (2 * PARTITIONS))
    assert gate.totals(queue.name) == [2] * PARTITIONS


def test_a1_with_as_many_stores_as_partitions_each_is_alone(tmp_path) -> None:
    stores = [option for number in range(PARTITIONS) for option in ("--store", f"memory:{number}")]
    with ServerProcess(tmp_path, *stores) as server:
        bus, gate = Bus(server, "partitioned"), Gate(server)
        parts = gate.partitions(bus.queue().name)
        assert len({each["store_id"] for each in parts}) == PARTITIONS
        bus.close()
        gate.close()


def life(bus: Bus, queue: Entity) -> list[object]:
    """Everything that a receiver does, and what it sees of it, with one key so that order is promised."""
    seen: list[object] = []
    sender, receiver = queue.sender(), queue.receiver(prefetch_count=5)
    for body in ("complete", "abandon", "defer", "dead-letter"):
        sender.send_messages(Message(body, partition_key="k", message_id=body))
    sender.send_messages(Message("complete", partition_key="k", message_id="complete"))
    messages = {str(each): each for each in receive(receiver, 4)}
    seen.append(list(messages))
    receiver.complete_message(messages["complete"])
    receiver.abandon_message(messages["abandon"])
    receiver.defer_message(messages["defer"])
    receiver.dead_letter_message(messages["dead-letter"], reason="because")
    again = receive_one(receiver)
    seen.append((str(again), again.delivery_count))
    receiver.complete_message(again)
    deferred = receiver.receive_deferred_messages(messages["defer"].sequence_number)
    seen.append(texts(deferred))
    receiver.complete_message(deferred[0])
    (dead,) = take(queue.dead_letters(), 1)
    seen.append((str(dead), dead.dead_letter_reason))
    sender.schedule_messages(Message("later", partition_key="k"), bus.server_time() + timedelta(hours=1))
    seen.append(nothing_comes(receiver))
    bus.move_clock(timedelta(hours=2))
    seen.append(texts(take(receiver, 1)))
    return seen


def test_a3_a4_a_receiver_cannot_tell_a_partitioned_entity_from_a_plain_one(bus: Bus) -> None:
    """Duplicate detection, prefetch, abandon, deferral, dead-lettering and scheduling give the same on both."""
    options = {"requires_duplicate_detection": True}
    plain = life(bus, bus.queue(enable_partitioning=False, **options))  # type: ignore[arg-type]
    assert life(bus, bus.queue(**options)) == plain  # type: ignore[arg-type]
    assert plain[0] == ["complete", "abandon", "defer", "dead-letter"]
    assert plain[-1] == ["later"]


def test_a3_a_topic_with_rules_sessions_and_forwarding(bus: Bus) -> None:
    topic, target = bus.topic(), bus.queue(requires_session=True)
    bus.subscription(topic, "red", forward_to=target.name)
    bus.admin.delete_rule(topic.name, "red", "$Default")
    bus.admin.create_rule(topic.name, "red", "only-red", filter=SqlRuleFilter("colour = 'red'"))
    for session in ("a", "b"):
        for colour in ("red", "blue"):
            topic.send(Message(colour, session_id=session, application_properties={"colour": colour}))
    for session in ("a", "b"):
        receiver = target.receiver(session_id=session)
        assert texts(take(receiver, 1)) == ["red"]
        receiver.session.set_state(b"seen")
        assert receiver.session.get_state() == b"seen"


def test_a5_partitioning_is_chosen_at_creation_and_cannot_be_changed(bus: Bus) -> None:
    for partitioned in (True, False):
        queue = bus.queue(enable_partitioning=partitioned)
        properties = bus.admin.get_queue(queue.name)
        assert properties.enable_partitioning is partitioned
        properties.enable_partitioning = not partitioned
        with pytest.raises(HttpResponseError, match="Partitioning cannot be changed"):
            bus.admin.update_queue(properties)
        assert bus.admin.get_queue(queue.name).enable_partitioning is partitioned


@pytest.mark.parametrize("version", ["2013-10", "2014-01", "2017-04", "2021-05", "2024-05"])
def test_a6_http_since_2013_10(bus: Bus, gate: Gate, version: str) -> None:
    name = bus.new_name()
    body = entry("QueueDescription", EnablePartitioning=True)
    made = gate.http.put(f"/{name}?api-version={version}", content=body)
    assert made.status_code == 201, made.text
    shown = gate.http.get(f"/{name}?api-version={version}").text
    assert "<EnablePartitioning>true</EnablePartitioning>" in shown
    assert gate.http.post(f"/{name}/messages?api-version={version}", content=b"x").status_code == 201
    assert gate.http.delete(f"/{name}/messages/head?timeout=30&api-version={version}").content == b"x"
    assert gate.http.delete(f"/{name}?api-version={version}").status_code == 200


@pytest.mark.parametrize("version", ["2012-03", "2013-04", "2013-09"])
@pytest.mark.parametrize("kind", ["QueueDescription", "TopicDescription"])
def test_a6_partitions_are_refused_to_whoever_speaks_an_earlier_version(
    bus: Bus, gate: Gate, version: str, kind: str
) -> None:
    """A plain entity instead would be another one than was asked for, and could not be changed."""
    name = bus.new_name()
    refused = gate.http.put(f"/{name}?api-version={version}", content=entry(kind, EnablePartitioning=True))
    assert (refused.status_code, "2013-10" in refused.text) == (400, True), refused.text
    assert "Description" not in gate.http.get(f"/{name}").text, "and nothing is there"
    plain = entry(kind, EnablePartitioning=False)
    assert gate.http.put(f"/{name}?api-version={version}", content=plain).status_code == 201
    assert len(gate.partitions(name)) == 1


def test_a7_a_call_that_does_not_say_leaves_partitioning_off(bus: Bus, gate: Gate) -> None:
    """The console's form, where it is on to begin with, is not part of this."""
    name = bus.new_name()
    bus.admin.create_queue(name)
    assert bus.admin.get_queue(name).enable_partitioning is False
    assert len(gate.partitions(name)) == 1


def test_a8_sizes_of_the_standard_tier(bus: Bus) -> None:
    assert bus.admin.get_queue(bus.queue().name).max_size_in_megabytes == PARTITIONS * GIGABYTE_MB
    for gigabytes in range(1, 6):
        size = gigabytes * GIGABYTE_MB
        whole = bus.queue(max_size_in_megabytes=size)
        assert bus.admin.get_queue(whole.name).max_size_in_megabytes == PARTITIONS * size
        plain = bus.queue(enable_partitioning=False, max_size_in_megabytes=size)
        assert bus.admin.get_queue(plain.name).max_size_in_megabytes == size
    with pytest.raises(HttpResponseError):
        bus.queue(max_size_in_megabytes=10 * GIGABYTE_MB)


def test_a10_a_message_costs_the_stores_the_same(bus: Bus, gate: Gate) -> None:
    """Commits and bytes are counted: a partitioned entity needs as many as a plain one, one for each step."""
    costs = []
    for partitioned in (False, True):
        queue = bus.queue(enable_partitioning=partitioned)
        receiver = queue.receiver()
        queue.send("warm")
        take(receiver, 1)
        before = [gate.metric(f"polybus_store_{what}_total") for what in ("commits", "committed_bytes")]
        queue.send(*["x" * 100] * 64)
        take(receiver, 64)
        after = [gate.metric(f"polybus_store_{what}_total") for what in ("commits", "committed_bytes")]
        costs.append([now - then for now, then in zip(after, before, strict=True)])
    (plain_commits, plain_bytes), (commits, size) = costs
    assert commits <= plain_commits * 1.1
    assert size <= plain_bytes * 1.1


def test_a15_deleted_and_created_again_without_partitions(bus: Bus, gate: Gate) -> None:
    queue = bus.queue()
    queue.send("old")
    bus.admin.delete_queue(queue.name)
    with pytest.raises(ResourceNotFoundError):
        bus.admin.get_queue(queue.name)
    again = bus.queue(queue.name, enable_partitioning=False)
    assert bus.admin.get_queue(queue.name).enable_partitioning is False
    assert len(gate.partitions(queue.name)) == 1
    assert again.runtime().total_message_count == 0
    again.send("new")
    assert texts(take(again.receiver(), 1)) == ["new"]
