"""A bounded read: what an entity holds now, or held between two positions or times. It needs no cursor.

Active messages are read by position, from the log; the other states are browsed. Reading disturbs nobody and promises
nothing about tomorrow: what is settled meanwhile may or may not be in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from polybus.errors import ConfigError
from polybus.hashing import partition_for
from polybus.spark import planning
from polybus.spark.bus import BusClient, LogState
from polybus.spark.options import SourceOptions, Start
from polybus.spark.planning import Range
from polybus.spark.pushdown import Pushed, ValueSpan
from polybus.spark.range_reading import RangesRead, browse
from polybus.spark.transport import Query

DEAD: Final = "dead-lettered"
DEAD_LETTERS: Final = "/$DeadLetterQueue"
STATE: Final = "state"
ACTIVE: Final = "active"
PARTITION_BITS: Final = 48
"""A sequence number's upper bits are its partition."""


class LogPart(InputPartition):  # type: ignore[misc]
    """Ranges of a log that one task reads; only what is still there, or all of it."""

    def __init__(self, entity: str, entity_id: str, ranges: list[Range], dead: bool) -> None:
        super().__init__(None)
        self.entity = entity
        self.entity_id = entity_id
        self.ranges = ranges
        self.dead = dead


class BrowsePart(InputPartition):  # type: ignore[misc]
    """Messages in a state that is not in the log, of one partition."""

    def __init__(self, partition: int, state: str, first: int) -> None:
        super().__init__(None)
        self.partition = partition
        self.state = state
        self.first = first


class ServiceBusBatchReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._pushed = Pushed()

    def _bus(self, entity: str) -> BusClient:
        place = self._options.place
        return BusClient(place.connect(), entity, place.retry_seconds)

    # Planning, in the driver

    def partitions(self) -> Sequence[InputPartition]:
        entity = self._options.place.entity
        bus = self._bus(entity)
        try:
            parts: list[InputPartition] = []
            for state in self._options.states:
                if state == ACTIVE:
                    parts += self._log_parts(bus, dead=False)
                elif state == DEAD:
                    parts += self._dead_parts(entity)
                else:
                    parts += self._browse_parts(bus, state)
            return parts
        finally:
            bus.close()

    def _dead_parts(self, entity: str) -> list[InputPartition]:
        if DEAD_LETTERS.lower() in entity.lower():
            raise ConfigError(f"'{entity}' holds dead letters already: read it with the state 'active'")
        bus = self._bus(entity + DEAD_LETTERS)
        try:
            return self._log_parts(bus, dead=True)
        finally:
            bus.close()

    def _log_parts(self, bus: BusClient, dead: bool) -> list[InputPartition]:
        options = self._options
        state = bus.log(_later(options.start_time, self._pushed.earliest))
        for end in state.ends:
            if not end.available and self._wanted(end.index, len(state.ends)):
                raise ConfigError(
                    f"partition {end.index} of '{bus.entity}' is out; read the others with a filter on it"
                )
        until = bus.log(options.end_time) if options.end_time is not None else None
        found = self._ranges(state, until)
        found = planning.split(found, options.min_partitions)
        tasks = max(options.tasks, options.min_partitions)
        return [LogPart(bus.entity, state.entity_id, group, dead) for group in planning.grouped(found, tasks)]

    def _ranges(self, state: LogState, until: LogState | None) -> list[Range]:
        options, pushed = self._options, self._pushed
        found = []
        for end in state.ends:
            if not self._wanted(end.index, len(state.ends)):
                continue
            first = state.at_time.get(end.index, _after(options.start, end.index, end.earliest, end.stable_end))
            last = _until(options.end, end.index, end.earliest, end.stable_end)
            if until is not None:
                last = min(last, until.at_time[end.index] - 1)
            span = ValueSpan(max(first, end.earliest), last)
            span.narrow(pushed.position.least, pushed.position.most)
            if span.least <= span.most:
                found.append(Range(end.index, span.least, span.most))
        return found

    def _wanted(self, index: int, partitions: int) -> bool:
        """Whether the filters leave anything of a partition."""
        pushed, numbers = self._pushed, self._pushed.sequence_number
        if not pushed.wants_partition(index):
            return False
        if partitions > 1 and pushed.sessions is not None:
            return any(partition_for(session, partitions) == index for session in pushed.sessions)
        low, high = index << PARTITION_BITS, ((index + 1) << PARTITION_BITS) - 1
        return numbers.least <= high and numbers.most >= low

    def _browse_parts(self, bus: BusClient, state: str) -> list[InputPartition]:
        ends = bus.log().ends
        first = max(self._pushed.sequence_number.least, 1)
        return [BrowsePart(end.index, state, first) for end in ends if self._wanted(end.index, len(ends))]

    # Reading, in tasks

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if isinstance(partition, BrowsePart):
            return self._browse(partition)
        if isinstance(partition, LogPart):
            return self._read_log(partition)
        return iter(())

    def _browse(self, part: BrowsePart) -> Iterator[Any]:
        bus = self._bus(self._options.place.entity)
        try:
            query: Query = {"partition": part.partition, "state": part.state, "first": part.first}
            for batch in browse(bus, self._options.columns, query):
                yield from self._chosen(batch)
        finally:
            bus.close()

    def _read_log(self, part: LogPart) -> Iterator[Any]:
        """Rows that are kept only for somebody's cursor are settled: they are not there any more."""
        bus = self._bus(part.entity)
        try:
            reading = RangesRead(bus, self._options.columns, part.ranges, part.entity_id, settled=False)
            for batch in reading.batches():
                yield from self._chosen(_dead(batch) if part.dead else batch)
        finally:
            bus.close()

    def _chosen(self, batch: Any) -> Iterator[Any]:
        """The rows of the sessions and numbers that are wanted."""
        pushed = self._pushed
        if pushed.sessions is not None and "session_id" in batch.schema.names:
            batch = batch.filter(pc.is_in(batch.column("session_id"), pa.array(sorted(pushed.sessions), pa.string())))
        if not pushed.sequence_number.whole and "sequence_number" in batch.schema.names:
            numbers = batch.column("sequence_number")
            low = pc.greater_equal(numbers, pushed.sequence_number.least)
            batch = batch.filter(pc.and_(low, pc.less_equal(numbers, pushed.sequence_number.most)))
        if batch.num_rows:
            yield batch


class FilteringBatchReader(ServiceBusBatchReader):
    """The reader where Spark hands filters over: it refuses one that takes them while the setting is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """All come back: Spark looks at the rows again."""
        self._pushed.push(filters)
        return filters


def _dead(batch: Any) -> Any:
    """Active messages of a dead-letter queue are dead letters of the entity, where the state is shown."""
    place = batch.schema.get_field_index(STATE)
    return batch if place < 0 else batch.set_column(place, STATE, pa.array([DEAD] * batch.num_rows, pa.string()))


def _after(start: Start, index: int, earliest: int, stable_end: int) -> int:
    """The first position after where the user wants to start."""
    if isinstance(start, dict):
        return start.get(index, earliest - 1) + 1
    return earliest if start == "earliest" else stable_end + 1


def _until(end: Start, index: int, earliest: int, stable_end: int) -> int:
    if isinstance(end, dict):
        return min(end.get(index, stable_end), stable_end)
    return stable_end if end == "latest" else earliest - 1


def _later(text: str | None, pushed: datetime | None) -> str | None:
    """The later of the user's time and the filters', as the bus reads it."""
    if pushed is None:
        return text
    shown = pushed.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return shown if text is None else max(text, shown)
