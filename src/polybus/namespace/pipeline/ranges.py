"""Logs as pipelines read them: by position, partition by partition, without disturbing anybody.

A range is read in steps, each of which gives some messages and says up to where the answer is complete. Positions
are dense, so what is not there is known by its number: it was settled when no cursor kept it, or a lagging cursor
lost it.
"""

from __future__ import annotations

from polybus.errors import ArgumentOutOfRange, PartitionUnavailable
from polybus.hosting.partition_host import PartitionHost
from polybus.limits import RANGE_GAPS
from polybus.namespace.entities.entity import Entity
from polybus.partition import cursors as keeping
from polybus.partition import events
from polybus.partition.broker import Steps
from polybus.partition.cursors import RangeRow, Records
from polybus.partition.log import DEAD_LETTER, KINDS, MAIN, TRANSFER_DEAD_LETTER, Log
from polybus.partition.reading import scan
from polybus.partition.records import EVENTS, Stored, after, log_prefix, number_key

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

    def read(self, log: Log) -> None:
        """What memory knows of the log."""
        self.stable_end = log.stable_end
        self.messages = log.active + log.retained
        self.bytes = log.active_bytes + log.retained_bytes

    def require(self) -> None:
        if self.problem is not None:
            raise self.problem


async def partition_logs(entity: Entity, log_id: int, time_ms: int | None = None) -> list[PartitionLog]:
    """Where the log begins and ends in each partition; what cannot be reached has a problem instead."""
    found = []
    for partition in entity.partitions:
        log = PartitionLog(partition.index)
        try:
            await _describe(partition, log_id, time_ms, log)
        except PartitionUnavailable as error:
            log.problem = error
        found.append(log)
    return found


def log_ends(entity: Entity, log_id: int) -> list[PartitionLog]:
    """How far the log goes in each partition. Memory knows it; where it begins only the stores know."""
    found = []
    for partition in entity.partitions:
        end = PartitionLog(partition.index)
        try:
            end.read(partition.require().log(log_id))
        except PartitionUnavailable as error:
            end.problem = error
        found.append(end)
    return found


async def _describe(partition: PartitionHost, log_id: int, time_ms: int | None, into: PartitionLog) -> None:
    broker = partition.require()
    log = broker.log(log_id)
    into.earliest = await partition.run(keeping.earliest(log))
    into.read(log)
    if time_ms is not None and not log.by_position:
        into.at_time = await partition.run(keeping.position_at_time(broker, log, time_ms))
    elif time_ms is not None:
        position, found = await partition.run(keeping.walk_to_time(broker, log, into.earliest, time_ms))
        while not found:
            await partition.turn()
            position, found = await partition.run(keeping.walk_to_time(broker, log, position, time_ms))
        into.at_time = position


class RangeReader:
    """Reads one range of one partition from its first position to its last."""

    def __init__(self, partition: PartitionHost, log_id: int, first: int, last: int) -> None:
        self._partition = partition
        self._log_id = log_id
        self._next = max(first, 1)
        self._after = b""
        self.last = min(last, partition.require().log(log_id).stable_end)
        self.missing: list[list[int]] = []
        """Ranges of positions that are gone, both ends included; the last one swallows more where they are many."""

    @property
    def complete_to(self) -> int:
        return self._next - 1

    @property
    def done(self) -> bool:
        return self._next > self.last

    async def read_records(self, limit: int, max_bytes: int) -> Records:
        """The next messages as they are stored; none where the step met only gaps."""
        broker = self._partition.require()
        log = broker.log(self._log_id)
        steps = keeping.read_records(broker, log, self._next, self.last, limit, max_bytes, self._after)
        found = await self._partition.run(steps)
        self._after = found.after
        self._count(found)
        return found

    async def read(self, limit: int, max_bytes: int) -> list[tuple[RangeRow, str]]:
        """The next messages taken apart, each with its state."""
        found = await self.read_records(limit, max_bytes)
        stored = [Stored(value) for value in found.values]
        states = [SETTLED if settled else ACTIVE for settled in found.settled]
        return [(RangeRow(each, each.raw), state) for each, state in zip(stored, states, strict=True)]

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


def partition_at(entity: Entity, index: int) -> PartitionHost:
    if not 0 <= index < len(entity.partitions):
        raise ArgumentOutOfRange(
            f"'{entity.name}' has the partitions 0 to {len(entity.partitions) - 1}, not {index}."
        )
    return entity.partitions[index]


def log_path(entity: Entity, log_id: int) -> str:
    """The address of a log, as clients write it."""
    number, kind = divmod(log_id, KINDS)
    owner = entity.name
    for subscription in entity.subscriptions.values():
        if subscription.number == number:
            owner = f"{entity.name}/Subscriptions/{subscription.description.name}"
    return owner + _SUFFIXES[kind]


async def read_events(partition: PartitionHost, log_id: int, first: int, limit: int) -> list[events.Event]:
    """What happened to messages of a log, from an event's number on."""
    broker = partition.require()
    prefix = log_prefix(broker.prefix, EVENTS, log_id)
    return await partition.run(_events(prefix, first, limit))


def _events(prefix: bytes, first: int, limit: int) -> Steps[list[events.Event]]:
    rows, _ = yield from scan(number_key(prefix, max(first, 1)), after(prefix), limit, 1 << 20)
    return [events.read(row) for row in rows]
