"""Receives: modes, batches, prefetch, fan-in over partitions, what a closed receiver leaves behind."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusError

from tests.sdk.python.bus import (
    NOTHING,
    WAIT,
    Bus,
    in_background,
    nothing_comes,
    numbered,
    partition_of,
    peek_all,
    receive,
    receive_one,
    take,
    text,
    texts,
)
from tests.sdk.python.table import Table

table = Table("receiving")

DELETE = ServiceBusReceiveMode.RECEIVE_AND_DELETE


@table.behaviour()
def a_locked_message_stays_until_it_is_settled(bus: Bus) -> None:
    queue = bus.queue()
    queue.send("x")
    first, second = queue.receiver(), queue.receiver()
    message = receive_one(first)
    assert message.lock_token is not None
    assert message.locked_until_utc > message.enqueued_time_utc
    assert nothing_comes(second)
    assert queue.runtime().active_message_count == 1
    first.complete_message(message)
    assert peek_all(second) == []


@table.behaviour()
def receive_and_delete_removes_at_once(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*numbered(3))
    receiver = queue.receiver(receive_mode=DELETE)
    assert texts(receive(receiver, 3)) == ["0", "1", "2"]
    assert peek_all(receiver) == []


@table.behaviour()
def a_message_of_receive_and_delete_cannot_be_settled(bus: Bus) -> None:
    queue = bus.queue()
    queue.send("x")
    receiver = queue.receiver(receive_mode=DELETE)
    with pytest.raises(ValueError, match=r"(?i)receive"):
        receiver.complete_message(receive_one(receiver))


@table.behaviour()
def no_more_than_asked_for(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*numbered(5))
    receiver = queue.receiver()
    assert len(receiver.receive_messages(max_message_count=2, max_wait_time=WAIT)) == 2
    assert queue.runtime().active_message_count == 5
    assert sorted(texts(receive(receiver, 3))) == ["2", "3", "4"]


@table.behaviour()
def iterating_ends_when_nothing_comes(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*numbered(4))
    receiver = queue.receiver(max_wait_time=2)
    seen = []
    for message in receiver:
        seen.append(text(message))
        receiver.complete_message(message)
    assert seen == ["0", "1", "2", "3"]


@table.behaviour()
def an_empty_queue_yields_nothing(bus: Bus) -> None:
    assert nothing_comes(bus.queue().receiver())


@table.behaviour()
def a_waiting_receiver_gets_what_is_sent_later(bus: Bus) -> None:
    queue = bus.queue()
    sender, receiver = queue.sender(), queue.receiver()
    waiting = in_background(lambda: receiver.receive_messages(max_wait_time=WAIT))
    sender.send_messages(ServiceBusMessage("late"))
    assert texts(waiting.result()) == ["late"]


@table.behaviour()
def the_only_message_of_an_almost_empty_entity(bus: Bus) -> None:
    """Whichever of the partitions it lies in, the first receive brings it (C3)."""
    queue = bus.queue()
    sender, receiver = queue.sender(), queue.receiver()
    for index in range(18):
        sender.send_messages(ServiceBusMessage(str(index)))
        (message,) = receiver.receive_messages(max_wait_time=WAIT)
        assert text(message) == str(index)
        receiver.complete_message(message)


@table.behaviour()
def one_receiver_gets_the_messages_of_all_partitions(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*[str(index) for index in range(48)])
    assert sorted(texts(take(queue.receiver(), 48)), key=int) == [str(index) for index in range(48)]


@table.behaviour(differs="C1")
def partitions_take_turns(bus: Bus) -> None:
    """A long partition does not starve the others: of 16 messages each, the first 32 come from every partition."""
    queue = bus.queue()
    sender = queue.sender()
    for _ in range(16):
        sender.send_messages([ServiceBusMessage("x") for _ in range(16)])
    received = receive(queue.receiver(receive_mode=DELETE), 32)
    assert len({partition_of(message) for message in received}) == (16 if bus.partitioned else 1)


@table.behaviour()
def order_is_kept_within_a_key(bus: Bus) -> None:
    queue = bus.queue()
    queue.sender().send_messages(numbered(100))
    assert texts(receive(queue.receiver(receive_mode=DELETE), 100)) == [str(index) for index in range(100)]


@table.behaviour()
def prefetched_messages_are_delivered(bus: Bus) -> None:
    queue = bus.queue()
    queue.sender().send_messages(numbered(60))
    receiver = queue.receiver(prefetch_count=100)
    assert texts(take(receiver, 60)) == [str(index) for index in range(60)]
    assert peek_all(receiver) == []


@table.behaviour()
def prefetch_with_receive_and_delete(bus: Bus) -> None:
    queue = bus.queue()
    queue.sender().send_messages(numbered(60))
    receiver = queue.receiver(prefetch_count=20, receive_mode=DELETE)
    assert texts(receive(receiver, 60)) == [str(index) for index in range(60)]


@table.behaviour(since="7.15")
def prefetched_but_unread_messages_are_given_back(bus: Bus) -> None:
    """Closing releases them, and that is no failed delivery."""
    queue = bus.queue()
    queue.sender().send_messages(numbered(10))
    greedy = queue.receiver(prefetch_count=10)
    greedy.complete_message(receive_one(greedy))
    greedy.close()
    again = receive(queue.receiver(), 9)
    assert texts(again) == [str(index) for index in range(1, 10)]
    assert {message.delivery_count for message in again} == {0}


@table.behaviour()
def thousands_of_messages(bus: Bus) -> None:
    queue = bus.queue()
    sender = queue.sender()
    for batch in range(6):
        sender.send_messages([ServiceBusMessage(str(batch * 500 + index)) for index in range(500)])
    received = receive(queue.receiver(receive_mode=DELETE, prefetch_count=400), 3000)
    assert sorted(int(each) for each in texts(received)) == list(range(3000))


@table.behaviour()
def large_messages_in_a_row(bus: Bus) -> None:
    queue = bus.queue()
    bodies = [bytes([index]) * 200_000 for index in range(6)]
    queue.send(*[ServiceBusMessage(body, partition_key="k") for body in bodies])
    assert [b"".join(message.body) for message in take(queue.receiver(), 6)] == bodies


@table.behaviour()
def receivers_share_the_messages(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*[str(index) for index in range(20)])
    first, second = queue.receiver(), queue.receiver()
    seen = texts(take(first, 7)) + texts(take(second, 7)) + texts(take(first, 6))
    assert sorted(seen, key=int) == [str(index) for index in range(20)]


@table.behaviour()
def a_closed_receiver_leaves_its_locks(bus: Bus) -> None:
    queue = bus.queue()
    queue.send("x")
    first = queue.receiver()
    receive_one(first)
    first.close()
    second = queue.receiver()
    assert nothing_comes(second)
    assert len(peek_all(second)) == 1


@table.behaviour()
def the_sub_queue_of_a_queue(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*numbered(2))
    receiver = queue.receiver()
    for message in receive(receiver, 2):
        receiver.dead_letter_message(message, reason="why")
    dead = queue.dead_letters()
    assert texts(take(dead, 2)) == ["0", "1"]
    assert peek_all(dead) == []


@table.behaviour()
def nothing_is_received_from_a_topic(bus: Bus) -> None:
    topic = bus.topic()
    with pytest.raises(ServiceBusError, match=r"(?i)topic"):
        topic.receiver(bus.client_with(retry_total=0))


@table.behaviour()
def a_receiver_with_a_name_of_its_own(bus: Bus) -> None:
    queue = bus.queue()
    sender = queue.sender(client_identifier="sender-1")
    sender.send_messages(ServiceBusMessage("x"))
    receiver = queue.receiver(client_identifier="receiver-1")
    assert receiver.client_identifier == "receiver-1"
    assert texts(take(receiver, 1)) == ["x"]


@table.behaviour()
def a_receiver_outlives_many_waits(bus: Bus) -> None:
    queue = bus.queue()
    receiver = queue.receiver()
    for index in range(3):
        assert receiver.receive_messages(max_wait_time=NOTHING / 4) == []
        queue.send(str(index))
        assert texts(take(receiver, 1)) == [str(index)]
