"""A bus on disk without a network, and a folder in which every feature has left its rows."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from polybus.asyncio_bridge import run
from polybus.clock import MovableClock
from polybus.errors import PolybusError
from polybus.message import outcome
from polybus.message.message import Message, build
from polybus.namespace.delivery import entity_verbs
from polybus.namespace.delivery.source import Delivery
from polybus.namespace.delivery.transaction_rules import RuleChange, encoded, plan
from polybus.namespace.entities.description import (
    EntityDescription,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.entity import Entity
from polybus.namespace.entities.names import parse_address
from polybus.namespace.entities.rule import RuleDescription, SqlActionDescription, SqlFilterDescription
from polybus.namespace.entities.tiers import Tier
from polybus.partition import staging, transactions
from polybus.promise import Promise
from tests.support.assembly import assembled_at
from tests.support.inside import broker_of

T = TypeVar("T")
LARGE = b"b" * 40_000
"""Large enough for a body record of its own."""


class Catcher:
    """A receiver that keeps what it is given."""

    deletes = False

    def __init__(self, credit: int) -> None:
        self.credit = credit
        self.deliveries: list[Delivery] = []
        self.full: asyncio.Event = asyncio.Event()

    def deliver(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        if self.credit == 0:
            self.full.set()

    def failed(self, error: PolybusError) -> None:
        raise error

    def lock_lost(self) -> None:
        raise AssertionError("a lock was lost")


class SmallBus:
    """Two stores and a catalogue under one folder, as `polybus serve` lays them out."""

    def __init__(
        self,
        data: Path,
        stores: list[str] | None = None,
        catalogue: str | None = None,
        wall_ms: int = 1_800_000_000_000,
    ) -> None:
        self._urls = stores or [f"rocksdb:{data / 'stores' / str(index)}" for index in range(2)]
        self._catalogue = catalogue or f"rocksdb:{data / 'catalogue'}"
        self.clock = MovableClock(frozen=True, wall_ms=wall_ms)

    async def __aenter__(self) -> SmallBus:
        loop = asyncio.get_running_loop()
        self.bus = assembled_at(loop, self.clock, self._urls, self._catalogue, Tier(partitions=4))
        await run(self.bus.start(["test"]))
        self.namespace = self.bus.namespace("test")
        return self

    async def __aexit__(self, *_: object) -> None:
        await run(self.bus.stop())

    async def create(self, description: EntityDescription) -> Entity:
        return await run(self.namespace.management.create(description))

    async def subscribe(
        self, description: SubscriptionDescription, rules: list[RuleDescription] | None = None
    ) -> None:
        await run(self.namespace.management.create_subscription(description, rules))

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        return await run(work)

    async def send(self, path: str, *messages: Message) -> list[int]:
        done: Promise[list[int]] = Promise()
        self.namespace.send(self.namespace.entity(path), list(messages), done.reply, None)
        return await run(_await(done))

    async def receive(self, path: str, count: int) -> list[Delivery]:
        address = parse_address(path)
        catcher = Catcher(count)
        self.namespace.addressed(address).source(address).want(catcher)
        await asyncio.wait_for(catcher.full.wait(), 10)
        return catcher.deliveries

    async def receive_now(self, path: str, count: int) -> list[Delivery]:
        """What is there at once, however little."""
        address = parse_address(path)
        catcher = Catcher(count)
        source = self.namespace.addressed(address).source(address)
        source.want(catcher)
        await run(_await(source.drained()))
        source.forget(catcher)
        return catcher.deliveries

    async def receive_session(self, path: str, session: str, count: int) -> list[Delivery]:
        address = parse_address(path)
        entity = self.namespace.addressed(address)
        catcher = Catcher(count)
        held = await run(entity.session_source(address).accept(session, "small"))
        held.receiver = catcher
        held.pump()
        await asyncio.wait_for(catcher.full.wait(), 10)
        await run(entity_verbs.set_session_state(self.namespace, held, b"a state"))
        return catcher.deliveries

    async def settle(
        self,
        delivery: Delivery,
        chosen: str,
        reason: str | None = None,
        why: str | None = None,
        properties: dict[str, object] | None = None,
    ) -> None:
        done: Promise[None] = Promise()
        delivery.partition.settle(delivery, self.clock.now(), chosen, reason, why, properties, done.reply, None)
        await run(_await(done))

    async def complete(self, delivery: Delivery) -> None:
        await self.settle(delivery, outcome.COMPLETE)

    async def defer(self, delivery: Delivery) -> None:
        await self.settle(delivery, outcome.DEFER)

    async def dead_letter(self, delivery: Delivery) -> None:
        await self.settle(delivery, outcome.DEAD_LETTER, "bad", "because")

    async def stage(self, path: str, stage_id: bytes, messages: list[Message]) -> None:
        done: Promise[None] = Promise()
        broker = broker_of(self.namespace.entity(path).partitions[0])
        staging.stage(broker, self.clock.now(), stage_id, 0, messages, done.reply, None)
        await run(_await(done))

    def keep_settled(self, path: str) -> None:
        """As if a cursor stood at the beginning of every log of the entity."""
        entity = self.namespace.entity(path)
        entity.settings.keep_topic_log = entity.is_topic
        for partition in entity.partitions:
            broker = broker_of(partition)
            numbers = [0, *entity.settings.subscriptions]
            for number in numbers:
                broker.log(number * 4).floor = 0


async def _await(promise: Promise[T]) -> T:
    return await promise


async def fill(data: Path, stores: list[str] | None = None, catalogue: str | None = None) -> None:
    """Uses every feature that leaves rows behind."""
    async with SmallBus(data, stores, catalogue) as bus:
        await _fill_queue(bus)
        await _fill_sessions(bus)
        await _fill_topic(bus)
        await _fill_chain(bus)
        await _fill_intent(bus)


async def _fill_queue(bus: SmallBus) -> None:
    queue = QueueDescription(
        path="orders",
        enable_partitioning=True,
        requires_duplicate_detection=True,
        default_message_time_to_live_ms=3_600_000,
    )
    entity = await bus.create(queue)
    entity.settings.events = True
    now_ms = bus.clock.now().wall_ms
    for number in range(20):
        await bus.send("orders", build(b"body %d" % number, message_id=f"m{number}"))
    await bus.send("orders", build(b"again", message_id="m1"), build(LARGE, message_id="m1"))
    await bus.send("orders", build(LARGE, message_id="large"))
    await bus.send("orders", build(b"later", message_id="s1", scheduled_ms=now_ms + 60_000))
    await bus.send("orders", build(b"soon", message_id="s2", scheduled_ms=now_ms + 1_000))
    deliveries = await bus.receive("orders", 9)
    for delivery in deliveries[:3]:
        await bus.complete(delivery)
    for delivery in deliveries[3:6]:
        await bus.defer(delivery)
    for delivery in deliveries[6:8]:
        await bus.dead_letter(delivery)
    await bus.settle(deliveries[8], outcome.ABANDON, properties={"tried": True})
    dead = await bus.receive("orders/$DeadLetterQueue", 1)
    await bus.defer(dead[0])
    await bus.stage("orders", bytes(16), [build(b"staged"), build(b"staged too")])


async def _fill_sessions(bus: SmallBus) -> None:
    await bus.create(QueueDescription(path="talks", enable_partitioning=True, requires_session=True))
    for number in range(12):
        await bus.send("talks", build(b"talk %d" % number, session_id=f"s{number % 3}"))
    await bus.send("talks", build(LARGE, session_id="s0"))
    deliveries = await bus.receive_session("talks", "s1", 2)
    await bus.complete(deliveries[0])
    await bus.defer(deliveries[1])


async def _fill_topic(bus: SmallBus) -> None:
    await bus.create(TopicDescription(path="news", enable_partitioning=True))
    red = RuleDescription(
        name="red",
        filter=SqlFilterDescription(expression="color = 'red'"),
        action=SqlActionDescription(expression="SET seen = 1"),
    )
    await bus.subscribe(SubscriptionDescription(topic="news", name="all"))
    await bus.subscribe(SubscriptionDescription(topic="news", name="red"), [red])
    await bus.subscribe(SubscriptionDescription(topic="news", name="kept", requires_session=True))
    await bus.subscribe(SubscriptionDescription(topic="news", name="gone"))
    bus.keep_settled("news")
    for number in range(8):
        color = "red" if number % 2 else "blue"
        message = build(b"n" * 400, session_id="one", application={"color": color})
        await bus.send("news", message)
    for delivery in await bus.receive("news/Subscriptions/all", 3):
        await bus.complete(delivery)
    await bus.defer((await bus.receive("news/Subscriptions/all", 1))[0])
    await bus.dead_letter((await bus.receive("news/Subscriptions/red", 1))[0])
    await bus.run(bus.namespace.management.delete_subscription("news", "gone"))


async def _fill_chain(bus: SmallBus) -> None:
    """Messages on their way to a queue that takes none now, and some that have arrived."""
    await bus.create(QueueDescription(path="last"))
    await bus.create(QueueDescription(path="chain", enable_partitioning=True, forward_to="last"))
    await bus.send("chain", build(b"arrives"))
    await asyncio.wait_for(_arrived(bus), 10)
    await bus.run(bus.namespace.management.update(QueueDescription(path="last", status=EntityStatus.SEND_DISABLED)))
    for number in range(3):
        await bus.send("chain", build(b"waits %d" % number))


async def _fill_intent(bus: SmallBus) -> None:
    """A transaction that has changed rules, where the process ended before the catalogue heard of it."""
    topic = await bus.create(TopicDescription(path="rules"))
    await bus.subscribe(SubscriptionDescription(topic="rules", name="all"))
    work = transactions.Work()
    work.intent = encoded(plan(topic, [RuleChange("all", "$Default", None)], 0))
    done: Promise[None] = Promise()
    transactions.commit(broker_of(topic.partitions[0]), work, bus.clock.now(), None, done.reply, None)
    await run(_await(done))


async def _arrived(bus: SmallBus) -> None:
    entity = bus.namespace.entity("last")
    (delivery,) = await bus.receive("last", 1)
    await bus.settle(delivery, outcome.ABANDON)
    assert entity.counts().result().active == 1
