"""A simulated bus whose namespace reaches its partitions over links, as if their brokers were in another process."""

from __future__ import annotations

from typing import Any

from polybus.cluster.link import Link
from polybus.cluster.owner import Owner
from polybus.cluster.remote_partition import RemotePartitions
from polybus.hosting.local_partition import LocalPartition
from polybus.namespace.entities.description import EntityDescription
from polybus.namespace.entities.entity import Entity
from tests.support.inside import host_of
from tests.support.simulation.small_world import SmallWorld


class Pipe:
    """Two ends of a link in one process; what is written to one comes out of the other in the next turn."""

    def __init__(self, world: SmallWorld) -> None:
        loop = world.world.loop
        self.cut = False
        self.here = Link(loop, lambda data: self._pass(loop, data, True), lambda: None)
        self.there = Link(loop, lambda data: self._pass(loop, data, False), lambda: None)

    def _pass(self, loop: Any, data: bytes, from_here: bool) -> None:
        if not self.cut:
            loop.call_soon(self._arrive, data, from_here)

    def _arrive(self, data: bytes, from_here: bool) -> None:
        if not self.cut:
            (self.there if from_here else self.here).feed(data)

    def break_off(self) -> None:
        self.cut = True
        self.here.lose()
        self.there.lose()


class RemoteWorld(SmallWorld):
    """Its entities' partitions are replaced by remote ones as soon as they are there."""

    def __init__(self, stores: int = 1) -> None:
        super().__init__(stores)
        self.pipe = Pipe(self)
        self.hosts: dict[tuple[int, int], LocalPartition] = {}
        self.owner = Owner(
            self.pipe.there, lambda entity_id, index: self.hosts.get((entity_id, index)), self.world.clock
        )
        self.remotes = RemotePartitions(self.pipe.here)

    def create(self, description: EntityDescription, partitions: int = 1) -> Entity:
        entity = super().create(description, partitions)
        for index, partition in enumerate(entity.partitions):
            self.hosts[entity.id, index] = host_of(partition)
            entity.partitions[index] = self.remotes.add(entity.id, index, entity.settings, partition.store)
        self.run(0.01)
        return entity
