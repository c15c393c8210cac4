"""The asynchronous SDK, which has a protocol stack of its own: every operation once, and what only it can do."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusMessageState, ServiceBusReceiveMode
from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from tests.sdk.python.bus import (
    DEAD,
    NOTHING,
    SHORT_LOCK,
    WAIT,
    WAITS_FOR_SETTLEMENT,
    Bus,
    Entity,
    numbered,
    soon,
    text,
    texts,
)
from tests.sdk.python.table import Table

table = Table("asynchronous")


class Aio:
    """Asynchronous clients, senders and receivers, closed together."""

    def __init__(self, bus: Bus, exits: AsyncExitStack) -> None:
        self.bus = bus
        self._exits = exits

    async def client(self, connection_string: str | None = None, **options: Any) -> ServiceBusClient:
        string, options = self.bus.connection(connection_string, **options)
        return await self._exits.enter_async_context(ServiceBusClient.from_connection_string(string, **options))

    async def sender(self, queue: Entity, **options: Any) -> ServiceBusSender:
        client = await self.client(**options)
        return await self._exits.enter_async_context(client.get_queue_sender(queue.name))

    async def receiver(self, queue: Entity, **options: Any) -> ServiceBusReceiver:
        client = await self.client(**({"retry_total": 0} if options.pop("impatient", False) else {}))  # type: ignore[arg-type]
        if queue.subscription is None:
            receiver = client.get_queue_receiver(queue.name, **options)
        else:
            receiver = client.get_subscription_receiver(queue.name, queue.subscription, **options)
        return await self._exits.enter_async_context(receiver)


@asynccontextmanager
async def aio(bus: Bus):
    async with AsyncExitStack() as exits:
        yield Aio(bus, exits)


async def receive(receiver: ServiceBusReceiver, count: int = 1) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        some = await receiver.receive_messages(max_message_count=count - len(found), max_wait_time=WAIT)
        assert some, f"only {len(found)} of {count} messages came"
        found += some
    return found


async def take(receiver: ServiceBusReceiver, count: int) -> list[str]:
    found = await receive(receiver, count)
    for message in found:
        await receiver.complete_message(message)
    return texts(found)


async def peek(bus: Bus, receiver: ServiceBusReceiver) -> list[Any]:
    if not WAITS_FOR_SETTLEMENT:
        await receiver.peek_messages()
        await asyncio.to_thread(bus.commit)
    found: list[Any] = []
    start = 1
    while some := await receiver.peek_messages(max_message_count=50, sequence_number=start):
        found += some
        start = some[-1].sequence_number + 1
    return found


@table.behaviour()
async def sending_and_receiving(bus: Bus) -> None:
    queue = bus.queue()
    async with aio(bus) as sdk:
        sender, receiver = await sdk.sender(queue), await sdk.receiver(queue)
        for message in numbered(5, application_properties={"a": 1}):
            await sender.send_messages(message)
        assert await take(receiver, 5) == ["0", "1", "2", "3", "4"]
        assert await peek(bus, receiver) == []


@table.behaviour()
async def batches(bus: Bus) -> None:
    queue = bus.queue()
    async with aio(bus) as sdk:
        sender = await sdk.sender(queue)
        batch = await sender.create_message_batch()
        for message in numbered(200):
            batch.add_message(message)
        await sender.send_messages(batch)
        assert texts(await peek(bus, await sdk.receiver(queue))) == [str(index) for index in range(200)]


@table.behaviour()
async def iterating(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*numbered(4))
    async with aio(bus) as sdk:
        receiver = await sdk.receiver(queue, max_wait_time=2)
        seen = []
        async for message in receiver:
            seen.append(text(message))
            await receiver.complete_message(message)
        assert seen == ["0", "1", "2", "3"]


@table.behaviour()
async def receiving_and_deleting_with_prefetch(bus: Bus) -> None:
    queue = bus.queue()
    queue.sender().send_messages(numbered(300))
    async with aio(bus) as sdk:
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        receiver = await sdk.receiver(queue, receive_mode=mode, prefetch_count=50)
        assert texts(await receive(receiver, 300)) == [str(index) for index in range(300)]


@table.behaviour()
async def large_messages(bus: Bus) -> None:
    queue = bus.queue()
    body = bytes(range(256)) * 900
    async with aio(bus) as sdk:
        sender, receiver = await sdk.sender(queue), await sdk.receiver(queue)
        await sender.send_messages(ServiceBusMessage(body))
        (message,) = await receive(receiver)
        assert b"".join(message.body) == body
        with pytest.raises(MessageSizeExceededError):
            await sender.send_messages(ServiceBusMessage(body * 2))


@table.behaviour()
async def every_settlement(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*numbered(4))
    async with aio(bus) as sdk:
        receiver = await sdk.receiver(queue)
        messages = await receive(receiver, 4)
        await receiver.complete_message(messages[0])
        await receiver.abandon_message(messages[1])
        await receiver.defer_message(messages[2])
        await receiver.dead_letter_message(messages[3], reason="why", error_description="because")
        (again,) = await receive(receiver)
        assert (text(again), again.delivery_count) == ("1", 1)
        assert [message.state for message in await peek(bus, receiver)] == [
            ServiceBusMessageState.ACTIVE,
            ServiceBusMessageState.DEFERRED,
        ]
        (dead,) = await receive(await sdk.receiver(queue, sub_queue=DEAD))
        assert (text(dead), dead.dead_letter_reason, dead.dead_letter_error_description) == ("3", "why", "because")


@table.behaviour()
async def every_settlement_over_management(bus: Bus) -> None:
    queue = bus.queue()
    queue.send(*numbered(4))
    async with aio(bus) as sdk:
        receiver = await sdk.receiver(queue)
        numbers = []
        for message in await receive(receiver, 4):
            await receiver.defer_message(message)
            numbers.append(message.sequence_number)
        messages = await receiver.receive_deferred_messages(numbers)
        await receiver.complete_message(messages[0])
        await receiver.abandon_message(messages[1])
        await receiver.defer_message(messages[2])
        await receiver.dead_letter_message(messages[3], reason="why")
        assert texts(await peek(bus, receiver)) == ["1", "2"]
        (dead,) = await receive(await sdk.receiver(queue, sub_queue=DEAD))
        assert dead.dead_letter_reason == "why"


@table.behaviour()
async def scheduling_and_cancelling(bus: Bus) -> None:
    queue = bus.queue()
    async with aio(bus) as sdk:
        sender = await sdk.sender(queue, retry_total=0)
        numbers = await sender.schedule_messages(numbered(3), soon(3600))
        await sender.cancel_scheduled_messages(numbers[1])
        assert texts(await peek(bus, await sdk.receiver(queue))) == ["0", "2"]
        with pytest.raises(MessageNotFoundError):
            await sender.cancel_scheduled_messages(numbers[1])


@table.behaviour()
async def locks(bus: Bus) -> None:
    queue = bus.queue(lock_duration=timedelta(minutes=1))
    queue.send("x")
    async with aio(bus) as sdk:
        receiver = await sdk.receiver(queue)
        (message,) = await receive(receiver)
        before = message.locked_until_utc
        assert await receiver.renew_message_lock(message) >= before
        await receiver.complete_message(message)


@table.behaviour(since="7.15", alone=True)
async def a_lost_lock(bus: Bus) -> None:
    queue = bus.queue(lock_duration=timedelta(minutes=1))
    queue.send("x")
    async with aio(bus) as sdk:
        receiver = await sdk.receiver(queue)
        (message,) = await receive(receiver)
        await asyncio.to_thread(bus.move_clock, timedelta(seconds=61))
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(message)
        (again,) = await receive(receiver)
        assert again.delivery_count == 1


@table.behaviour()
async def the_renewer(bus: Bus) -> None:
    queue = bus.queue(lock_duration=SHORT_LOCK)
    queue.send("x")
    async with aio(bus) as sdk, AutoLockRenewer() as renewer:
        receiver = await sdk.receiver(queue)
        (message,) = await receive(receiver)
        renewer.register(receiver, message, max_lock_renewal_duration=60)
        other = await sdk.receiver(queue)
        assert await other.receive_messages(max_wait_time=8) == []
        await receiver.complete_message(message)


@table.behaviour()
async def a_session(bus: Bus) -> None:
    queue = bus.queue(requires_session=True)
    queue.send(*numbered(3, session_id="s"))
    async with aio(bus) as sdk:
        receiver = await sdk.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=WAIT)
        assert receiver.session.session_id == "s"
        await receiver.session.set_state(b"halfway")
        assert await receiver.session.get_state() == b"halfway"
        before = receiver.session.locked_until_utc
        assert await receiver.session.renew_lock() >= before
        assert await take(receiver, 3) == ["0", "1", "2"]
        with pytest.raises(SessionCannotBeLockedError):
            await sdk.receiver(queue, session_id="s", impatient=True)


@table.behaviour()
async def no_session(bus: Bus) -> None:
    queue = bus.queue(requires_session=True)
    async with aio(bus) as sdk:
        with pytest.raises(OperationTimeoutError):
            await sdk.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1, impatient=True)


@table.behaviour(alone=True)
async def a_lost_session(bus: Bus) -> None:
    queue = bus.queue(requires_session=True, lock_duration=timedelta(minutes=1))
    queue.send(*numbered(2, session_id="s"))
    async with aio(bus) as sdk:
        receiver = await sdk.receiver(queue, session_id="s")
        await receive(receiver)
        await asyncio.to_thread(bus.move_clock, timedelta(seconds=61))
        with pytest.raises(SessionLockLostError):
            await receiver.receive_messages(max_wait_time=WAIT)


@table.behaviour()
async def sessions_side_by_side(bus: Bus) -> None:
    """One task for each session, as applications process them."""
    queue = bus.queue(requires_session=True)
    names = [f"session-{index}" for index in range(6)]
    for name in names:
        queue.send(*numbered(5, session_id=name))

    async with aio(bus) as sdk:

        async def work() -> str:
            receiver = await sdk.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=WAIT)
            assert await take(receiver, 5) == ["0", "1", "2", "3", "4"]
            return receiver.session.session_id

        assert sorted(await asyncio.gather(*[work() for _ in names])) == names


@table.behaviour(since="7.15")
async def listing_sessions(bus: Bus) -> None:
    queue = bus.queue(requires_session=True)
    expected = [f"{index:03}" for index in range(120)]
    queue.send(*[ServiceBusMessage("x", session_id=name) for name in expected])
    async with aio(bus) as sdk:
        client = await sdk.client()
        assert sorted([session async for session in client.list_queue_sessions(queue.name)]) == expected


@table.behaviour()
async def a_subscription(bus: Bus) -> None:
    topic = bus.topic()
    subscription = bus.subscription(topic)
    async with aio(bus) as sdk:
        sender = await sdk.sender(topic)
        await sender.send_messages(numbered(3))
        assert await take(await sdk.receiver(subscription), 3) == ["0", "1", "2"]


@table.behaviour()
async def senders_and_receivers_at_once(bus: Bus) -> None:
    queue = bus.queue()
    async with aio(bus) as sdk:
        senders = await asyncio.gather(*[sdk.sender(queue) for _ in range(3)])
        receivers = await asyncio.gather(*[sdk.receiver(queue, prefetch_count=5) for _ in range(3)])

        async def send(name: int, sender: ServiceBusSender) -> None:
            for index in range(20):
                await sender.send_messages(ServiceBusMessage(f"{name}-{index}"))

        received: list[str] = []

        async def work(receiver: ServiceBusReceiver) -> None:
            while len(received) < 60:
                for message in await receiver.receive_messages(max_message_count=5, max_wait_time=NOTHING):
                    await receiver.complete_message(message)
                    received.append(text(message))

        await asyncio.gather(*[send(*each) for each in enumerate(senders)], *[work(each) for each in receivers])
        assert sorted(received) == sorted(f"{name}-{index}" for name in range(3) for index in range(20))


@table.behaviour()
async def a_receive_that_is_cancelled_loses_nothing(bus: Bus) -> None:
    queue = bus.queue()
    async with aio(bus) as sdk:
        sender, receiver = await sdk.sender(queue), await sdk.receiver(queue)
        waiting = asyncio.create_task(receiver.receive_messages(max_wait_time=WAIT))
        await sender.send_messages(ServiceBusMessage("first"))
        assert texts(await waiting) == ["first"]
        waiting = asyncio.create_task(receiver.receive_messages(max_wait_time=WAIT))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await receiver.close()
        await sender.send_messages(ServiceBusMessage("second"))
        (message,) = await receive(await sdk.receiver(queue))
        assert (text(message), message.delivery_count) == ("second", 0)


@table.behaviour()
async def errors(bus: Bus) -> None:
    queue = bus.queue()
    async with aio(bus) as sdk:
        with pytest.raises(MessagingEntityNotFoundError):
            await sdk.receiver(Entity(bus, "no-such-entity"), impatient=True)
        client = await sdk.client(bus.connection_string(key="wrong"), retry_total=0)
        with pytest.raises(ServiceBusAuthenticationError):
            async with client.get_queue_receiver(queue.name):
                pass


@table.behaviour(differs="A5", since="7.14")
async def administration(bus: Bus) -> None:
    name = bus.new_name()
    options = {"connection_verify": str(bus.server.authority)}
    string = bus.server.admin_connection_string
    async with ServiceBusAdministrationClient.from_connection_string(string, **options) as admin:
        await admin.create_queue(name, enable_partitioning=bus.partitioned, max_delivery_count=3)
        queue = await admin.get_queue(name)
        assert (queue.enable_partitioning, queue.max_delivery_count) == (bus.partitioned, 3)
        assert name in [each.name async for each in admin.list_queues()]
        assert (await admin.get_queue_runtime_properties(name)).total_message_count == 0
        await admin.delete_queue(name)
