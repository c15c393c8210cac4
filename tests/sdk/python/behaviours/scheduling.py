"""Scheduled messages: invisible until they are due, cancelled by their numbers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.exceptions import MessageNotFoundError, ServiceBusError
from azure.servicebus.management import SqlRuleFilter

from tests.sdk.python.bus import (
    Bus,
    nothing_comes,
    numbered,
    partition_of,
    peek_all,
    receive_one,
    soon,
    take,
    texts,
)
from tests.sdk.python.table import Table

table = Table("scheduling")

HOUR = 3600


@table.behaviour()
def a_scheduled_message_waits(bus: Bus) -> None:
    queue = bus.queue()
    due = soon(HOUR)
    (number,) = queue.sender().schedule_messages(ServiceBusMessage("x"), due)
    receiver = queue.receiver()
    assert nothing_comes(receiver)
    (peeked,) = peek_all(receiver)
    assert peeked.state is ServiceBusMessageState.SCHEDULED
    assert peeked.sequence_number == number
    assert abs(peeked.scheduled_enqueue_time_utc - due) < timedelta(milliseconds=2)


@table.behaviour()
def a_scheduled_message_comes_when_it_is_due(bus: Bus) -> None:
    """With the real clock, to a receiver that waits."""
    queue = bus.queue()
    receiver = queue.receiver()
    due = soon(2)
    (number,) = queue.sender().schedule_messages(ServiceBusMessage("x", partition_key="k"), due)
    message = receive_one(receiver)
    assert datetime.now(UTC) >= due
    assert message.enqueued_time_utc >= due - timedelta(milliseconds=2)
    assert message.sequence_number > number
    assert partition_of(message) == partition_of(number)
    assert message.enqueued_sequence_number == number


@table.behaviour(alone=True)
def a_message_scheduled_for_next_year(bus: Bus) -> None:
    queue = bus.queue()
    ahead = bus.server_time()
    queue.sender().schedule_messages(ServiceBusMessage("x"), ahead + timedelta(days=365))
    receiver = queue.receiver()
    bus.move_clock(timedelta(days=364))
    assert nothing_comes(receiver)
    bus.move_clock(timedelta(days=1))
    assert texts(take(receiver, 1)) == ["x"]


@table.behaviour()
def a_message_with_a_scheduled_time(bus: Bus) -> None:
    """Sent over the link, so that nobody learns its number."""
    queue = bus.queue()
    queue.send(ServiceBusMessage("x", scheduled_enqueue_time_utc=soon(HOUR)))
    receiver = queue.receiver()
    assert nothing_comes(receiver)
    assert [message.state for message in peek_all(receiver)] == [ServiceBusMessageState.SCHEDULED]


@table.behaviour()
def a_batch_of_messages_with_a_scheduled_time(bus: Bus) -> None:
    queue = bus.queue()
    queue.sender().send_messages(numbered(3, scheduled_enqueue_time_utc=soon(2)))
    assert texts(take(queue.receiver(), 3)) == ["0", "1", "2"]


@table.behaviour()
def scheduling_several_at_once(bus: Bus) -> None:
    queue = bus.queue()
    numbers = queue.sender().schedule_messages(numbered(5), soon(HOUR))
    assert len(set(numbers)) == 5
    assert numbers == sorted(numbers)
    assert [message.sequence_number for message in peek_all(queue.receiver())] == numbers
    assert queue.runtime().scheduled_message_count == 5


@table.behaviour(differs="G7")
def scheduling_messages_with_different_keys_at_once(bus: Bus) -> None:
    """They are one request, all or nothing, so they go to one partition or none."""
    queue = bus.queue()
    messages = [ServiceBusMessage(key, partition_key=key) for key in ("a", "b")]
    if bus.partitioned:
        with pytest.raises(ServiceBusError, match="distinct SessionId or PartitionKey"):
            queue.sender(bus.client_with(retry_total=0)).schedule_messages(messages, soon(HOUR))
        assert peek_all(queue.receiver()) == []
    else:
        numbers = queue.sender().schedule_messages(messages, soon(HOUR))
        assert [message.sequence_number for message in peek_all(queue.receiver())] == numbers


@table.behaviour(differs="G7")
def scheduled_messages_with_keys_wait_in_their_partitions(bus: Bus) -> None:
    queue = bus.queue()
    sender = queue.sender()
    keys = [f"key-{index}" for index in range(8)]
    found = {
        key: partition_of(sender.schedule_messages(ServiceBusMessage(key, partition_key=key), soon(HOUR))[0])
        for key in keys
    }
    queue.send(*[ServiceBusMessage(key, partition_key=key) for key in keys])
    assert {str(message): partition_of(message) for message in peek_all(queue.receiver())} == found
    assert (len(set(found.values())) > 1) == bus.partitioned


@table.behaviour()
def scheduling_for_a_time_that_has_passed(bus: Bus) -> None:
    queue = bus.queue()
    queue.sender().schedule_messages(ServiceBusMessage("x"), soon(-HOUR))
    assert texts(take(queue.receiver(), 1)) == ["x"]


@table.behaviour()
def cancelling(bus: Bus) -> None:
    queue = bus.queue()
    sender = queue.sender()
    numbers = sender.schedule_messages(numbered(3), soon(HOUR))
    sender.cancel_scheduled_messages(numbers[1])
    assert texts(peek_all(queue.receiver())) == ["0", "2"]


@table.behaviour()
def cancelling_several_of_several_partitions(bus: Bus) -> None:
    queue = bus.queue()
    sender = queue.sender()
    numbers = [sender.schedule_messages(ServiceBusMessage(str(each)), soon(HOUR))[0] for each in range(6)]
    sender.cancel_scheduled_messages(numbers[:5])
    assert texts(peek_all(queue.receiver())) == ["5"]
    assert queue.runtime().scheduled_message_count == 1


@table.behaviour()
def cancelling_twice(bus: Bus) -> None:
    queue = bus.queue()
    sender = queue.sender(bus.client_with(retry_total=0))
    (number,) = sender.schedule_messages(ServiceBusMessage("x"), soon(HOUR))
    sender.cancel_scheduled_messages(number)
    with pytest.raises(MessageNotFoundError):
        sender.cancel_scheduled_messages(number)


@table.behaviour()
def cancelling_what_has_become_active(bus: Bus) -> None:
    queue = bus.queue()
    sender = queue.sender(bus.client_with(retry_total=0))
    (number,) = sender.schedule_messages(ServiceBusMessage("x"), soon(-1))
    with pytest.raises(MessageNotFoundError):
        sender.cancel_scheduled_messages(number)
    assert texts(take(queue.receiver(), 1)) == ["x"]


@table.behaviour()
def cancelling_all_or_none(bus: Bus) -> None:
    queue = bus.queue()
    sender = queue.sender(bus.client_with(retry_total=0))
    (number,) = sender.schedule_messages(ServiceBusMessage("x", partition_key="k"), soon(HOUR))
    with pytest.raises(MessageNotFoundError):
        sender.cancel_scheduled_messages([number, number + 100])
    assert len(peek_all(queue.receiver())) == 1


@table.behaviour(alone=True)
def messages_become_active_in_the_order_of_their_times(bus: Bus) -> None:
    queue = bus.queue()
    sender = queue.sender()
    start = bus.server_time()
    for name, minutes in (("third", 30), ("first", 10), ("second", 20)):
        sender.schedule_messages(ServiceBusMessage(name, partition_key="k"), start + timedelta(minutes=minutes))
    bus.move_clock(timedelta(hours=1))
    assert texts(take(queue.receiver(), 3)) == ["first", "second", "third"]


@table.behaviour(alone=True)
def the_time_to_live_begins_when_a_message_is_due(bus: Bus) -> None:
    queue = bus.queue(dead_lettering_on_message_expiration=True)
    message = ServiceBusMessage("x", time_to_live=timedelta(hours=1))
    queue.sender().schedule_messages(message, bus.server_time() + timedelta(hours=10))
    bus.move_clock(timedelta(hours=10, minutes=30))
    receiver = queue.receiver()
    assert len(peek_all(receiver)) == 1
    bus.move_clock(timedelta(hours=1))
    assert receive_one(queue.dead_letters()).dead_letter_reason == "TTLExpiredException"


@table.behaviour()
def scheduled_on_a_topic(bus: Bus) -> None:
    """Rules judge a message when it becomes active, those of later subscriptions too."""
    topic = bus.topic()
    numbers = topic.sender().schedule_messages(
        [
            ServiceBusMessage(colour, application_properties={"colour": colour}, partition_key="k")
            for colour in ("red", "blue")
        ],
        soon(3),
    )
    assert len(numbers) == 2
    subscription = bus.subscription(topic)
    bus.admin.delete_rule(topic.name, "all", "$Default")
    bus.admin.create_rule(topic.name, "all", "blue", filter=SqlRuleFilter("colour = 'blue'"))
    receiver = subscription.receiver()
    assert peek_all(receiver) == []
    assert texts(take(receiver, 1)) == ["blue"]
    assert nothing_comes(receiver)


@table.behaviour()
def scheduled_in_a_session(bus: Bus) -> None:
    queue = bus.queue(requires_session=True)
    queue.sender().schedule_messages(numbered(2, session_id="s"), soon(2))
    with queue.unopened(session_id="s") as receiver:
        assert texts(take(receiver, 2)) == ["0", "1"]
