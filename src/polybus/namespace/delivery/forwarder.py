"""Moves messages from the outboxes of partitions to where they go, exactly once and in order for each pair (E1, E2).

For each (source partition, destination partition) one batch is under way at a time: read from the outbox, written
at the destination, removed from the outbox after the destination's sync. A destination whose store is down is
waited for; one that is gone for good has its messages dead-lettered at the source.
"""

from __future__ import annotations

from typing import Protocol

from polybus.errors import BusError, EntityNotFound, PartitionUnavailable, QuotaExceeded, ServerBusy
from polybus.hosting.partition_client import PartitionClient
from polybus.limits import FORWARD_BATCH, FORWARD_RETRIES, FORWARD_RETRY_MS, STANDARD_MESSAGE_BYTES
from polybus.namespace.entities.entity import Entity
from polybus.partition.data import OutboxMessage
from polybus.promise import Loop, Promise, pause, spawn

FORWARD_BYTES = 4 * STANDARD_MESSAGE_BYTES
"""Bytes that one batch reads from an outbox."""
Pair = tuple[int, int, int, int]
"""Source entity id and partition, destination entity id and partition."""


class Entities(Protocol):
    def entity_by_id(self, entity_id: int) -> Entity | None: ...


class Forwarder:
    def __init__(self, entities: Entities, loop: Loop) -> None:
        self._entities = entities
        self._loop = loop
        self._moving: dict[Pair, bool] = {}
        """Pairs under way, and whether more has come since their outbox was last read."""
        self.forwarded = 0

    def outbox_ready(self, partition: PartitionClient) -> None:
        """Messages have entered an outbox and are safe: they move on."""
        spawn(self.look(partition.entity_id, partition.index)).then(_heard)

    async def look(self, entity_id: int, index: int) -> None:
        """Starts moving for every destination that the outbox names."""
        while True:
            partition = self._partition(entity_id, index)
            if partition is None or not partition.available:
                return  # opening it again looks into its outbox
            try:
                found = await partition.destinations()
            except PartitionUnavailable:
                await pause(self._loop, FORWARD_RETRY_MS)
            else:
                break
        for destination in found:
            pair = (entity_id, index, destination[0], destination[1])
            under_way = pair in self._moving
            self._moving[pair] = True
            if not under_way:
                spawn(self._move_all(pair)).then(_heard)

    def _partition(self, entity_id: int, index: int) -> PartitionClient | None:
        entity = self._entities.entity_by_id(entity_id)
        return None if entity is None else entity.partitions[index]

    async def _move_all(self, pair: Pair) -> None:
        tries = 0
        try:
            while True:
                try:
                    self._moving[pair] = False
                    if not await self._move_some(pair) and not self._moving[pair]:
                        return
                    tries = 0
                except ServerBusy:
                    if self._source_gone(pair):
                        return  # opening it again looks into its outbox
                    await pause(self._loop, FORWARD_RETRY_MS)
                except BusError as error:
                    tries += 1
                    again = tries < FORWARD_RETRIES and not isinstance(error, EntityNotFound)
                    if again or not await self._give_up(pair, error):
                        await pause(self._loop, FORWARD_RETRY_MS)
        finally:
            del self._moving[pair]

    def _source_gone(self, pair: Pair) -> bool:
        source = self._partition(pair[0], pair[1])
        return source is None or not source.available

    async def _move_some(self, pair: Pair) -> bool:
        """One batch from one outbox to one destination; False where nothing is left."""
        source = self._partition(pair[0], pair[1])
        if source is None:
            return False
        destination = (pair[2], pair[3])
        moving = await source.outgoing(destination, FORWARD_BATCH, FORWARD_BYTES)
        if not moving:
            return False
        entity = self._entities.entity_by_id(pair[2])
        if entity is None:
            raise EntityNotFound("The destination of a forwarded message could not be found.")
        entity.check_sendable()
        target = entity.partitions[pair[3]]
        try:
            await target.take_over((pair[0], pair[1]), moving)
        except (EntityNotFound, QuotaExceeded):
            if len(moving) == 1:
                raise
            moving = moving[:1]  # perhaps only one of them is refused: those before it go alone
            await target.take_over((pair[0], pair[1]), moving)
        await _removed(source, destination, moving)
        self.forwarded += len(moving)
        return True

    async def _give_up(self, pair: Pair, error: BusError) -> bool:
        """The destination will not take them: they rest at the source; False where its store failed meanwhile."""
        source = self._partition(pair[0], pair[1])
        if source is None:
            return True
        # Where the entity is there, what was not found is the subscription of the first message.
        one = isinstance(error, EntityNotFound) and self._entities.entity_by_id(pair[2]) is not None
        destination = (pair[2], pair[3])
        try:
            moving = await source.outgoing(destination, 1 if one else FORWARD_BATCH, FORWARD_BYTES)
            await source.refuse_outgoing(destination, moving, error)
        except (PartitionUnavailable, QuotaExceeded):
            return False
        return True


async def _removed(source: PartitionClient, destination: tuple[int, int], moving: list[OutboxMessage]) -> None:
    try:
        await source.remove_outgoing(destination, moving)
    except QuotaExceeded as error:  # the destination has them: giving up now would double them
        raise PartitionUnavailable(error.description) from error


def _heard(promise: Promise[None]) -> None:
    """A store that failed meanwhile is no news here: its partitions look into their outboxes when they return."""
    try:
        promise.result()
    except ServerBusy:
        return
