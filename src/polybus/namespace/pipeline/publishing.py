"""Publishing what was staged: one record in the catalogue is the moment of truth, then every partition follows.

A producer's epochs belong to the query that makes them: publishing the same epoch again does nothing, and a new query
under the producer's name takes it over from the start and fences the old one. Once the record is written nothing can
undo it: each partition moves its share into its log in chunks, in the order of the epochs, whatever crashes or goes
down in between. Only then is the record struck off.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from polybus.errors import EntityNotFound, PolybusError, ProducerFenced, QuotaExceeded, ServerBusy
from polybus.hosting import catalogue as records
from polybus.hosting.catalogue import Changes, Record, decode
from polybus.hosting.partition_client import PartitionClient
from polybus.limits import FORWARD_RETRY_MS, PRODUCER_PAST_QUERIES, STAGE_MS
from polybus.namespace.entities.entity import Entity
from polybus.namespace.pipeline.stage_writer import drop_stage
from polybus.promise import Promise, spawn
from polybus.turns import Turns

if TYPE_CHECKING:
    from polybus.namespace.bus import Bus

CLAIM = "publishing.claim"
NOTHING = -1
"""The last epoch of a query that has published none."""

Place = tuple[int, int]
"""Entity id and partition."""


class Staged:
    """A stage that a task has written: what a driver hands over to have it published."""

    def __init__(self, entity_id: int, stage_id: bytes, partitions: list[int]) -> None:
        self.entity_id = entity_id
        self.stage_id = stage_id
        self.partitions = partitions


class Publication:
    """An epoch that is published and not yet moved by all of its partitions."""

    def __init__(self, key: bytes, record: Record) -> None:
        self.key = key
        self.stages = [
            Staged(stage["entity"], bytes.fromhex(stage["stage"]), stage["partitions"]) for stage in record["stages"]
        ]
        self.left = sum(len(stage.partitions) for stage in self.stages)
        self.visible: Promise[None] = Promise()
        """Settled when all of it can be received."""


class Producer:
    """A producer's name, the query that has it, and how far that one has published."""

    def __init__(self, namespace: str, name: str, query: str, epoch: int, fenced: list[str]) -> None:
        self.namespace = namespace
        self.name = name
        self.query = query
        self.epoch = epoch
        self.fenced = fenced

    @property
    def key(self) -> bytes:
        return records.PRODUCER + self.namespace.encode() + b"\x00" + self.name.encode()

    def record(self) -> Record:
        return {
            "namespace": self.namespace,
            "name": self.name,
            "query": self.query,
            "epoch": self.epoch,
            "fenced": self.fenced,
        }

    def at(self, query: str, epoch: int) -> Producer:
        """The same producer further on, or taken over by another query."""
        fenced = self.fenced
        if query != self.query:
            fenced = [*fenced, self.query][-PRODUCER_PAST_QUERIES:]
        return Producer(self.namespace, self.name, query, epoch, fenced)


class Publishing:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._producers: dict[tuple[str, str], Producer] = {}
        self._turns = Turns()
        self._number = 0
        self._open: dict[bytes, Publication] = {}
        self._published: dict[bytes, int] = {}
        """Stage ids to how many open publications hold them: these may not be dropped."""
        self._queues: dict[Place, deque[tuple[Publication, bytes]]] = {}
        self._working: dict[Place, None] = {}

    async def load(self) -> None:
        """Reads what is known of producers, and what was published and may not be moved yet."""
        await self.reload_producers()
        if not self._bus.leads:
            return  # the one that leads moves them
        for row in await self._bus.catalogue.rows(records.PUBLISHED):
            self._number = int.from_bytes(row[0][-8:], "big")
            self._follow(Publication(row[0], decode(row)))

    async def reload_producers(self) -> None:
        for row in await self._bus.catalogue.rows(records.PRODUCER):
            producer = Producer(**decode(row))
            self._producers[producer.namespace, producer.name] = producer

    # Producers

    def producer(self, namespace: str, name: str) -> Producer | None:
        return self._producers.get((namespace.lower(), name))

    async def claim(self, namespace: str, name: str, query: str) -> None:
        """Makes a query the producer's own, if it is not yet; ProducerFenced where a newer one has taken over."""
        if self._bus.members is not None and not self._bus.leads:
            await self._bus.members.ask_leader(CLAIM, [namespace, name, query])
            return
        await self._turns.take((namespace.lower(), name), self._claim(namespace.lower(), name, query))

    async def _claim(self, namespace: str, name: str, query: str) -> Producer:
        known = self._producers.get((namespace, name))
        if known is not None and known.query == query:
            return known
        if known is not None and query in known.fenced:
            raise ProducerFenced(f"A newer query has taken the producer '{name}' over.")
        fresh = Producer(namespace, name, query, NOTHING, []) if known is None else known.at(query, NOTHING)
        await self._bus.catalogue.write(Changes().put(fresh.key, fresh.record()))
        self._producers[namespace, name] = fresh
        return fresh

    # Publishing

    async def publish(
        self, namespace: str, name: str, query: str, epoch: int, stages: list[Staged]
    ) -> Publication | None:
        """Publishes an epoch; None where it was published before, or there is nothing in it."""
        work = self._publish(namespace.lower(), name, query, epoch, stages)
        return await self._turns.take((namespace.lower(), name), work)

    async def _publish(
        self, namespace: str, name: str, query: str, epoch: int, stages: list[Staged]
    ) -> Publication | None:
        producer = await self._claim(namespace, name, query)
        if epoch <= producer.epoch:
            await self.drop(stages)
            return None
        if not any(stage.partitions for stage in stages):
            return None
        further = producer.at(query, epoch)
        changes = Changes().put(further.key, further.record())
        publication = await self._commit(changes, {"producer": name, "query": query, "epoch": epoch}, stages)
        self._producers[namespace, name] = further
        return publication

    async def publish_plain(self, stages: list[Staged]) -> Publication | None:
        """Publishes stages that belong to no producer. Asking again is harmless: what was moved is gone."""
        if not any(stage.partitions for stage in stages):
            return None
        return await self._commit(Changes(), {}, stages)

    async def _commit(self, changes: Changes, names: Record, stages: list[Staged]) -> Publication:
        """Writes the record that makes stages published, together with what else must be written."""
        self._number += 1
        key = records.PUBLISHED + self._number.to_bytes(8, "big")
        record: Record = {
            **names,
            "stages": [
                {"entity": stage.entity_id, "stage": stage.stage_id.hex(), "partitions": stage.partitions}
                for stage in stages
            ],
        }
        await self._bus.catalogue.write(changes.put(key, record))
        publication = Publication(key, record)
        self._follow(publication)
        return publication

    async def drop(self, stages: list[Staged]) -> None:
        """Throws stages away, except what has been published: a driver that asks twice must not lose its first."""
        for stage in stages:
            entity = self._bus.entities.get(stage.entity_id)
            if entity is None or stage.stage_id in self._published:
                continue
            for index in stage.partitions:
                if index < len(entity.partitions):
                    await drop_stage(entity.partitions[index], stage.stage_id)

    @property
    def pending(self) -> int:
        """Publications that some partition has not moved yet."""
        return len(self._open)

    # Every partition follows

    def _follow(self, publication: Publication) -> None:
        self._open[publication.key] = publication
        for stage in publication.stages:
            self._published[stage.stage_id] = self._published.get(stage.stage_id, 0) + 1
            for index in stage.partitions:
                place = (stage.entity_id, index)
                self._queues.setdefault(place, deque()).append((publication, stage.stage_id))
                self._work(place)

    def partition_changed(self, partition: PartitionClient) -> None:
        """A partition serves again: it goes on with what it has to move."""
        if partition.available:
            self._work((partition.entity_id, partition.index))

    def _work(self, place: Place) -> None:
        if place not in self._working and self._queues.get(place):
            self._working[place] = None
            spawn(self._move_all(place)).then(self._heard)

    async def _move_all(self, place: Place) -> None:
        queue = self._queues[place]
        try:
            while queue:
                publication, stage_id = queue[0]
                if not await self._moved(place, stage_id):
                    return
                queue.popleft()
                await self._ended(publication)
        except (ServerBusy, QuotaExceeded):  # a full disk is waited for like one that is gone
            self._bus.loop.call_later(FORWARD_RETRY_MS / 1000, self._work, place)
        finally:
            del self._working[place]

    async def _moved(self, place: Place, stage_id: bytes) -> bool:
        """Moves a partition's share of a stage; False where the partition cannot be reached."""
        entity = self._bus.entities.get(place[0])
        if entity is None or place[1] >= len(entity.partitions):
            return True  # the entity was deleted, and its stages with it
        partition = entity.partitions[place[1]]
        more = True
        while more:
            if not partition.available:
                return False
            more = await partition.publish_chunk(stage_id)
        return True

    async def _ended(self, publication: Publication) -> None:
        publication.left -= 1
        if publication.left:
            return
        for stage in publication.stages:
            count = self._published.pop(stage.stage_id) - 1
            if count:
                self._published[stage.stage_id] = count
        publication.visible.resolve(None)
        await self._remove_intent(publication)

    async def _remove_intent(self, publication: Publication) -> None:
        """Where the catalogue cannot be written now the record stays: to follow it again moves nothing."""
        try:
            await self._bus.catalogue.write(Changes().delete(publication.key))
        except ServerBusy:
            return
        self._open.pop(publication.key, None)

    def _heard(self, promise: Promise[None]) -> None:
        try:
            promise.result()
        except PolybusError as error:
            self._bus.tell(error)

    # Orphans

    def sweep(self) -> None:
        """Throws away stages that nobody has published for a day, and strikes off what is done."""
        for publication in list(self._open.values()):
            if not publication.left:
                spawn(self._remove_intent(publication)).then(self._heard)
        oldest_ms = self._bus.clock.now().wall_ms - STAGE_MS
        for entity in list(self._bus.entities.values()):
            for partition in entity.partitions:
                if partition.available:
                    spawn(self._sweep(partition, oldest_ms)).then(self._heard)

    async def _sweep(self, partition: PartitionClient, oldest_ms: int) -> None:
        for stage_id in await partition.old_stages(oldest_ms):
            if stage_id not in self._published:
                await drop_stage(partition, stage_id)


def staged_entity(bus: Bus, entity_id: int) -> Entity:
    found = bus.entities.get(entity_id)
    if found is None:
        raise EntityNotFound("The entity that messages were staged for could not be found.")
    return found
