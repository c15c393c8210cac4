"""Deferral: messages that are received by their numbers."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState, ServiceBusReceiveMode
from azure.servicebus.exceptions import MessageNotFoundError, ServiceBusError

from tests.sdk.python.bus import Bus, Entity, nothing_comes, numbered, peek_all, receive, texts
from tests.sdk.python.table import Table

table = Table("deferral")


def deferred(queue: Entity, count: int, **properties: object) -> list[int]:
    """Sends and defers messages; gives their numbers."""
    queue.send(*numbered(count, **properties))
    receiver = queue.receiver()
    numbers = []
    for message in receive(receiver, count):
        receiver.defer_message(message)
        numbers.append(message.sequence_number)
    peek_all(receiver)
    return numbers


def not_found(bus: Bus, queue: Entity, numbers: list[int]) -> None:
    receiver = queue.receiver(bus.client_with(retry_total=0))
    with pytest.raises(MessageNotFoundError):
        receiver.receive_deferred_messages(numbers)


@table.behaviour()
def by_number(bus: Bus) -> None:
    queue = bus.queue()
    numbers = deferred(queue, 3)
    receiver = queue.receiver()
    (message,) = receiver.receive_deferred_messages(numbers[1])
    assert (str(message), message.state) == ("1", ServiceBusMessageState.DEFERRED)
    assert message.lock_token is not None
    assert message.locked_until_utc > message.enqueued_time_utc
    receiver.complete_message(message)
    assert texts(peek_all(receiver)) == ["0", "2"]


@table.behaviour()
def several_numbers_of_one_partition(bus: Bus) -> None:
    queue = bus.queue()
    numbers = deferred(queue, 4)
    receiver = queue.receiver()
    messages = receiver.receive_deferred_messages([numbers[3], numbers[0], numbers[2]])
    assert sorted(texts(messages)) == ["0", "2", "3"]
    for message in messages:
        receiver.complete_message(message)
    assert texts(peek_all(receiver)) == ["1"]


@table.behaviour(differs="G4")
def numbers_of_different_partitions(bus: Bus) -> None:
    """One call stays inside one partition."""
    queue = bus.queue()
    numbers = deferred(queue, 2, partition_key=None)
    receiver = queue.receiver(bus.client_with(retry_total=0))
    if bus.partitioned:
        with pytest.raises(ServiceBusError, match="partition"):
            receiver.receive_deferred_messages(numbers)
        found = [str(receiver.receive_deferred_messages(number)[0]) for number in numbers]
        assert sorted(found) == ["0", "1"]  # which of two partitions was received from first is nobody's promise
    else:
        assert texts(receiver.receive_deferred_messages(numbers)) == ["0", "1"]


@table.behaviour()
def a_number_that_is_not_there(bus: Bus) -> None:
    queue = bus.queue()
    (number,) = deferred(queue, 1)
    not_found(bus, queue, [number + 100])


@table.behaviour()
def all_numbers_or_none(bus: Bus) -> None:
    queue = bus.queue()
    (number,) = deferred(queue, 1)
    not_found(bus, queue, [number, number + 100])
    assert texts(queue.receiver().receive_deferred_messages(number)) == ["0"]


@table.behaviour()
def a_message_that_is_not_deferred(bus: Bus) -> None:
    queue = bus.queue()
    queue.send("x")
    (message,) = peek_all(queue.receiver())
    not_found(bus, queue, [message.sequence_number])


@table.behaviour()
def a_deferred_message_that_somebody_holds(bus: Bus) -> None:
    queue = bus.queue()
    (number,) = deferred(queue, 1)
    queue.receiver().receive_deferred_messages(number)
    not_found(bus, queue, [number])


@table.behaviour()
def receive_and_delete_of_a_deferred_message(bus: Bus) -> None:
    queue = bus.queue()
    (number,) = deferred(queue, 1)
    receiver = queue.receiver(receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
    assert texts(receiver.receive_deferred_messages(number)) == ["0"]
    assert peek_all(receiver) == []


@table.behaviour()
def later_messages_pass_a_deferred_one(bus: Bus) -> None:
    queue = bus.queue()
    deferred(queue, 1)
    queue.send(ServiceBusMessage("later", partition_key="one"))
    receiver = queue.receiver()
    assert texts(receive(receiver, 1)) == ["later"]
    assert nothing_comes(receiver)


@table.behaviour()
def no_numbers_at_all(bus: Bus) -> None:
    assert bus.queue().receiver().receive_deferred_messages([]) == []


@table.behaviour()
def in_a_subscription(bus: Bus) -> None:
    topic = bus.topic()
    subscription = bus.subscription(topic)
    topic.send("x")
    receiver = subscription.receiver()
    (message,) = receive(receiver, 1)
    receiver.defer_message(message)
    (again,) = receiver.receive_deferred_messages(message.sequence_number)
    receiver.complete_message(again)
    assert peek_all(receiver) == []
