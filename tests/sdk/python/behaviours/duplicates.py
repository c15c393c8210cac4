"""Duplicate detection: by message id, within a window, in the partition that the key selects."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.sdk.python.bus import Bus, Entity, partition_of, peek_all, soon, take, texts
from tests.sdk.python.table import Table

table = Table("duplicates")


def detecting(bus: Bus, **options: Any) -> Entity:
    return bus.queue(requires_duplicate_detection=True, **options)


@table.behaviour()
def a_duplicate_is_accepted_and_dropped(bus: Bus) -> None:
    queue = detecting(bus)
    queue.send(ServiceBusMessage("first", message_id="1"), ServiceBusMessage("second", message_id="1"))
    receiver = queue.receiver()
    assert texts(peek_all(receiver)) == ["first"]
    assert queue.runtime().active_message_count == 1


@table.behaviour()
def other_ids_are_no_duplicates(bus: Bus) -> None:
    queue = detecting(bus)
    queue.send(*[ServiceBusMessage(str(index), message_id=str(index)) for index in range(20)])
    assert len(peek_all(queue.receiver())) == 20


@table.behaviour()
def without_detection_both_are_kept(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*[ServiceBusMessage("x", message_id="1") for _ in range(2)])
    assert len(peek_all(queue.receiver())) == 2


@table.behaviour()
def a_completed_message_still_counts(bus: Bus) -> None:
    queue = detecting(bus)
    queue.send(ServiceBusMessage("first", message_id="1"))
    receiver = queue.receiver()
    take(receiver, 1)
    queue.send(ServiceBusMessage("second", message_id="1"))
    assert peek_all(receiver) == []


@table.behaviour(alone=True)
def after_the_window_an_id_is_new(bus: Bus) -> None:
    queue = detecting(bus, duplicate_detection_history_time_window=timedelta(minutes=10))
    queue.send(ServiceBusMessage("first", message_id="1"))
    bus.move_clock(timedelta(minutes=6))
    queue.send(ServiceBusMessage("duplicate", message_id="1"))
    bus.move_clock(timedelta(minutes=6))
    queue.send(ServiceBusMessage("second", message_id="1"))
    assert texts(peek_all(queue.receiver())) == ["first", "second"]


@table.behaviour()
def duplicates_in_one_batch(bus: Bus) -> None:
    queue = detecting(bus)
    queue.sender().send_messages([ServiceBusMessage(name, message_id="1") for name in ("first", "second")])
    assert texts(peek_all(queue.receiver())) == ["first"]


@table.behaviour(differs="B5")
def a_batch_of_different_ids(bus: Bus) -> None:
    """The ids are keys where there are partitions to choose from, and a batch has one key."""
    queue = detecting(bus)
    batch = [ServiceBusMessage("x", message_id=str(index)) for index in range(3)]
    if bus.partitioned:
        with pytest.raises(ServiceBusError, match="distinct SessionId, PartitionKey, or MessageId"):
            queue.sender(bus.client_with(retry_total=0)).send_messages(batch)
        assert peek_all(queue.receiver()) == []
    else:
        queue.sender().send_messages(batch)
        assert len(peek_all(queue.receiver())) == 3


@table.behaviour()
def a_batch_of_different_ids_under_one_key(bus: Bus) -> None:
    queue = detecting(bus)
    queue.sender().send_messages(
        [ServiceBusMessage("x", message_id=each, partition_key="k") for each in ("1", "2", "1")]
    )
    assert [message.message_id for message in peek_all(queue.receiver())] == ["1", "2"]


@table.behaviour(differs="B5")
def the_id_is_the_key(bus: Bus) -> None:
    queue = detecting(bus)
    queue.send(*[ServiceBusMessage("x", message_id=str(index)) for index in range(30)])
    first = {message.message_id: partition_of(message) for message in peek_all(queue.receiver())}
    assert (len(set(first.values())) > 4) == bus.partitioned
    other = detecting(bus)
    other.send(*[ServiceBusMessage("x", message_id=str(index)) for index in range(30)])
    assert {message.message_id: partition_of(message) for message in peek_all(other.receiver())} == first


@table.behaviour(differs="B6")
def one_id_under_different_keys(bus: Bus) -> None:
    """Each partition knows its own ids; on a plain entity there is one history."""
    queue = detecting(bus)
    queue.send(*[ServiceBusMessage(key, message_id="1", partition_key=key) for key in ("a", "b", "c", "d", "a")])
    found = peek_all(queue.receiver())
    if bus.partitioned:
        assert len(found) == len({partition_of(message) for message in found}) > 1
    else:
        assert texts(found) == ["a"]


@table.behaviour()
def a_scheduled_duplicate(bus: Bus) -> None:
    queue = detecting(bus)
    sender = queue.sender()
    sender.schedule_messages(ServiceBusMessage("first", message_id="1"), soon(3600))
    queue.send(ServiceBusMessage("second", message_id="1"))
    assert texts(peek_all(queue.receiver())) == ["first"]


@table.behaviour()
def on_a_topic(bus: Bus) -> None:
    topic = bus.topic(requires_duplicate_detection=True)
    subscription = bus.subscription(topic)
    topic.send(ServiceBusMessage("first", message_id="1"), ServiceBusMessage("second", message_id="1"))
    assert texts(peek_all(subscription.receiver())) == ["first"]


@table.behaviour()
def in_sessions(bus: Bus) -> None:
    queue = detecting(bus, requires_session=True)
    for name in ("first", "second"):
        queue.send(ServiceBusMessage(name, message_id="1", session_id="s"))
    with queue.unopened(session_id="s") as receiver:
        assert texts(peek_all(receiver)) == ["first"]
