"""What the tests of this folder do with a bus: send, receive, settle, accept sessions, transact, lose stores."""

from __future__ import annotations

from typing import Any

from polybus.hashing import partition_for
from polybus.hosting.partition_client import PartitionClient
from polybus.message.message import build
from polybus.message.outcome import ABANDON, DEAD_LETTER, DEFER
from polybus.namespace.delivery import entity_verbs
from polybus.namespace.delivery.session_source import HeldSession
from polybus.namespace.delivery.source import Delivery
from polybus.namespace.delivery.transaction import Transaction
from polybus.namespace.entities.description import SubscriptionDescription, TopicDescription
from polybus.namespace.entities.entity import Entity
from polybus.namespace.entities.names import parse_address
from polybus.namespace.entities.rule import RuleDescription
from polybus.promise import Promise
from tests.support.sim_store import Fault
from tests.support.simulation.small_world import Inbox, SmallWorld, body_of

PARTITIONS = 16


class CoreBus(SmallWorld):
    # Entities

    def topic(self, path: str = "t", partitions: int = 1, **settings: Any) -> Entity:
        return self.create(TopicDescription(path=path, enable_partitioning=partitions > 1, **settings), partitions)

    def subscribe(self, topic: str, name: str, rules: list[RuleDescription] | None = None, **settings: Any) -> None:
        described = SubscriptionDescription(topic=topic, name=name, **settings)
        self.do(self.namespace.management.create_subscription(described, rules))

    def partition(self, path: str, key: str) -> PartitionClient:
        """The partition that a key selects."""
        partitions = self.namespace.entity(path).partitions
        return partitions[partition_for(key, len(partitions))]

    def key_for(self, path: str, index: int) -> str:
        """A key that selects this partition."""
        count = len(self.namespace.entity(path).partitions)
        return next(key for key in map(str, range(10_000)) if partition_for(key, count) == index)

    # Messages

    def take(self, path: str, count: int = 1) -> list[Delivery]:
        """So many messages, or as many as there are, under locks."""
        box = self.receive(path, count)
        self.world.run_until(lambda: len(box.got) >= count, 2.0, 0.01)
        address = parse_address(path)
        self.namespace.entity(address.entity).source(address).forget(box)
        return box.got

    def delete_on_receipt(self, path: str, count: int) -> list[str]:
        """Receives and deletes; the bodies."""
        box = Inbox(count, deletes=True)
        address = parse_address(path)
        self.namespace.entity(address.entity).source(address).want(box)
        self.world.run_until(lambda: len(box.got) >= count, 2.0, 0.01)
        return box.bodies

    def complete(self, delivery: Delivery) -> None:
        done: Promise[None] = Promise()
        delivery.partition.complete(delivery, self.now(), done.reply, None)
        self.answer(done)

    def abandon(self, delivery: Delivery) -> None:
        done: Promise[None] = Promise()
        delivery.partition.settle(delivery, self.now(), ABANDON, None, None, None, done.reply, None)
        self.answer(done)

    def defer(self, delivery: Delivery) -> None:
        done: Promise[None] = Promise()
        delivery.partition.settle(delivery, self.now(), DEFER, None, None, None, done.reply, None)
        self.answer(done)

    def dead_letter(self, delivery: Delivery, description: str = "so") -> None:
        done: Promise[None] = Promise()
        delivery.partition.settle(delivery, self.now(), DEAD_LETTER, "why", description, None, done.reply, None)
        self.answer(done)

    def deferred(self, path: str, numbers: list[int]) -> list[Delivery]:
        address = parse_address(path)
        entity = self.namespace.entity(address.entity)
        log_id = entity.log_id(address)
        return self.do(entity_verbs.receive_deferred(self.namespace, entity, log_id, numbers, True, None))

    def drain(self, path: str) -> list[str]:
        """Receives and completes everything; the bodies in the order in which they came."""
        found: list[str] = []
        while batch := self.take(path, 50):
            for delivery in batch:
                found.append(body_of(delivery.message))
                self.complete(delivery)
        return found

    # Sessions and transactions

    def accept(self, path: str, session: str | None = None) -> tuple[HeldSession, Inbox]:
        address = parse_address(path)
        source = self.namespace.entity(address.entity).session_source(address)
        box = Inbox(0)
        held = self.do(source.accept(session, "core")) if session else self.answer(source.accept_next("core", 1_000))
        held.receiver = box
        return held, box

    def take_in_session(self, held: HeldSession, box: Inbox, count: int) -> list[str]:
        box.credit += count
        held.pump()
        self.world.run_until(lambda: len(box.got) >= count, 2.0, 0.01)
        return box.bodies

    def transaction(self) -> Transaction:
        return self.namespace.transactions.declare()

    def join(self, transaction: Transaction, path: str, body: str = "x", **fields: Any) -> None:
        transaction.send(self.namespace.entity(path), [build(body.encode(), **fields)])

    def commit(self, transaction: Transaction) -> None:
        self.do(self.namespace.transactions.discharge(transaction, False))

    def roll_back(self, transaction: Transaction) -> None:
        self.do(self.namespace.transactions.discharge(transaction, True))

    # Time and outages

    def now(self) -> Any:
        return self.world.clock.now()

    def lose(self, *stores: int) -> None:
        """These stores are gone and known to be; nothing was under way."""
        for index in stores:
            disk = self.disks[index]
            disk.plan(Fault.FAIL_BEFORE)
            self.take_down(disk)
            host = self.bus.stores[index]
            done: Promise[None] = Promise()
            host.batch.put(b"nudge", b"")
            host.batch.replies.append((done.reply, None, None))
            host.touch()
            self.world.run_until(lambda host=host: not host.available, 2.0, 0.01)  # type: ignore[misc]

    def store_of(self, partition: PartitionClient) -> int:
        return self.bus.stores.index(partition.store)
