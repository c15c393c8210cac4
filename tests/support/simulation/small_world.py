"""A simulated bus without clients, for tests that bring about one situation by hand.

Time is virtual and stores fail when they are told to. With a folder the stores are real ones of RocksDB in it.
"""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from polybus.errors import PartitionUnavailable
from polybus.message.message import Message, build
from polybus.namespace.bus import Bus
from polybus.namespace.delivery import entity_verbs
from polybus.namespace.delivery.source import Delivery
from polybus.namespace.entities.description import EntityDescription, QueueDescription
from polybus.namespace.entities.entity import Entity
from polybus.namespace.entities.names import parse_address
from polybus.namespace.entities.tiers import Tier
from polybus.namespace.namespace import Namespace
from polybus.promise import Promise, spawn
from polybus.store.base import Store
from polybus.store.open import open_store
from tests.support.sim_loop import SimLoop
from tests.support.sim_store import SimFaults
from tests.support.simulation.world import Disk, World

T = TypeVar("T")

QUICK = SimFaults(commit_ms=(1.0, 1.0), read_ms=(0.1, 0.1))


class RocksDisk(Disk):
    """A real store in a folder of its own, driven in virtual time."""

    def __init__(self, loop: SimLoop, name: str, folder: Path) -> None:
        super().__init__(loop, name, Random(name))
        self._url = f"rocksdb:{folder / name}"

    def _reopened(self) -> Store:
        self._store.close()
        return open_store(self._url)


class SmallWorld:
    def __init__(self, stores: int = 2, folder: Path | None = None) -> None:
        self.world = World(7, stores)
        if folder is not None:
            loop = self.world.loop
            self.world.disks = [RocksDisk(loop, str(index), folder) for index in range(stores)]
            self.world.catalogue = RocksDisk(loop, "catalogue", folder)
        for disk in (*self.world.disks, self.world.catalogue):
            disk.faults = QUICK
            disk.embedded = folder is not None
        self.do(self.world.start())

    @property
    def bus(self) -> Bus:
        bus = self.world.bus
        assert bus is not None, "the bus is up"
        return bus

    @property
    def namespace(self) -> Namespace:
        return self.bus.namespace("sim")

    @property
    def disks(self) -> list[Disk]:
        return self.world.disks

    # Running

    def do(self, work: Coroutine[Any, Any, T], seconds: float = 30.0) -> T:
        """Runs a coroutine to its end."""
        return self.answer(spawn(work), seconds)

    def answer(self, promise: Promise[T], seconds: float = 30.0) -> T:
        assert self.world.run_until(lambda: promise.settled, seconds, 0.01), "it does not end"
        return promise.result()

    def run(self, seconds: float) -> None:
        self.world.run_for(seconds)

    def restart(self) -> None:
        self.world.die()
        self.do(self.world.start())

    def close(self) -> None:
        self.do(self.bus.stop())

    def set_faults(self, index: int, **faults: Any) -> None:
        disk = self.disks[index]
        disk.faults = SimFaults(**{"commit_ms": (1.0, 1.0), "read_ms": (0.1, 0.1), **faults})
        disk.apply()

    def take_down(self, disk: Disk) -> None:
        disk.down = True
        disk.apply()

    def heal(self) -> None:
        for disk in (*self.world.disks, self.world.catalogue):
            disk.heal()
            disk.faults = QUICK
            disk.apply()

    # Entities and messages

    def queue(self, path: str = "q", partitions: int = 1, **settings: Any) -> Entity:
        return self.create(QueueDescription(path=path, enable_partitioning=partitions > 1, **settings), partitions)

    def create(self, description: EntityDescription, partitions: int = 1) -> Entity:
        self.bus.tier = Tier(partitions=partitions)
        return self.do(self.namespace.management.create(description))

    def send(self, path: str, *messages: Message) -> Promise[list[int]]:
        promise: Promise[list[int]] = Promise()
        self.namespace.send(self.namespace.entity(path), list(messages), promise.reply, None)
        return promise

    def sent(self, path: str, *bodies: str, **fields: Any) -> list[int]:
        """Sends and waits for the answer."""
        return self.answer(self.send(path, *(build(body.encode(), **fields) for body in bodies)))

    def bodies(self, path: str) -> list[str]:
        """The bodies of everything that a peek shows, in order of number."""
        return [body_of(message) for message, _ in self.peeked(path)]

    def peeked(self, path: str, count: int = 100) -> list[tuple[Message, int]]:
        address = parse_address(path)
        found: list[tuple[Message, int]] = []
        following = 1
        while True:
            entity = self.namespace.entity(address.entity)
            work = entity_verbs.peek(self.namespace, entity, entity.log_id(address), following, count)
            try:
                page = self.do(work)
            except PartitionUnavailable:
                return found  # the rest lies in a store that is away
            if not page:
                return found
            found += [(peeked.message, peeked.marks.sequence) for peeked in page]
            following = found[-1][1] + 1

    def receive(self, path: str, count: int = 1) -> Inbox:
        box = Inbox(count)
        address = parse_address(path)
        self.namespace.entity(address.entity).source(address).want(box)
        return box


class Inbox:
    """A receiver that keeps what it is given."""

    def __init__(self, credit: int, deletes: bool = False) -> None:
        self.credit = credit
        self.deletes = deletes
        self.got: list[Delivery] = []
        self.errors: list[Exception] = []
        self.lost = False

    def deliver(self, delivery: Delivery) -> None:
        self.got.append(delivery)

    def failed(self, error: Exception) -> None:
        self.errors.append(error)

    def lock_lost(self) -> None:
        self.lost = True

    @property
    def bodies(self) -> list[str]:
        return [body_of(delivery.message) for delivery in self.got]


def body_of(message: Message) -> str:
    body = message.body()[0][1]
    assert isinstance(body, bytes)
    return body.decode()
