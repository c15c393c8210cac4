"""Peek: everything can be looked at, nothing is locked."""

from __future__ import annotations

from azure.servicebus import ServiceBusMessage, ServiceBusMessageState

from tests.sdk.python.bus import Bus, numbered, partition_of, peek_all, receive, receive_one, soon, take, texts
from tests.sdk.python.table import Table

table = Table("peeking")


@table.behaviour()
def a_peeked_message_is_not_locked(bus: Bus) -> None:
    queue = bus.queue()
    queue.send("x")
    receiver = queue.receiver()
    (peeked,) = receiver.peek_messages()
    assert (str(peeked), peeked.delivery_count, peeked.locked_until_utc) == ("x", 0, None)
    assert receive_one(queue.receiver()).sequence_number == peeked.sequence_number


@table.behaviour()
def an_empty_entity(bus: Bus) -> None:
    assert bus.queue().receiver().peek_messages(max_message_count=10) == []


@table.behaviour()
def every_state_is_shown(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*numbered(3))
    receiver = queue.receiver()
    receiver.defer_message(receive_one(receiver))
    receive_one(receiver)
    queue.sender().schedule_messages(ServiceBusMessage("later", partition_key="one"), soon(3600))
    shown = {str(message): message.state for message in peek_all(receiver)}
    assert shown == {
        "0": ServiceBusMessageState.DEFERRED,
        "1": ServiceBusMessageState.ACTIVE,
        "2": ServiceBusMessageState.ACTIVE,
        "later": ServiceBusMessageState.SCHEDULED,
    }


@table.behaviour(since="7.14")
def peeking_goes_on_where_it_ended(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*numbered(5))
    receiver = queue.receiver()
    assert texts(receiver.peek_messages(2)) == ["0", "1"]
    assert texts(receiver.peek_messages(2)) == ["2", "3"]
    assert texts(receiver.peek_messages(2)) == ["4"]
    assert receiver.peek_messages(2) == []


@table.behaviour()
def from_a_sequence_number(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*numbered(5))
    receiver = queue.receiver()
    third = receiver.peek_messages(5)[2].sequence_number
    assert texts(receiver.peek_messages(2, sequence_number=third)) == ["2", "3"]


@table.behaviour(differs="C4")
def the_oldest_message(bus: Bus) -> None:
    """On a partitioned entity it is the oldest of one partition."""
    queue = bus.queue()
    queue.send(*[str(index) for index in range(20)])
    (peeked,) = queue.receiver().peek_messages()
    if bus.partitioned:
        assert peeked.sequence_number & 0xFFFF_FFFF_FFFF == 1
    else:
        assert str(peeked) == "0"


@table.behaviour()
def peeking_on_reaches_every_message(bus: Bus) -> None:
    """In all partitions, with pages that do not fit their sizes (C5)."""
    queue = bus.queue()
    queue.send(*[str(index) for index in range(50)])
    for page in (1, 7, 100):
        found = peek_all(queue.receiver(), page)
        assert sorted(texts(found), key=int) == [str(index) for index in range(50)]
        numbers = [message.sequence_number for message in found]
        assert numbers == sorted(set(numbers))


@table.behaviour()
def a_reply_has_at_most_256_kb(bus: Bus) -> None:
    queue = bus.queue()
    for index in range(8):
        queue.send(ServiceBusMessage(bytes([index]) * 60_000, partition_key="one"))
    receiver = queue.receiver()
    first = receiver.peek_messages(8)
    assert 1 <= len(first) < 8
    assert [b"".join(message.body)[0] for message in peek_all(receiver, 8)] == list(range(8))


@table.behaviour()
def delivery_counts_are_shown(bus: Bus) -> None:
    queue = bus.queue()
    queue.send("x")
    receiver = queue.receiver()
    receiver.abandon_message(receive_one(receiver))
    assert [message.delivery_count for message in peek_all(receiver)] == [1]


@table.behaviour()
def dead_letters_can_be_peeked(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*numbered(3))
    receiver = queue.receiver()
    for message in receive(receiver, 3):
        receiver.dead_letter_message(message, reason="why")
    dead = queue.dead_letters()
    peeked = peek_all(dead)
    assert texts(peeked) == ["0", "1", "2"]
    assert {message.dead_letter_reason for message in peeked} == {"why"}


@table.behaviour()
def in_a_subscription(bus: Bus) -> None:
    topic = bus.topic()
    subscription = bus.subscription(topic)
    topic.send(*[str(index) for index in range(20)])
    found = peek_all(subscription.receiver(), 6)
    assert sorted(texts(found), key=int) == [str(index) for index in range(20)]


@table.behaviour(differs="C4")
def sequence_numbers_count_by_partition(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*[str(index) for index in range(32)])
    counted: dict[int, list[int]] = {}
    for message in peek_all(queue.receiver()):
        counted.setdefault(partition_of(message), []).append(message.sequence_number & 0xFFFF_FFFF_FFFF)
    assert counted == ({each: [1, 2] for each in range(16)} if bus.partitioned else {0: list(range(1, 33))})


@table.behaviour()
def received_messages_do_not_come_back(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*numbered(4))
    receiver = queue.receiver()
    take(receiver, 2)
    assert texts(peek_all(receiver)) == ["2", "3"]
