"""Time to live: of a message, of an entity, with and without dead-lettering."""

from __future__ import annotations

from datetime import timedelta

from azure.servicebus import ServiceBusMessage

from tests.sdk.python.bus import WAIT, Bus, nothing_comes, numbered, peek_all, receive_one, take, texts
from tests.sdk.python.table import Table

table = Table("expiry")

DAY = timedelta(days=1)


@table.behaviour(alone=True)
def an_expired_message_is_gone(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(ServiceBusMessage("old", time_to_live=DAY, partition_key="k"), ServiceBusMessage("new"))
    bus.move_clock(DAY)
    receiver = queue.receiver()
    assert texts(take(receiver, 1)) == ["new"]
    assert peek_all(receiver) == []
    assert queue.runtime().total_message_count == 0


@table.behaviour()
def an_expired_message_is_dead_lettered(bus: Bus) -> None:
    """With the real clock: the receiver of dead letters waits until it comes."""
    queue = bus.queue(dead_lettering_on_message_expiration=True)
    queue.send(ServiceBusMessage("x", time_to_live=timedelta(seconds=1)))
    (dead,) = queue.dead_letters().receive_messages(max_wait_time=WAIT)
    assert dead.dead_letter_reason == "TTLExpiredException"
    assert dead.dead_letter_error_description == "The message expired and was dead lettered."


@table.behaviour(alone=True)
def the_entitys_time_to_live(bus: Bus) -> None:
    queue = bus.queue(default_message_time_to_live=DAY, dead_lettering_on_message_expiration=True)
    queue.send("x")
    bus.move_clock(DAY)
    assert receive_one(queue.dead_letters()).dead_letter_reason == "TTLExpiredException"


@table.behaviour(alone=True)
def the_shorter_time_to_live_counts(bus: Bus) -> None:
    queue = bus.queue(default_message_time_to_live=DAY)
    queue.send(ServiceBusMessage("x", time_to_live=2 * DAY))
    receiver = queue.receiver()
    assert peek_all(receiver) != []
    bus.move_clock(DAY)
    assert peek_all(receiver) == []


@table.behaviour(alone=True)
def a_locked_message_can_be_completed_after_it_expired(bus: Bus) -> None:
    queue = bus.queue(lock_duration=timedelta(minutes=5), dead_lettering_on_message_expiration=True)
    queue.send(ServiceBusMessage("x", time_to_live=timedelta(minutes=1)))
    receiver = queue.receiver()
    message = receive_one(receiver)
    bus.move_clock(timedelta(minutes=2))
    receiver.complete_message(message)
    assert peek_all(receiver) == []
    assert peek_all(queue.dead_letters()) == []


@table.behaviour(alone=True)
def dead_letters_do_not_expire(bus: Bus) -> None:
    queue = bus.queue(default_message_time_to_live=DAY)
    queue.send("x")
    receiver = queue.receiver()
    receiver.dead_letter_message(receive_one(receiver))
    dead = queue.dead_letters()
    assert len(peek_all(dead)) == 1
    bus.move_clock(30 * DAY)
    assert texts(take(dead, 1)) == ["x"]


@table.behaviour(alone=True)
def deferred_messages_expire(bus: Bus) -> None:
    queue = bus.queue(dead_lettering_on_message_expiration=True)
    queue.send(ServiceBusMessage("x", time_to_live=DAY))
    receiver = queue.receiver()
    receiver.defer_message(receive_one(receiver))
    assert len(peek_all(receiver)) == 1
    bus.move_clock(DAY)
    assert receive_one(queue.dead_letters()).dead_letter_reason == "TTLExpiredException"


@table.behaviour(alone=True)
def what_expires_among_others(bus: Bus) -> None:
    queue = bus.queue()
    for index, message in enumerate(numbered(6)):
        message.time_to_live = DAY if index % 2 else None
        queue.send(message)
    bus.move_clock(DAY)
    receiver = queue.receiver()
    assert texts(take(receiver, 3)) == ["0", "2", "4"]
    assert nothing_comes(receiver)
