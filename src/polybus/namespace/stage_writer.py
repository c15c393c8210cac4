"""Rows that a task stages: each goes to the partition that the entity's own rules choose, and waits there.

A stage is one request's worth of messages under one id, on as many partitions as its keys select. It is written in
frames; the next one begins when the last is synced, so that a task is as fast as the stores and no faster. Whatever
fails, fails the stage as a whole: its id is never published, and what was written of it expires.
"""

from __future__ import annotations

from secrets import token_bytes
from typing import TYPE_CHECKING

from polybus.errors import BusError, MessageTooLarge, PartitionUnavailable, PolybusError, QuotaExceeded, ServerBusy
from polybus.message.message import Message
from polybus.namespace.entity import Entity
from polybus.namespace.partition_host import PartitionHost
from polybus.namespace.promise import Promise, resolved
from polybus.namespace.routing import key_of, partition_for
from polybus.namespace.sender import check_open
from polybus.partition import staging

if TYPE_CHECKING:
    from polybus.namespace.bus import Bus


class StageWriter:
    def __init__(self, bus: Bus, entity: Entity) -> None:
        entity.check_sendable()
        self._bus = bus
        self._entity = entity
        self.id = token_bytes(staging.STAGE_BYTES)
        self.rows = 0
        self.bytes = 0
        self._counts: dict[int, int] = {}

    @property
    def partitions(self) -> list[int]:
        """The partitions that hold rows of this stage."""
        return sorted(self._counts)

    async def write(self, messages: list[Message]) -> None:
        """Stages one frame; returns when it is synced on every partition that it touched."""
        self._check_sizes(messages)
        frames: dict[int, list[Message]] = {}
        keyless: list[Message] = []
        for message in messages:
            key = key_of(message, self._entity.detects_duplicates)
            if not self._entity.partitioned:
                frames.setdefault(0, []).append(message)
            elif key is None:
                keyless.append(message)
            else:
                frames.setdefault(partition_for(key, len(self._entity.partitions)), []).append(message)
        written = [self._stage(self._entity.partitions[index], frame) for index, frame in frames.items()]
        if keyless:
            written.append(self._stage_anywhere(keyless))
        for promise in written:
            await promise
        self.rows += len(messages)
        self.bytes += sum(message.size for message in messages)

    def _check_sizes(self, messages: list[Message]) -> None:
        largest = self._entity.max_message_bytes
        for number, message in enumerate(messages, self.rows):
            if message.size > largest:
                raise MessageTooLarge(f"Row {number} is a message of {message.size} bytes; the limit is {largest}.")

    def _stage(self, partition: PartitionHost, messages: list[Message]) -> Promise[None]:
        try:
            check_open(partition)
            done: Promise[None] = Promise()
            first = self._counts.get(partition.index, 0)
            now = self._bus.clock.now()
            staging.stage(partition.require(), now, self.id, first, messages, done.reply, None)
        except PolybusError as error:
            failed: Promise[None] = Promise()
            failed.reject(error)
            return failed
        self._counts[partition.index] = first + len(messages)
        return done

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
        failed: Promise[None] = Promise()
        failed.reject(failure or PartitionUnavailable(f"No partition of '{entity.name}' is available."))
        return failed

    async def drop(self) -> None:
        """Throws away what was written, as far as it can be reached; the rest expires."""
        for index in self.partitions:
            await drop_stage(self._entity.partitions[index], self.id)


def drop_stage(partition: PartitionHost, stage_id: bytes) -> Promise[None]:
    """Throws one partition's share of a stage away; a partition that is gone keeps it until it expires."""
    if partition.broker is None:
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

    partition.run(staging.drop(partition.broker, stage_id, None, None)).then(heard)
    return dropped
