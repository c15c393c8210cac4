"""The bus goes away and comes back, stopped or killed: nothing accepted is lost, and the SDK finds its way back.

Each behaviour has two halves with one `yield` between them: there the bus is restarted, for all of them at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError, SessionLockLostError
from azure.servicebus.management import SqlRuleFilter

from tests.sdk.python.bus import (
    WAIT,
    Bus,
    in_background,
    numbered,
    partition_of,
    peek_all,
    receive,
    receive_one,
    soon,
    take,
    text,
    texts,
)
from tests.sdk.python.table import Table

table = Table("restarts")

LONG = 3600
PATIENT = {"retry_total": 100, "retry_backoff_factor": 0.5, "retry_mode": "fixed"}
"""A restart may take longer than the default of three attempts lasts."""


@table.behaviour()
def messages_are_intact(bus: Bus) -> Iterator[None]:
    queue = bus.queue()
    sizes = (0, 10, 1000, 200_000)
    queue.send(*[ServiceBusMessage(b"x" * size, message_id=str(size), subject="s") for size in sizes])
    queue.sender().send_messages(numbered(50))
    before = [(each.sequence_number, each.message_id, each.enqueued_time_utc) for each in peek_all(queue.receiver())]
    yield
    receiver = queue.receiver()
    found = peek_all(receiver)
    assert [(each.sequence_number, each.message_id, each.enqueued_time_utc) for each in found] == before
    large = {each.message_id: b"".join(each.body) for each in found if each.subject == "s"}
    assert large == {str(size): b"x" * size for size in sizes}
    take(receiver, 54)


@table.behaviour()
def settled_messages_stay_settled(bus: Bus) -> Iterator[None]:
    queue = bus.queue()
    queue.send(*numbered(10))
    receiver = queue.receiver()
    take(receiver, 6)
    assert len(peek_all(receiver)) == 4
    yield
    assert texts(take(queue.receiver(), 4)) == ["6", "7", "8", "9"]


@table.behaviour()
def a_sender_finds_its_way_back(bus: Bus) -> Iterator[None]:
    queue = bus.queue()
    sender = queue.sender(bus.client_with(**PATIENT))  # type: ignore[arg-type]
    sender.send_messages(ServiceBusMessage("before", partition_key="k"))
    yield
    sender.send_messages(ServiceBusMessage("after", partition_key="k"))
    assert texts(take(queue.receiver(), 2)) == ["before", "after"]


@table.behaviour()
def a_receiver_finds_its_way_back(bus: Bus) -> Iterator[None]:
    queue = bus.queue()
    queue.send("before")
    receiver = queue.receiver(bus.client_with(**PATIENT))  # type: ignore[arg-type]
    assert texts(take(receiver, 1)) == ["before"]
    yield
    queue.sender().send_messages(ServiceBusMessage("after"))
    assert texts(take(receiver, 1)) == ["after"]


@table.behaviour()
def a_waiting_receiver_finds_its_way_back(bus: Bus) -> Iterator[None]:
    """It waits all the time, and gets what is sent when the bus is back."""
    queue = bus.queue()
    receiver = queue.receiver(bus.client_with(**PATIENT))  # type: ignore[arg-type]
    waiting = in_background(lambda: receiver.receive_messages(max_wait_time=3 * WAIT))
    yield
    queue.sender().send_messages(ServiceBusMessage("after"))
    assert texts(waiting.result()) == ["after"]


@table.behaviour()
def an_iterating_receiver_finds_its_way_back(bus: Bus) -> Iterator[None]:
    queue = bus.queue()
    queue.send("before")
    receiver = queue.receiver(bus.client_with(**PATIENT))  # type: ignore[arg-type]
    messages = iter(receiver)
    receiver.complete_message(next(messages))
    yield
    queue.sender().send_messages(ServiceBusMessage("after"))
    message = next(messages)
    receiver.complete_message(message)
    assert text(message) == "after"


@table.behaviour()
def an_asynchronous_client_finds_its_way_back(bus: Bus) -> Iterator[None]:
    queue = bus.queue()
    string, options = bus.connection(**PATIENT)  # type: ignore[arg-type]

    async def opened(exits: AsyncExitStack):
        client = await exits.enter_async_context(AsyncClient.from_connection_string(string, **options))
        sender = await exits.enter_async_context(client.get_queue_sender(queue.name))
        receiver = await exits.enter_async_context(client.get_queue_receiver(queue.name))
        await sender.send_messages(ServiceBusMessage("before", partition_key="k"))
        return sender, receiver

    async def go_on(sender, receiver) -> list[str]:
        await sender.send_messages(ServiceBusMessage("after", partition_key="k"))
        found: list[str] = []
        while len(found) < 2:
            for message in await receiver.receive_messages(2, max_wait_time=WAIT):
                await receiver.complete_message(message)
                found.append(text(message))
        return found

    with asyncio.Runner() as runner:
        exits = AsyncExitStack()
        sender, receiver = runner.run(opened(exits))
        yield
        assert runner.run(go_on(sender, receiver)) == ["before", "after"]
        runner.run(exits.aclose())


@table.behaviour()
def what_was_accepted_during_the_restart(bus: Bus) -> Iterator[None]:
    """A sender sends all the time; whatever it was told is accepted is there afterwards."""
    queue = bus.queue()
    sender = queue.sender(bus.client_with(retry_total=0))
    accepted: list[str] = []
    back = threading.Event()

    def work() -> None:
        index, left = 0, 20
        while left:
            index += 1
            left -= back.is_set()
            with contextlib.suppress(ServiceBusError):
                sender.send_messages(ServiceBusMessage(str(index)))
                accepted.append(str(index))

    working = in_background(work)
    yield
    back.set()
    working.result()
    found = texts(peek_all(queue.receiver()))
    assert len(found) == len(set(found))
    assert set(accepted) <= set(found)


@table.behaviour(since="7.15")
def locks_are_lost(bus: Bus) -> Iterator[None]:
    """The message comes again, and the old lock is good for nothing."""
    queue = bus.queue(lock_duration=timedelta(minutes=5))
    queue.send("x")
    receiver = queue.receiver(bus.client_with(**PATIENT))  # type: ignore[arg-type]
    old = receive_one(receiver)
    yield
    new = receive_one(queue.receiver())
    assert new.sequence_number == old.sequence_number
    assert new.lock_token != old.lock_token
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(old)


@table.behaviour()
def delivery_counts_are_kept(bus: Bus) -> Iterator[None]:
    queue = bus.queue(max_delivery_count=3)
    queue.send("x")
    receiver = queue.receiver()
    for _ in range(2):
        receiver.abandon_message(receive_one(receiver))
    peek_all(receiver)
    yield
    receiver = queue.receiver()
    message = receive_one(receiver)
    assert message.delivery_count == 2
    receiver.abandon_message(message)
    assert receive_one(queue.dead_letters()).dead_letter_reason == "MaxDeliveryCountExceeded"


@table.behaviour()
def deferred_messages_are_kept(bus: Bus) -> Iterator[None]:
    queue = bus.queue()
    queue.send(*numbered(3))
    receiver = queue.receiver()
    numbers = []
    for message in receive(receiver, 3):
        receiver.defer_message(message)
        numbers.append(message.sequence_number)
    peek_all(receiver)
    yield
    receiver = queue.receiver()
    assert {message.state for message in peek_all(receiver)} == {ServiceBusMessageState.DEFERRED}
    for message in receiver.receive_deferred_messages(numbers):
        receiver.complete_message(message)
    assert peek_all(receiver) == []


@table.behaviour()
def scheduled_messages_are_kept(bus: Bus) -> Iterator[None]:
    queue = bus.queue()
    sender = queue.sender()
    (cancelled,) = sender.schedule_messages(ServiceBusMessage("never"), soon(LONG))
    (later,) = sender.schedule_messages(ServiceBusMessage("later"), soon(LONG))
    sender.schedule_messages(ServiceBusMessage("during the restart"), soon(1))
    yield
    queue.sender().cancel_scheduled_messages(cancelled)
    receiver = queue.receiver()
    assert texts(take(receiver, 1)) == ["during the restart"]
    (waiting,) = peek_all(receiver)
    assert (waiting.sequence_number, waiting.state) == (later, ServiceBusMessageState.SCHEDULED)


@table.behaviour()
def dead_letters_are_kept(bus: Bus) -> Iterator[None]:
    queue = bus.queue()
    queue.send("x")
    receiver = queue.receiver()
    receiver.dead_letter_message(receive_one(receiver), reason="why", error_description="because")
    assert len(peek_all(queue.dead_letters())) == 1
    yield
    dead = receive_one(queue.dead_letters())
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("why", "because")


@table.behaviour()
def sessions_are_kept(bus: Bus) -> Iterator[None]:
    """Messages and state; the lock is lost, and the receiver is told so."""
    queue = bus.queue(requires_session=True)
    queue.send(*numbered(5, session_id="s"))
    old = queue.receiver(session_id="s")
    take(old, 2)
    old.session.set_state(b"two are done")
    yield
    with pytest.raises(ServiceBusError):
        old.receive_messages(max_wait_time=WAIT)
    with pytest.raises(SessionLockLostError):
        old.session.get_state()
    new = queue.receiver(session_id="s")
    assert new.session.get_state() == b"two are done"
    assert texts(take(new, 3)) == ["2", "3", "4"]


@table.behaviour()
def duplicates_are_remembered(bus: Bus) -> Iterator[None]:
    queue = bus.queue(requires_duplicate_detection=True)
    queue.send(ServiceBusMessage("first", message_id="1"))
    take(queue.receiver(), 1)
    yield
    queue.sender().send_messages(ServiceBusMessage("second", message_id="1"))
    assert peek_all(queue.receiver()) == []


@table.behaviour()
def topics_and_rules_are_kept(bus: Bus) -> Iterator[None]:
    topic = bus.topic()
    everything, some = bus.subscription(topic, "everything"), bus.subscription(topic, "some", max_delivery_count=4)
    bus.admin.delete_rule(topic.name, "some", "$Default")
    bus.admin.create_rule(topic.name, "some", "even", filter=SqlRuleFilter("n % 2 = 0"))
    topic.send(*[ServiceBusMessage(str(n), application_properties={"n": n}, partition_key="k") for n in range(4)])
    yield
    topic.sender().send_messages(ServiceBusMessage("4", application_properties={"n": 4}, partition_key="k"))
    assert texts(take(some.receiver(), 3)) == ["0", "2", "4"]
    assert texts(take(everything.receiver(), 5)) == ["0", "1", "2", "3", "4"]
    assert bus.admin.get_subscription(topic.name, "some").max_delivery_count == 4


@table.behaviour()
def numbers_and_partitions_go_on(bus: Bus) -> Iterator[None]:
    queue = bus.queue()
    queue.send(*numbered(3))
    before = [message.sequence_number for message in take(queue.receiver(), 3)]
    yield
    queue.sender().send_messages(numbered(3))
    after = [message.sequence_number for message in take(queue.receiver(), 3)]
    assert min(after) > max(before)
    assert {partition_of(number) for number in after} == {partition_of(number) for number in before}


@table.behaviour(differs="A5")
def settings_are_kept(bus: Bus) -> Iterator[None]:
    queue = bus.queue(lock_duration=timedelta(seconds=17), max_delivery_count=6, user_metadata="mine")
    yield
    found = bus.admin.get_queue(queue.name)
    assert (found.lock_duration, found.max_delivery_count, found.user_metadata) == (timedelta(seconds=17), 6, "mine")
    assert found.enable_partitioning is bus.partitioned
