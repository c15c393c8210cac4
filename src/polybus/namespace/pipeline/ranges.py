"""Logs as pipelines read them: by position, partition by partition, without disturbing anybody.

A range is read in steps, each of which gives some messages and says up to where the answer is complete. Positions
are dense, so what is not there is known by its number: it was settled when no cursor kept it, or a lagging cursor
lost it.
"""

from __future__ import annotations

from polybus.errors import ArgumentOutOfRange, PartitionUnavailable
from polybus.hosting.partition_client import PartitionClient
from polybus.limits import RANGE_GAPS
from polybus.message.columns import Row
from polybus.message.message import Message
from polybus.message.overlay import overlay_from_bytes
from polybus.message.rendering import STATE_ACTIVE, Marks
from polybus.namespace.entities.entity import Entity
from polybus.partition.data import LogEvent, LogRange, Records
from polybus.partition.kinds import DEAD_LETTER, KINDS, MAIN, TRANSFER_DEAD_LETTER
from polybus.partition.records import Stored

_SUFFIXES = {MAIN: "", DEAD_LETTER: "/$DeadLetterQueue", TRANSFER_DEAD_LETTER: "/$Transfer/$DeadLetterQueue"}
SETTLED = "settled"
ACTIVE = "active"


class PartitionLog:
    """One partition's share of a log: from where to where it can be read."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.problem: PartitionUnavailable | None = None
        self.earliest = 1
        """The oldest position that can still be read; one past the end where there is none."""
        self.stable_end = 0
        self.at_time: int | None = None
        """The first position at or after the time that was asked for."""
        self.messages = 0
        self.bytes = 0
        """What can be read now, kept messages included; a pipeline makes an average size of it."""

    def read(self, found: LogRange) -> None:
        self.earliest = found.earliest
        self.stable_end = found.stable_end
        self.messages = found.messages
        self.bytes = found.bytes
        self.at_time = found.at_time

    def require(self) -> None:
        if self.problem is not None:
            raise self.problem


async def partition_logs(entity: Entity, log_id: int, time_ms: int | None = None) -> list[PartitionLog]:
    """Where the log begins and ends in each partition; what cannot be reached has a problem instead."""
    found = []
    for partition in entity.partitions:
        log = PartitionLog(partition.index)
        try:
            log.read(await partition.log_range(log_id, time_ms))
        except PartitionUnavailable as error:
            log.problem = error
        found.append(log)
    return found


async def log_ends(entity: Entity, log_id: int) -> list[PartitionLog]:
    """How far the log goes in each partition. Memory knows it; where it begins only the stores know."""
    found = []
    for partition in entity.partitions:
        end = PartitionLog(partition.index)
        try:
            end.read(await partition.log_end(log_id))
        except PartitionUnavailable as error:
            end.problem = error
        found.append(end)
    return found


class RangeReader:
    """Reads one range of one partition from its first position to its last."""

    def __init__(self, partition: PartitionClient, log_id: int, first: int, last: int) -> None:
        self.index = partition.index
        self._partition = partition
        self._log_id = log_id
        self._next = max(first, 1)
        self._after = b""
        self.last = last
        self.missing: list[list[int]] = []
        """Ranges of positions that are gone, both ends included; the last one swallows more where they are many."""

    async def begin(self) -> RangeReader:
        """Finds out how far the log goes; what comes after that is not read."""
        end = await self._partition.log_end(self._log_id)
        self.last = min(self.last, end.stable_end)
        return self

    @property
    def complete_to(self) -> int:
        return self._next - 1

    @property
    def done(self) -> bool:
        return self._next > self.last

    async def read_records(self, limit: int, max_bytes: int) -> Records:
        """The next messages as they are stored; none where the step met only gaps."""
        found = await self._partition.read_records(self._log_id, self._next, self.last, limit, max_bytes, self._after)
        self._after = found.after
        self._count(found)
        return found

    async def read(self, limit: int, max_bytes: int) -> list[Row]:
        """The next messages taken apart, each with its state."""
        found = await self.read_records(limit, max_bytes)
        index = self._partition.index
        return [
            _row(index, Stored(value), SETTLED if settled else ACTIVE)
            for value, settled in zip(found.values, found.settled, strict=True)
        ]

    def _count(self, found: Records) -> None:
        if found.values and found.last_position - self._next + 1 != len(found.values):
            for position in found.positions:
                self._miss(self._next, position - 1)
                self._next = position + 1
        elif found.values:
            self._next = found.last_position + 1
        self._miss(self._next, found.complete_to)
        self._next = max(self._next, found.complete_to + 1)

    def _miss(self, first: int, last: int) -> None:
        if first > last:
            return
        if self.missing and (self.missing[-1][1] == first - 1 or len(self.missing) >= RANGE_GAPS):
            self.missing[-1][1] = last
        else:
            self.missing.append([first, last])


def _row(index: int, stored: Stored, state: str) -> Row:
    overlay = overlay_from_bytes(stored.overlay) if stored.overlay else None
    marks = Marks(
        stored.sequence, stored.enqueued_ms, stored.original, stored.delivery_count, STATE_ACTIVE, 0, overlay
    )
    return Row(index, stored.position, Message(stored.raw, True), marks, stored.expires_ms, state)


def partition_at(entity: Entity, index: int) -> PartitionClient:
    if not 0 <= index < len(entity.partitions):
        raise ArgumentOutOfRange(
            f"'{entity.name}' has the partitions 0 to {len(entity.partitions) - 1}, not {index}."
        )
    return entity.partitions[index]


def main_log(number: int) -> int:
    """The log of a queue or topic (0), or of a subscription, that is not for dead letters."""
    return number * KINDS + MAIN


def log_path(entity: Entity, log_id: int) -> str:
    """The address of a log, as clients write it."""
    number, kind = divmod(log_id, KINDS)
    owner = entity.name
    for subscription in entity.subscriptions.values():
        if subscription.number == number:
            owner = f"{entity.name}/Subscriptions/{subscription.description.name}"
    return owner + _SUFFIXES[kind]


async def read_events(partition: PartitionClient, log_id: int, first: int, limit: int) -> list[LogEvent]:
    """What happened to messages of a log, from an event's number on."""
    return await partition.read_events(log_id, first, limit)
