"""The streaming source: Spark's questions about offsets, answered from the log of an entity and its cursor.

A cursor in the bus holds what has not been read, and nothing else about receivers changes. Spark asks for the next
batch only when the one before is in its checkpoint, so `latestOffset(start)` is the moment at which everything up to
`start` is let go. Spark's own `commit` comes a batch later, and not at all for the last one: a second chance only.
This object lives in the driver's planning process; what tasks need travels in `RangePartition`. A small batch is read
right here and handed over with its plan (see `Handover`), for a task that runs Python costs more than its rows.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from polybus.errors import CursorLeased, EntityDeleted, EntityNotFound, PolybusError
from polybus.limits import SPARK_HANDED_OVER_BYTES, SPARK_HANDED_OVER_ROWS
from polybus.spark import planning
from polybus.spark.bus import BusClient, CursorState, LogState
from polybus.spark.handover import Handover
from polybus.spark.lease import Lease
from polybus.spark.offsets import Offset, offset_from
from polybus.spark.options import SourceOptions
from polybus.spark.planning import PartitionEnd, Range
from polybus.spark.range_reading import DataLoss, RangesRead, ReadProgress, losses, report_losses

log = logging.getLogger(__name__)

HOLDER_CHARACTERS = 12
"""Of a query's id, in the name of its cursor."""


class RangePartition(InputPartition):  # type: ignore[misc]
    """What one task reads."""

    def __init__(self, entity_id: str, ranges: list[Range], cursor: str) -> None:
        super().__init__(None)
        self.entity_id = entity_id
        self.cursor = cursor
        self.ranges = ranges


class ServiceBusStreamReader(Handover, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    def __init__(self, options: SourceOptions, table: bool = False) -> None:
        super().__init__()
        self._options = options
        self._table = table
        """A table's stream: rows instead of Arrow batches, whose schema would lack the metadata of the table's."""
        self._bus: BusClient | None = None
        self._lease: Lease | None = None
        self._initial: Offset | None = None
        self._target: LogState | None = None
        """Where an AvailableNow query ends: what there was when it began."""
        self._latest: dict[str, Any] | None = None
        self._acknowledged: dict[int, int] | None = None
        self._ends: list[PartitionEnd] = []

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get the options and nothing that lives: no connection, no lease."""
        return {**self.__dict__, "_bus": None, "_lease": None}

    @property
    def bus(self) -> BusClient:
        if self._bus is None:
            place = self._options.place
            self._bus = BusClient(place.connect(), place.entity, place.retry_seconds)
        return self._bus

    # Offsets, asked for by the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query begins that has finished no batch yet; from here on the cursor holds everything.

        Spark asks again when it repeats the first batch, for it journals only ends. Where that batch began, and
        whose the cursor is, its end tells: see `partitions`.
        """
        if self._initial is None:
            holder = uuid.uuid4().hex
            state = self._create_cursor(holder)
            self._initial = Offset(state.entity_id, state.positions, holder, first=True)
        return self._initial.record()

    def _cursor(self, holder: str) -> str:
        """The name of the cursor; with `cursorPerCheckpoint` each query has its own, which begins with it."""
        options = self._options
        return f"{options.cursor}-{holder[:HOLDER_CHARACTERS]}" if options.cursor_per_checkpoint else options.cursor

    def _create_cursor(self, holder: str) -> CursorState:
        start, time = self._options.start, self._options.start_time
        body: dict[str, Any] = {"start": start if isinstance(start, str) else _named(start)}
        if time is not None:
            body["time"] = time
        return self.bus.create_cursor(self._cursor(holder), body)

    def _hold(self, holder: str) -> Lease:
        """Takes the cursor for the query that began with this checkpoint."""
        if self._lease is None:
            options = self._options
            lease = Lease(options.place, self._cursor(holder), holder, options.lease_seconds)
            try:
                lease.take(self.bus, options.take_lease)
            except CursorLeased as error:
                raise CursorLeased(
                    f"{error} Each query needs a cursor of its own: give this one another name with the option"
                    f" 'cursor', or wait until the lease of a driver that died has run out."
                ) from None
            self._lease = lease
        self._lease.check()
        return self._lease

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next batch goes. What is up to `start` is in the checkpoint and is let go: the one request
        that does so also tells how far the log goes."""
        begin = offset_from(start)
        if self._lease is None:
            begin = self._of_entity(begin)
        try:
            ends = self._acknowledge(begin)
        except (EntityNotFound, EntityDeleted):
            known, begin = begin, self._of_entity(begin)
            if begin is known:
                raise
            ends = self._acknowledge(begin)
        self._latest = Offset(begin.entity_id, planning.heads(begin, ends), begin.holder).record()
        goal = planning.heads(begin, ends if self._target is None else self._target.ends)
        most = self._most(limit, begin.positions, goal, ends)
        return begin.at(planning.limited(begin.positions, goal, most)).record()

    def _of_entity(self, begin: Offset) -> Offset:
        """The offset itself; another one where the entity is another."""
        state = self.bus.log()
        return begin if state.entity_id == begin.entity_id else self._recreated(begin, state)

    def _recreated(self, begin: Offset, state: LogState) -> Offset:
        """The entity is another one of the same name; all that is known of the old one is that it is gone."""
        text = f"'{self._options.place.entity}' was deleted and created again: what was not read of it is lost."
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{text} With failOnDataLoss=false the query begins with the new one.")
        log.warning(text)
        if self._lease is not None:
            self._lease.forget()
            self._lease = None
        self.bus.create_cursor(self._cursor(begin.holder), {"start": "earliest"})
        first = {end.index: end.earliest - 1 for end in state.ends}
        return Offset(state.entity_id, first, begin.holder)

    def _acknowledge(self, offset: Offset) -> list[PartitionEnd]:
        """Lets go of what was read; gives how far the log goes now."""
        lease = self._hold_known(offset)
        state = self.bus.advance(self._cursor(offset.holder), offset.positions, lease.fencing, offset.entity_id)
        self._acknowledged = offset.positions
        self._ends = state.ends
        return state.ends

    def _hold_known(self, offset: Offset) -> Lease:
        """The lease, after a restart from a checkpoint too; the cursor must still be there."""
        cursor = self._cursor(offset.holder)
        if self._lease is None and self.bus.cursor(cursor) is None:
            text = f"The cursor '{cursor}' is gone, and with it what it held for this query."
            if self._options.fail_on_data_loss:
                raise DataLoss(f"{text} With failOnDataLoss=false the query goes on with what is left.")
            log.warning(text)
            self.bus.create_cursor(cursor, {"start": _named(offset.positions)})
        return self._hold(offset.holder)

    def _most(
        self, limit: ReadLimit, begin: dict[int, int], goal: dict[int, int], ends: list[PartitionEnd]
    ) -> int | None:
        if isinstance(limit, ReadAllAvailable):
            return None
        counts = []
        if self._options.max_messages is not None:
            counts.append(self._options.max_messages)
        if isinstance(limit, ReadMaxRows):
            counts.append(limit.max_rows)
        max_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.max_bytes
        if max_bytes is not None:
            counts.append(planning.rows_for_bytes(max_bytes, begin, goal, ends))
        return min(counts, default=None)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark takes one limit; the other, where both are given, is kept in `latestOffset`."""
        if self._options.max_messages is not None:
            return ReadMaxRows(self._options.max_messages)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self.bus.log()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The end of the log, whatever the batch was limited to: what the progress report shows as latest offset."""
        return self._latest

    def commit(self, end: dict[str, Any]) -> None:
        """A second chance to let go; the next batch does it again, so nothing here is a failure of the query."""
        offset = offset_from(end)
        if offset.positions == self._acknowledged:
            return
        try:
            self._acknowledge(offset)
        except PolybusError as error:
            log.warning("the cursor %r was not moved yet: %s", self._cursor(offset.holder), error)

    def stop(self) -> None:
        if self._lease is not None:
            self._lease.release(self.bus)
        if self._bus is not None:
            self._bus.close()

    # Reading, planned by the driver and done by tasks

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[RangePartition]:
        """Tasks for what lies between two journaled offsets; the same ones give the same messages, always."""
        begin, goal = offset_from(start), offset_from(end)
        self._hold_known(begin.held_by(goal.holder))
        self._drop_needless(begin, goal)
        first = begin.positions
        if begin.entity_id != goal.entity_id:
            first = self._first_of_new()
        elif begin.first and goal.began is not None:
            first = goal.began
        found = planning.ranges(first, goal.positions)
        if self._is_small(found):
            whole = RangePartition(goal.entity_id, found, self._cursor(goal.holder))
            if self._is_light(found) and not self._table:
                self.hand_over(lambda: self.read(whole, 0), SPARK_HANDED_OVER_BYTES)
            return [whole]
        tasks = max(self._options.tasks, self._options.min_partitions)
        found = planning.split(found, self._options.min_partitions)
        if self._options.split_hot:
            found = planning.levelled(found, tasks)
        cursor = self._cursor(goal.holder)
        return [RangePartition(goal.entity_id, group, cursor) for group in planning.grouped(found, tasks)]

    def _drop_needless(self, begin: Offset, goal: Offset) -> None:
        """A first batch that is repeated knows its cursor from its end; the one that was made for it anew goes."""
        if self._options.cursor_per_checkpoint and begin.first and begin.holder != goal.holder:
            try:
                self.bus.delete_cursor(self._cursor(begin.holder))
            except PolybusError as error:  # a key that may only listen cannot: its bounds will end the cursor
                log.warning("the needless cursor %r stays: %s", self._cursor(begin.holder), error)

    def _first_of_new(self) -> dict[int, int]:
        return {end.index: end.earliest - 1 for end in self.bus.log().ends}

    def _is_small(self, found: list[Range]) -> bool:
        """Whether a batch is one for a single task, read or handed over.

        This may go by the offsets alone: a batch that is repeated must have the same tasks, or a shuffle that follows
        deals its rows in another way.
        """
        return bool(found) and not self._options.min_partitions and planning.count(found) <= SPARK_HANDED_OVER_ROWS

    def _is_light(self, found: list[Range]) -> bool:
        """Whether the rows may go through the driver; not where nobody knows how large they are."""
        sizes = {end.index: end.average_bytes for end in self._ends}
        known = all(each.partition in sizes for each in found)
        return known and sum(each.count * sizes[each.partition] for each in found) <= SPARK_HANDED_OVER_BYTES

    def read(self, partition: InputPartition, retry_seconds: float | None = None) -> Iterator[Any]:
        assert isinstance(partition, RangePartition)
        place = self._options.place
        bus = BusClient(
            place.connect(), place.entity, place.retry_seconds if retry_seconds is None else retry_seconds
        )
        try:
            reading = RangesRead(bus, self._options.columns, partition.ranges, partition.entity_id)
            yield from tuples(reading.batches()) if self._table else reading.batches()
            self._look_for_losses(bus, partition.cursor, [each for each in reading.ranges if each.missing])
        finally:
            bus.close()

    def _look_for_losses(self, bus: BusClient, cursor: str, gapped: list[ReadProgress]) -> None:
        """Asked after the read: a cursor is marked as cut off before anything is removed."""
        if not gapped:
            return
        state, options = bus.cursor(cursor), self._options
        for each in gapped:
            lost_to = each.range.last if state is None else state.lost_to(each.range.partition)
            lost = losses(each.missing, lost_to)
            report_losses(each.range, lost, options.place.entity, options.fail_on_data_loss, log.warning)


def tuples(batches: Iterator[Any]) -> Iterator[tuple[Any, ...]]:
    """The rows of Arrow batches one by one; properties, which Arrow has as pairs, become a dictionary again."""
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns]
        for at, name in enumerate(batch.schema.names):
            if name == "properties":
                columns[at] = [None if pairs is None else dict(pairs) for pairs in columns[at]]
        yield from zip(*columns, strict=True)


def _named(positions: dict[int, int]) -> dict[str, int]:
    """Positions as JSON writes them."""
    return {str(index): position for index, position in positions.items()}
