"""Sends: batches, limits, keys and the partitions they choose."""

from __future__ import annotations

from collections import Counter

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from tests.sdk.python.bus import Bus, numbered, partition_of, peek_all, receive, take, texts
from tests.sdk.python.table import Table

table = Table("sending")


def refused(bus: Bus, queue, message: object, words: str) -> None:
    """The bus refuses the send with these words, and stores nothing."""
    with pytest.raises(ServiceBusError, match=words):
        queue.sender(bus.client_with(retry_total=0)).send_messages(message)
    assert peek_all(queue.receiver()) == []


@table.behaviour()
def a_list_is_one_batch(bus: Bus) -> None:
    queue = bus.queue()
    queue.sender().send_messages(numbered(10))
    assert texts(take(queue.receiver(), 10)) == [str(index) for index in range(10)]


@table.behaviour()
def a_batch_object_with_one_message(bus: Bus) -> None:
    queue = bus.queue()
    sender = queue.sender()
    batch = sender.create_message_batch()
    batch.add_message(ServiceBusMessage("alone", message_id="1", application_properties={"a": 1}))
    sender.send_messages(batch)
    received = take(queue.receiver(), 1)[0]
    assert (str(received), received.message_id, received.application_properties) == ("alone", "1", {b"a": 1})


@table.behaviour()
def an_empty_batch_stores_nothing(bus: Bus) -> None:
    queue = bus.queue()
    sender = queue.sender()
    sender.send_messages(sender.create_message_batch())
    sender.send_messages([])
    assert peek_all(queue.receiver()) == []


@table.behaviour()
def a_batch_of_500(bus: Bus) -> None:
    queue = bus.queue()
    queue.sender().send_messages(numbered(500))
    assert texts(peek_all(queue.receiver(), 250)) == [str(index) for index in range(500)]


@table.behaviour()
def a_batch_keeps_each_messages_properties(bus: Bus) -> None:
    queue = bus.queue()
    messages = [
        ServiceBusMessage("a", message_id="1", subject="s", partition_key="k"),
        ServiceBusMessage(None, message_id="2", application_properties={"n": 2}, partition_key="k"),
        AmqpAnnotatedMessage(value_body=[3], annotations={"x-opt-partition-key": "k"}),
    ]
    queue.sender().send_messages(messages)
    first, second, third = take(queue.receiver(), 3)
    assert (str(first), first.message_id, first.subject) == ("a", "1", "s")
    assert (second.body, second.message_id, second.application_properties) == (None, "2", {b"n": 2})
    assert third.body == [3]


@table.behaviour()
def a_batch_says_when_it_is_full(bus: Bus) -> None:
    queue = bus.queue()
    sender = queue.sender()
    batch = sender.create_message_batch()
    assert batch.max_size_in_bytes == 256 * 1024
    for _ in range(13):
        batch.add_message(ServiceBusMessage(b"x" * 20_000))
    with pytest.raises(MessageSizeExceededError):
        batch.add_message(ServiceBusMessage(b"x" * 20_000))
    sender.send_messages(batch)
    assert len(peek_all(queue.receiver())) == len(batch) == 13


@table.behaviour()
def a_message_of_the_largest_size(bus: Bus) -> None:
    queue = bus.queue()
    queue.sender().send_messages(ServiceBusMessage(b"x" * (255 * 1024)))
    assert len(b"".join(take(queue.receiver(), 1)[0].body)) == 255 * 1024


@table.behaviour()
def a_message_that_is_too_large(bus: Bus) -> None:
    queue = bus.queue()
    with pytest.raises(MessageSizeExceededError):
        queue.sender().send_messages(ServiceBusMessage(b"x" * (300 * 1024)))
    assert peek_all(queue.receiver()) == []


@table.behaviour()
def a_sender_goes_on_after_a_refusal(bus: Bus) -> None:
    queue = bus.queue()
    sender = queue.sender()
    with pytest.raises(MessageSizeExceededError):
        sender.send_messages(ServiceBusMessage(b"x" * (300 * 1024)))
    sender.send_messages(ServiceBusMessage("small"))
    assert texts(take(queue.receiver(), 1)) == ["small"]


@table.behaviour()
def properties_that_are_too_large(bus: Bus) -> None:
    properties = {f"property-{index}": "v" * 10_000 for index in range(7)}
    refused(bus, bus.queue(), ServiceBusMessage("x", application_properties=properties), "propert")


@table.behaviour()
def an_id_that_is_too_long(bus: Bus) -> None:
    message = AmqpAnnotatedMessage(data_body=b"x", properties=AmqpMessageProperties(message_id="i" * 129))
    refused(bus, bus.queue(), message, "(?i)message-?id")


@table.behaviour(differs="B7")
def messages_without_a_key_go_to_every_partition_in_turn(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*[str(index) for index in range(32)])
    partitions = Counter(partition_of(message) for message in peek_all(queue.receiver()))
    assert partitions == (dict.fromkeys(range(16), 2) if bus.partitioned else {0: 32})


@table.behaviour(differs="B7")
def a_message_id_is_no_key_without_duplicate_detection(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*[ServiceBusMessage("x", message_id="same") for _ in range(16)])
    partitions = {partition_of(message) for message in peek_all(queue.receiver())}
    assert partitions == set(range(16 if bus.partitioned else 1))


@table.behaviour(differs="B3")
def a_partition_key_selects_one_partition(bus: Bus) -> None:
    queue = bus.queue()
    keys = [f"key-{index}" for index in range(20)]
    queue.send(*[ServiceBusMessage(key, partition_key=key) for key in keys for _ in range(2)])
    where: dict[str, set[int]] = {key: set() for key in keys}
    for message in peek_all(queue.receiver()):
        assert message.partition_key in where
        where[message.partition_key].add(partition_of(message))
    assert all(len(partitions) == 1 for partitions in where.values())
    spread = len(set.union(*where.values()))
    assert spread > 4 if bus.partitioned else spread == 1


@table.behaviour()
def the_same_key_selects_the_same_partition_in_every_entity(bus: Bus) -> None:
    """The hash is part of what is stored, so that keys meet wherever they are forwarded or sent again (B1)."""
    numbers = set()
    for queue in (bus.queue(), bus.queue()):
        queue.send(ServiceBusMessage("x", partition_key="customer 4711"))
        numbers.add(peek_all(queue.receiver())[0].sequence_number)
    assert len(numbers) == 1


@table.behaviour(differs="B2")
def a_session_id_is_the_key(bus: Bus) -> None:
    queue = bus.queue(requires_session=True)
    for session in ("a", "b", "c", "d", "e", "f"):
        queue.send(*[ServiceBusMessage(session, session_id=session) for _ in range(3)])
    where: dict[str, set[int]] = {}
    for message in peek_all(queue.dead_letters()):
        raise AssertionError(f"{message} was dead-lettered")
    for session in ("a", "b", "c", "d", "e", "f"):
        with queue.unopened(session_id=session) as receiver:
            where[session] = {partition_of(message) for message in receive(receiver, 3)}
    assert all(len(partitions) == 1 for partitions in where.values())
    assert (len(set.union(*where.values())) > 1) == bus.partitioned


@table.behaviour()
def equal_session_id_and_partition_key(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(ServiceBusMessage("x", session_id="k", partition_key="k"))
    queue.send(ServiceBusMessage("x", partition_key="k"))
    first, second = take(queue.receiver(), 2)
    assert (first.session_id, first.partition_key) == ("k", "k")
    assert partition_of(first) == partition_of(second)


@table.behaviour()
def different_session_id_and_partition_key(bus: Bus) -> None:
    """The SDK checks its own messages, so the pair is put together by hand (B4)."""
    message = AmqpAnnotatedMessage(
        data_body=b"x",
        annotations={"x-opt-partition-key": "p"},
        properties=AmqpMessageProperties(group_id="s"),
    )
    refused(bus, bus.queue(), message, "PartitionKey")


@table.behaviour(differs="G2")
def a_batch_with_different_keys(bus: Bus) -> None:
    """One batch goes to one partition, so its messages must agree where there are several.

    docs/protocol/semantics.md#partitioned-batches.
    """
    queue = bus.queue()
    batch = [ServiceBusMessage("x", partition_key="a"), ServiceBusMessage("y", partition_key="b")]
    if bus.partitioned:
        refused(bus, queue, batch, "distinct SessionId or PartitionKey")
    else:
        queue.sender().send_messages(batch)
        assert texts(take(queue.receiver(), 2)) == ["x", "y"]


@table.behaviour(differs="G2")
def a_batch_with_and_without_a_key(bus: Bus) -> None:
    queue = bus.queue()
    batch = [ServiceBusMessage("x", partition_key="a"), ServiceBusMessage("y")]
    if bus.partitioned:
        refused(bus, queue, batch, "distinct SessionId or PartitionKey")
    else:
        queue.sender().send_messages(batch)
        assert texts(take(queue.receiver(), 2)) == ["x", "y"]


@table.behaviour(differs="G2")
def batches_without_keys_take_turns(bus: Bus) -> None:
    queue = bus.queue()
    sender = queue.sender()
    for index in range(4):
        sender.send_messages([ServiceBusMessage(f"{index}") for _ in range(3)])
    where: dict[str, set[int]] = {}
    for message in peek_all(queue.receiver()):
        where.setdefault(str(message), set()).add(partition_of(message))
    assert all(len(partitions) == 1 for partitions in where.values())
    assert len(set.union(*where.values())) == (4 if bus.partitioned else 1)


@table.behaviour()
def a_refused_batch_stores_none_of_its_messages(bus: Bus) -> None:
    message = AmqpAnnotatedMessage(data_body=b"x", properties=AmqpMessageProperties(message_id="i" * 129))
    refused(bus, bus.queue(), [ServiceBusMessage("good"), message], "(?i)message-?id")


@table.behaviour()
def order_within_a_key(bus: Bus) -> None:
    queue = bus.queue()
    sender = queue.sender()
    for index in range(20):
        for key in ("a", "b"):
            sender.send_messages(ServiceBusMessage(f"{key}{index}", partition_key=key))
    received = texts(take(queue.receiver(), 40))
    for key in ("a", "b"):
        assert [each for each in received if each[0] == key] == [f"{key}{index}" for index in range(20)]


@table.behaviour()
def several_senders_at_once(bus: Bus) -> None:
    queue = bus.queue()
    senders = [queue.sender() for _ in range(3)]
    for index in range(10):
        for name, sender in enumerate(senders):
            sender.send_messages(ServiceBusMessage(f"{name}-{index}"))
    received = texts(take(queue.receiver(), 30))
    assert sorted(received) == sorted(f"{name}-{index}" for name in range(3) for index in range(10))


@table.behaviour()
def names_with_slashes_and_any_case(bus: Bus) -> None:
    name = f"Orders/Europe/{bus.new_name()}.v1"
    queue = bus.queue(name)
    bus.opened(bus.client.get_queue_sender(name.lower())).send_messages(ServiceBusMessage("x"))
    assert texts(take(bus.opened(bus.client.get_queue_receiver(name.upper())), 1)) == ["x"]
    assert bus.admin.get_queue(queue.name).name == name


@table.behaviour()
def a_batch_is_counted_message_by_message(bus: Bus) -> None:
    queue = bus.queue()
    sender = queue.sender()
    batch: ServiceBusMessageBatch = sender.create_message_batch(max_size_in_bytes=10_000)
    for message in numbered(7):
        batch.add_message(message)
    sender.send_messages(batch)
    assert queue.runtime().active_message_count == 7
