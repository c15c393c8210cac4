"""Rows that a task stages: each goes to the partition that the entity's own rules choose, and waits there.

A stage is one request's worth of messages under one id, on as many partitions as its keys select. Messages are
gathered for each partition and written in blocks, which sync while the next ones are looked at; there may only be so
many on their way, so that a task is as fast as the stores and no faster. Whatever fails, fails the stage as a whole:
its id is never published, and what was written of it expires.
"""

from __future__ import annotations

from collections import defaultdict, deque
from secrets import token_bytes
from typing import TYPE_CHECKING, Final

from polybus import limits
from polybus.errors import BusError, MessageTooLarge, PartitionUnavailable, PolybusError, QuotaExceeded, ServerBusy
from polybus.hashing import partition_for
from polybus.hosting.partition_client import PartitionClient
from polybus.message.message import Message
from polybus.namespace.delivery.routing import key_of
from polybus.namespace.entities.entity import Entity
from polybus.promise import Promise, rejected, resolved

if TYPE_CHECKING:
    from polybus.namespace.bus import Bus


STAGE_BYTES: Final = 16
"""A stage's id."""
ANYWHERE: Final = -1
"""The partition of messages that may go to any."""


class Gathered:
    """Messages for one partition that are not a block yet."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.bytes = 0


class StageWriter:
    def __init__(self, bus: Bus, entity: Entity) -> None:
        entity.check_sendable()
        self._bus = bus
        self._entity = entity
        self.id = token_bytes(STAGE_BYTES)
        self.rows = 0
        self.bytes = 0
        self._counts: dict[int, int] = {}
        self._places: dict[str, int] = {}
        """Keys to their partitions, as far as this stage has met them."""
        self._gathered: dict[int, Gathered] = {}
        self._unsynced: deque[tuple[Promise[None], int]] = deque()
        """What is on its way to the disks, with its bytes."""
        self._unsynced_bytes = 0

    @property
    def partitions(self) -> list[int]:
        """The partitions that hold rows of this stage."""
        return sorted(self._counts)

    async def write(self, messages: list[Message]) -> None:
        """Stages messages; returns when they are synced on every partition that they touched."""
        await self.add(messages)
        await self.finish()

    async def add(self, messages: list[Message]) -> None:
        """Takes messages in; they are safe after `finish`."""
        self._check_sizes(messages)
        for index, frame in self._by_partition(messages).items():
            if index == ANYWHERE:
                self._wait_for(self._stage_anywhere(frame), sum([message.size for message in frame]))
            else:
                self._gather(index, frame)
        self.rows += len(messages)
        self.bytes += sum([message.size for message in messages])
        await self._sync(limits.STAGE_UNSYNCED_BYTES)

    def _by_partition(self, messages: list[Message]) -> dict[int, list[Message]]:
        detects_duplicates, partitioned = self._entity.detects_duplicates, self._entity.partitioned
        places, found = self._places, defaultdict[int, list[Message]](list)
        for message in messages:
            key = key_of(message, detects_duplicates)
            if not partitioned:
                place = 0
            elif key is None:
                place = ANYWHERE
            else:
                known = places.get(key)
                place = self._place(key) if known is None else known
            found[place].append(message)
        return found

    async def finish(self) -> None:
        """Writes what is gathered; returns when all of the stage is synced."""
        for index in list(self._gathered):
            self._flush(index)
        await self._sync(0)

    def _place(self, key: str) -> int:
        place = self._places[key] = partition_for(key, len(self._entity.partitions))
        return place

    def _gather(self, index: int, messages: list[Message]) -> None:
        gathered = self._gathered.setdefault(index, Gathered())
        gathered.messages += messages
        gathered.bytes += sum([message.size for message in messages])
        if len(gathered.messages) >= limits.STAGE_BLOCK_ROWS or gathered.bytes >= limits.STAGE_BLOCK_BYTES:
            self._flush(index)

    def _flush(self, index: int) -> None:
        gathered = self._gathered.pop(index)
        self._wait_for(self._stage(self._entity.partitions[index], gathered.messages), gathered.bytes)

    def _wait_for(self, written: Promise[None], size: int) -> None:
        self._unsynced.append((written, size))
        self._unsynced_bytes += size

    async def _sync(self, most_bytes: int) -> None:
        """Waits until no more than this is on its way."""
        while self._unsynced and self._unsynced_bytes > most_bytes:
            written, size = self._unsynced[0]
            await written
            self._unsynced.popleft()
            self._unsynced_bytes -= size

    def _check_sizes(self, messages: list[Message]) -> None:
        largest = self._entity.max_message_bytes
        for number, message in enumerate(messages, self.rows):
            if message.size > largest:
                raise MessageTooLarge(f"Row {number} is a message of {message.size} bytes; the limit is {largest}.")

    def _stage(self, partition: PartitionClient, messages: list[Message]) -> Promise[None]:
        first = self._counts.get(partition.index, 0)
        staged = partition.stage(self.id, first, messages)
        if not staged.settled:  # else it was refused at once
            self._counts[partition.index] = first + len(messages)
        return staged

    def _stage_anywhere(self, messages: list[Message]) -> Promise[None]:
        """A frame without keys stays together, on the next partition that can take it (B7, B8)."""
        entity = self._entity
        failure: PolybusError | None = None
        for _ in entity.partitions:
            partition = entity.partitions[entity.turn]
            entity.turn = (entity.turn + 1) % len(entity.partitions)
            promise = self._stage(partition, messages)
            if not promise.settled:
                return promise
            try:
                promise.result()
            except (ServerBusy, QuotaExceeded) as error:
                failure = error
            except BusError:
                return promise
        return rejected(failure or PartitionUnavailable(f"No partition of '{entity.name}' is available."))

    async def drop(self) -> None:
        """Throws away what was written, as far as it can be reached; the rest expires."""
        for written, _ in list(self._unsynced):
            try:
                await written  # what is on its way cannot be dropped
            except PolybusError:
                continue
        for index in self.partitions:
            await drop_stage(self._entity.partitions[index], self.id)


def drop_stage(partition: PartitionClient, stage_id: bytes) -> Promise[None]:
    """Throws one partition's share of a stage away; a partition that is gone keeps it until it expires."""
    if not partition.available:
        return resolved(None)
    dropped: Promise[None] = Promise()

    def heard(promise: Promise[None]) -> None:
        try:
            promise.result()
        except ServerBusy:
            pass  # it expires
        except PolybusError as error:
            dropped.reject(error)
            return
        dropped.resolve(None)

    partition.drop_stage(stage_id).then(heard)
    return dropped
