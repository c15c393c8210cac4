"""Settlements over the receiving link and over management, and where the messages are afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
)
from azure.servicebus.exceptions import MessageAlreadySettled, MessageLockLostError, ServiceBusError

from tests.sdk.python.bus import Bus, Entity, nothing_comes, numbered, peek_all, receive, receive_one, take, texts
from tests.sdk.python.table import Table

table = Table("settling")


def one_received(bus: Bus, **options: Any) -> tuple[Entity, ServiceBusReceiver, ServiceBusReceivedMessage]:
    queue = bus.queue(**options)
    queue.send(ServiceBusMessage("x", message_id="1", application_properties={"a": 1}))
    receiver = queue.receiver()
    return queue, receiver, receive_one(receiver)


def one_deferred(bus: Bus) -> tuple[Entity, ServiceBusReceiver, ServiceBusReceivedMessage]:
    """A deferred message came by management, and is settled by management."""
    queue, receiver, message = one_received(bus)
    number = message.sequence_number
    receiver.defer_message(message)
    (deferred,) = receiver.receive_deferred_messages([number])
    return queue, receiver, deferred


# Over the link


@table.behaviour()
def complete(bus: Bus) -> None:
    queue, receiver, message = one_received(bus)
    receiver.complete_message(message)
    assert peek_all(receiver) == []
    assert queue.runtime().total_message_count == 0


@table.behaviour()
def abandon(bus: Bus) -> None:
    _, receiver, message = one_received(bus)
    receiver.abandon_message(message)
    again = receive_one(receiver)
    assert again.sequence_number == message.sequence_number
    assert (message.delivery_count, again.delivery_count) == (0, 1)
    assert again.lock_token != message.lock_token


@table.behaviour()
def defer(bus: Bus) -> None:
    _, receiver, message = one_received(bus)
    receiver.defer_message(message)
    assert nothing_comes(receiver)
    (peeked,) = peek_all(receiver)
    assert peeked.state is ServiceBusMessageState.DEFERRED
    assert peeked.sequence_number == message.sequence_number


@table.behaviour()
def dead_letter_with_a_reason(bus: Bus) -> None:
    queue, receiver, message = one_received(bus)
    receiver.dead_letter_message(message, reason="Broken", error_description="It has no price.")
    assert nothing_comes(receiver)
    dead = receive_one(queue.dead_letters())
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("Broken", "It has no price.")
    assert (dead.message_id, dead.application_properties[b"a"], str(dead)) == ("1", 1, "x")
    assert dead.sequence_number == message.sequence_number


@table.behaviour()
def dead_letter_without_a_reason(bus: Bus) -> None:
    queue, receiver, message = one_received(bus)
    receiver.dead_letter_message(message)
    dead = receive_one(queue.dead_letters())
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == (None, None)


@table.behaviour()
def settling_in_another_order_than_received(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*numbered(4))
    receiver = queue.receiver()
    messages = receive(receiver, 4)
    receiver.complete_message(messages[2])
    receiver.dead_letter_message(messages[0])
    receiver.defer_message(messages[3])
    receiver.abandon_message(messages[1])
    assert texts(receive(receiver, 1)) == ["1"]
    assert texts(peek_all(receiver)) == ["1", "3"]
    assert texts(receive(queue.dead_letters(), 1)) == ["0"]


@table.behaviour()
def settling_twice(bus: Bus) -> None:
    _, receiver, message = one_received(bus)
    receiver.complete_message(message)
    with pytest.raises(MessageAlreadySettled):
        receiver.complete_message(message)


@table.behaviour()
def counts_after_settling(bus: Bus) -> None:
    """Locked and deferred messages count as active."""
    queue = bus.queue()
    queue.send(*numbered(5))
    receiver = queue.receiver()
    messages = receive(receiver, 4)
    receiver.complete_message(messages[0])
    receiver.defer_message(messages[1])
    receiver.dead_letter_message(messages[2])
    receiver.abandon_message(messages[3])
    assert len(peek_all(receiver)) == 3
    runtime = queue.runtime()
    assert runtime.active_message_count == 3
    assert runtime.dead_letter_message_count == 1
    assert runtime.total_message_count == 4


@table.behaviour(since="7.15")
def an_abandoned_message_comes_before_later_ones(bus: Bus) -> None:
    """Older SDKs do not wait until the bus has it back before they ask for more."""
    queue = bus.queue()
    queue.send(*numbered(3))
    receiver = queue.receiver()
    receiver.abandon_message(receive_one(receiver))
    assert texts(take(receiver, 3)) == ["0", "1", "2"]


# Over management


@table.behaviour()
def complete_over_management(bus: Bus) -> None:
    _, receiver, message = one_deferred(bus)
    receiver.complete_message(message)
    assert peek_all(receiver) == []


@table.behaviour()
def abandon_over_management(bus: Bus) -> None:
    """A deferred message stays deferred, and the attempt counts."""
    _, receiver, message = one_deferred(bus)
    receiver.abandon_message(message)
    assert nothing_comes(receiver)
    (again,) = receiver.receive_deferred_messages([message.sequence_number])
    assert again.delivery_count == message.delivery_count + 1


@table.behaviour()
def defer_over_management(bus: Bus) -> None:
    _, receiver, message = one_deferred(bus)
    receiver.defer_message(message)
    (again,) = receiver.receive_deferred_messages([message.sequence_number])
    assert str(again) == "x"


@table.behaviour()
def dead_letter_over_management(bus: Bus) -> None:
    queue, receiver, message = one_deferred(bus)
    receiver.dead_letter_message(message, reason="Broken", error_description="It has no price.")
    dead = receive_one(queue.dead_letters())
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("Broken", "It has no price.")
    assert dead.sequence_number == message.sequence_number


@table.behaviour()
def a_message_of_another_receiver(bus: Bus) -> None:
    """The lock token alone says which message it is; a link that did not deliver it leaves it to management."""
    queue, first, message = one_received(bus)
    number = message.sequence_number
    first.defer_message(message)
    (deferred,) = first.receive_deferred_messages([number])
    second = queue.receiver()
    second.complete_message(deferred)
    assert peek_all(second) == []


# The delivery count


@table.behaviour()
def max_delivery_count(bus: Bus) -> None:
    queue, receiver, message = one_received(bus, max_delivery_count=3)
    receiver.abandon_message(message)
    for count in (1, 2):
        message = receive_one(receiver)
        assert message.delivery_count == count
        receiver.abandon_message(message)
    dead = receive_one(queue.dead_letters())
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert "3 delivery attempts" in dead.dead_letter_error_description
    assert dead.sequence_number == message.sequence_number


@table.behaviour()
def max_delivery_count_of_one(bus: Bus) -> None:
    queue, receiver, message = one_received(bus, max_delivery_count=1)
    receiver.abandon_message(message)
    assert receive_one(queue.dead_letters()).dead_letter_reason == "MaxDeliveryCountExceeded"


@table.behaviour()
def max_delivery_count_counts_deferred_deliveries(bus: Bus) -> None:
    queue, receiver, message = one_received(bus, max_delivery_count=2)
    number = message.sequence_number
    receiver.abandon_message(message)
    receiver.defer_message(receive_one(receiver))
    (deferred,) = receiver.receive_deferred_messages([number])
    receiver.abandon_message(deferred)
    assert receive_one(queue.dead_letters()).dead_letter_reason == "MaxDeliveryCountExceeded"


# In the dead-letter queue


def one_dead(bus: Bus) -> tuple[Entity, ServiceBusReceiver, ServiceBusReceivedMessage]:
    queue, receiver, message = one_received(bus, max_delivery_count=2)
    receiver.dead_letter_message(message, reason="why")
    dead = queue.dead_letters()
    return queue, dead, receive_one(dead)


@table.behaviour()
def abandoning_a_dead_letter_has_no_end(bus: Bus) -> None:
    _, dead, message = one_dead(bus)
    for _ in range(4):
        dead.abandon_message(message)
        message = receive_one(dead)
    assert message.dead_letter_reason == "why"


@table.behaviour()
def lock_tokens_in_delivery_annotations(bus: Bus) -> None:
    """A lock is told twice: by the delivery's tag, and in the annotations. Without a lock there is none."""
    queue = bus.queue()
    queue.send(*numbered(3))
    receiver = queue.receiver()
    locked, kept = receive(receiver, 2)
    assert locked.raw_amqp_message.delivery_annotations == {b"x-opt-lock-token": locked.lock_token}
    assert locked.lock_token != kept.lock_token
    receiver.defer_message(locked)
    (deferred,) = receiver.receive_deferred_messages([locked.sequence_number])
    assert deferred.raw_amqp_message.delivery_annotations == {b"x-opt-lock-token": deferred.lock_token}
    removed = receive_one(queue.receiver(receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE))
    assert removed.raw_amqp_message.delivery_annotations == {}
    peeked = peek_all(receiver)
    assert [message.raw_amqp_message.delivery_annotations for message in peeked] == [{}, {}]


@table.behaviour()
def deferring_a_dead_letter(bus: Bus) -> None:
    _, dead, message = one_dead(bus)
    dead.defer_message(message)
    assert nothing_comes(dead)
    (again,) = dead.receive_deferred_messages([message.sequence_number])
    dead.complete_message(again)
    assert peek_all(dead) == []


@table.behaviour(since="7.15")
def a_dead_letter_cannot_be_dead_lettered(bus: Bus) -> None:
    _, dead, message = one_dead(bus)
    with pytest.raises(ServiceBusError) as caught:
        dead.dead_letter_message(message)
    assert not isinstance(caught.value, MessageLockLostError)
    assert len(peek_all(dead)) == 1


@table.behaviour()
def resending_a_dead_letter(bus: Bus) -> None:
    queue, dead, message = one_dead(bus)
    queue.send(ServiceBusMessage(str(message), message_id=message.message_id))
    dead.complete_message(message)
    again = receive_one(queue.receiver())
    assert (str(again), again.message_id, again.dead_letter_reason) == ("x", "1", None)


@table.behaviour()
def dead_letters_are_forwarded(bus: Bus) -> None:
    target = bus.queue()
    source = bus.queue(forward_dead_lettered_messages_to=target.name)
    source.send("x")
    receiver = source.receiver()
    receiver.dead_letter_message(receive_one(receiver), reason="why")
    message = receive_one(target.receiver())
    assert (message.dead_letter_reason, message.dead_letter_source) == ("why", source.name)
