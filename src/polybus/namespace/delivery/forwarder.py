"""Moves messages from the outboxes of partitions to where they go, exactly once and in order for each pair (E1, E2).

For each (source partition, destination partition) one batch is under way at a time: read from the outbox, written
at the destination, removed from the outbox after the destination's sync. A destination whose store is down is
waited for; one that is gone for good has its messages dead-lettered at the source.
"""

from __future__ import annotations

from typing import Protocol

from polybus.clock import Clock
from polybus.errors import BusError, EntityNotFound, PartitionUnavailable, PolybusError, QuotaExceeded, ServerBusy
from polybus.hosting.partition_host import PartitionHost, read_rows
from polybus.limits import FORWARD_BATCH, FORWARD_RETRIES, FORWARD_RETRY_MS, STANDARD_MESSAGE_BYTES
from polybus.namespace.delivery.sender import check_open
from polybus.namespace.entities.entity import Entity
from polybus.partition import inbox, moving, transfers
from polybus.partition.broker import Broker
from polybus.partition.log import MAIN, Log
from polybus.partition.output import Output
from polybus.partition.transfers import Transfer
from polybus.promise import Loop, Promise, pause, spawn

Pair = tuple[int, int, int, int]
"""Source entity id and partition, destination entity id and partition."""


class Entities(Protocol):
    def entity_by_id(self, entity_id: int) -> Entity | None: ...


class Forwarder:
    def __init__(self, entities: Entities, loop: Loop, clock: Clock) -> None:
        self._entities = entities
        self._loop = loop
        self._clock = clock
        self._looking: dict[tuple[int, int], Output] = {}
        """Partitions whose outbox is looked into when this output is synced."""
        self._moving: dict[Pair, bool] = {}
        """Pairs under way, and whether more has come since their outbox was last read."""
        self.forwarded = 0

    def outbox_grew(self, broker: Broker) -> None:
        """Messages entered an outbox: they move on when the open output is synced."""
        key = (broker.entity_id, broker.index)
        batch = broker.out()
        if self._looking.get(key) is not batch:  # an earlier output says nothing about what is in this one
            self._looking[key] = batch
            batch.replies.append((self._synced, (key, batch), None))

    def _synced(self, context: object, result: object, error: PolybusError | None) -> None:
        del result
        assert isinstance(context, tuple)
        key, batch = context
        if self._looking.get(key) is batch:
            del self._looking[key]
        if error is None:
            spawn(self.look(key[0], key[1])).then(_heard)

    async def look(self, entity_id: int, index: int) -> None:
        """Starts moving for every destination that the outbox names."""
        while True:
            partition = self._partition(entity_id, index)
            if partition is None or partition.broker is None:
                return  # opening it again looks into its outbox
            try:
                found = await partition.run(transfers.destinations(partition.broker))
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

    def empty(self, partition: PartitionHost) -> None:
        """Puts on their way what lay in the partition's logs before they forwarded."""
        broker = partition.broker
        if broker is not None:
            for log in list(broker.logs.values()):
                if log.kind == MAIN and log.settings.forward_to is not None and log.active:
                    spawn(self._empty(partition, log)).then(_heard)

    async def _empty(self, partition: PartitionHost, log: Log) -> None:
        at, more = b"", True
        while more and partition.broker is not None and partition.broker.logs.get(log.id) is log:
            broker = partition.broker
            try:
                at = await partition.run(moving.send_on(broker, log, self._clock.now(), at))
            except PartitionUnavailable:
                await pause(self._loop, FORWARD_RETRY_MS)
                continue
            more = bool(at)
            done: Promise[None] = Promise()
            broker.out().replies.append((done.reply, None, None))
            await done

    def _partition(self, entity_id: int, index: int) -> PartitionHost | None:
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
        return source is None or source.broker is None

    async def _move_some(self, pair: Pair) -> bool:
        """One batch from one outbox to one destination; False where nothing is left."""
        source = self._partition(pair[0], pair[1])
        if source is None:
            return False
        moving = await self._pending(source, pair, FORWARD_BATCH)
        if not moving:
            return False
        entity = self._entities.entity_by_id(pair[2])
        if entity is None:
            raise EntityNotFound("The destination of a forwarded message could not be found.")
        entity.check_sendable()
        target = entity.partitions[pair[3]]
        try:
            await self._take_over(target, (pair[0], pair[1]), moving)
        except (EntityNotFound, QuotaExceeded):
            if len(moving) == 1:
                raise
            moving = moving[:1]  # perhaps only one of them is refused: those before it go alone
            await self._take_over(target, (pair[0], pair[1]), moving)
        await _removed(source, pair, moving)
        self.forwarded += len(moving)
        return True

    async def _pending(self, source: PartitionHost, pair: Pair, limit: int) -> list[Transfer]:
        steps = transfers.pending(source.require(), pair[2], pair[3], 0, limit, 4 * STANDARD_MESSAGE_BYTES)
        return await source.run(steps)

    async def _take_over(self, target: PartitionHost, source: tuple[int, int], moving: list[Transfer]) -> None:
        try:
            check_open(target)
        except (ServerBusy, QuotaExceeded) as error:
            raise PartitionUnavailable(
                error.description
            ) from error  # a full disk is waited for like one that is gone
        broker = target.require()
        keys = inbox.rows_needed(broker, moving)
        rows = await target.run(read_rows(keys)) if keys else None
        done: Promise[None] = Promise()
        inbox.take_over(target.require(), self._clock.now(), source, moving, rows, done.reply, None)
        try:
            await done
        except QuotaExceeded as error:
            raise PartitionUnavailable(error.description) from error

    async def _give_up(self, pair: Pair, error: BusError) -> bool:
        """The destination will not take them: they rest at the source; False where its store failed meanwhile."""
        source = self._partition(pair[0], pair[1])
        if source is None:
            return True
        # Where the entity is there, what was not found is the subscription of the first message.
        one = isinstance(error, EntityNotFound) and self._entities.entity_by_id(pair[2]) is not None
        try:
            moving = await self._pending(source, pair, 1 if one else FORWARD_BATCH)
            broker = source.require()
            done: Promise[None] = Promise()
            transfers.refused(broker, self._clock.now(), pair[2], pair[3], moving, error)
            broker.out().replies.append((done.reply, None, None))
            await done
        except (PartitionUnavailable, QuotaExceeded):
            return False
        return True


async def _removed(source: PartitionHost, pair: Pair, moving: list[Transfer]) -> None:
    broker = source.require()
    done: Promise[None] = Promise()
    transfers.sent_on(broker, pair[2], pair[3], moving)
    broker.out().replies.append((done.reply, None, None))
    try:
        await done
    except QuotaExceeded as error:  # the destination has them: giving up now would double them
        raise PartitionUnavailable(error.description) from error


def _heard(promise: Promise[None]) -> None:
    """A store that failed meanwhile is no news here: its partitions look into their outboxes when they return."""
    try:
        promise.result()
    except ServerBusy:
        return
