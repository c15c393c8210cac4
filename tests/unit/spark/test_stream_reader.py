"""The answers that Spark gets about offsets, from a bus that is only a table."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from polybus.errors import CursorLeased, EntityDeleted, EntityNotFound, ServerBusy
from polybus.limits import SPARK_HANDED_OVER_ROWS
from polybus.spark import lease, stream_reader
from polybus.spark.bus import CursorState, LogState
from polybus.spark.offsets import offset_from
from polybus.spark.options import source_options
from polybus.spark.planning import PartitionEnd
from polybus.spark.range_reading import DataLoss
from polybus.spark.stream_reader import ServiceBusStreamReader
from polybus.spark.transport import Patience

STRING = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true;"


class World:
    """One log with one cursor, as all drivers see it."""

    def __init__(self) -> None:
        self.entity_id = "1-1"
        self.ends = {0: 0, 1: 0}
        self.cursor: dict[int, int] | None = None
        self.holder: str | None = None
        self.fencing = 0
        self.out: set[int] = set()
        self.requests: list[str] = []

    def state(self) -> CursorState:
        assert self.cursor is not None
        return CursorState(self.entity_id, dict(self.cursor), {}, self.fencing)


class TableBus:
    def __init__(self, world: World) -> None:
        self.world = world

    def log(self, time: str | None = None) -> LogState:
        self.world.requests.append("log")
        return LogState(self.world.entity_id, self._ends(), {})

    def _ends(self) -> list[PartitionEnd]:
        return [PartitionEnd(i, 1, end, available=i not in self.world.out) for i, end in self.world.ends.items()]

    def create_cursor(self, name: str, body: dict[str, Any]) -> CursorState:
        if self.world.cursor is None:
            self.world.cursor = (
                dict(self.world.ends) if body["start"] == "latest" else dict.fromkeys(self.world.ends, 0)
            )
        return self.world.state()

    def cursor(self, name: str) -> CursorState | None:
        return None if self.world.cursor is None else self.world.state()

    def lease(self, name: str, body: dict[str, Any]) -> CursorState:
        if self.world.holder not in (None, body["holder"]):
            raise CursorLeased("It is held by another.")
        self.world.holder = body["holder"]
        self.world.fencing += 1
        return self.world.state()

    def release(self, name: str, fencing: int) -> None:
        self.world.holder = None

    def advance(self, name: str, positions: dict[int, int], fencing: int, entity_id: str) -> CursorState:
        self.world.requests.append("advance")
        if entity_id != self.world.entity_id:
            raise EntityDeleted("It was deleted and created again.")
        if self.world.cursor is None:
            raise EntityNotFound("There is no such cursor.")
        if fencing != self.world.fencing:
            raise CursorLeased("It was taken over.")
        self.world.cursor = {i: max(at, positions.get(i, 0)) for i, at in self.world.cursor.items()}
        return replace(self.world.state(), ends=self._ends())

    def patience(self) -> Patience:
        return Patience(0)

    def repeat(self, work: Callable[[], Any]) -> Any:
        raise ServerBusy("No messages come from here.")

    def close(self) -> None: ...


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    for module in (stream_reader, lease):
        monkeypatch.setattr(module, "BusClient", lambda *_: TableBus(made))
    return made


def _reader(**options: str) -> ServiceBusStreamReader:
    return ServiceBusStreamReader(source_options({"connectionString": STRING, "entity": "q", **options}))


def _json(offset: dict[str, Any]) -> dict[str, Any]:
    """As it comes back from the checkpoint."""
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


def _ranges(reader: ServiceBusStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int, int]]:
    parts = reader.partitions(_json(start), _json(end))
    return sorted((each.partition, each.first, each.last) for part in parts for each in part.ranges)


def test_asking_twice_where_to_begin_gives_the_same(world: World) -> None:
    reader = _reader()
    assert reader.initialOffset() == reader.initialOffset()
    assert world.cursor == {0: 0, 1: 0}


def test_asking_for_the_next_batch_lets_go_of_the_last(world: World) -> None:
    reader = _reader()
    start = reader.initialOffset()
    world.ends = {0: 5, 1: 3}
    end = reader.latestOffset(_json(start), ReadAllAvailable())
    assert world.cursor == {0: 0, 1: 0}
    assert reader.latestOffset(_json(end), ReadAllAvailable()) == end
    assert world.cursor == {0: 5, 1: 3}
    reader.stop()


def test_a_batch_asks_the_bus_once(world: World) -> None:
    reader = _reader()
    end = reader.latestOffset(_json(reader.initialOffset()), ReadAllAvailable())
    for number in (1, 2):
        world.requests.clear()
        world.ends = {0: number, 1: number}
        start, end = end, reader.latestOffset(_json(end), ReadAllAvailable())
        reader.partitions(_json(start), _json(end))
        reader.commit(_json(start))
        assert world.requests == ["advance"]
    reader.stop()


def test_a_batch_has_the_same_tasks_when_it_is_repeated(world: World) -> None:
    for most, tasks in ((1, 1), (SPARK_HANDED_OVER_ROWS // 2, 1), (SPARK_HANDED_OVER_ROWS, 2)):
        world.cursor, world.holder, world.ends = None, None, {0: 0, 1: 0}
        reader = _reader(targetTasks="2")
        start = reader.initialOffset()
        world.ends = {0: most, 1: most}
        end = reader.latestOffset(_json(start), ReadAllAvailable())
        planned = reader.partitions(_json(start), _json(end))
        again = _reader(targetTasks="2").partitions(_json(start), _json(end))
        assert [part.ranges for part in again] == [part.ranges for part in planned]
        assert len(planned) == tasks
        reader.stop()


def test_a_cursor_that_is_deleted_under_a_query_stops_it(world: World) -> None:
    reader = _reader(failOnDataLoss="false")
    end = reader.latestOffset(_json(reader.initialOffset()), ReadAllAvailable())
    world.cursor = None
    with pytest.raises(EntityNotFound):
        reader.latestOffset(_json(end), ReadAllAvailable())
    reader.stop()


def test_a_limit_bounds_the_batch_and_the_report_tells_the_end(world: World) -> None:
    reader = _reader(maxMessagesPerTrigger="4")
    start = reader.initialOffset()
    world.ends = {0: 5, 1: 3}
    assert isinstance(reader.getDefaultReadLimit(), ReadMaxRows)
    end = reader.latestOffset(_json(start), reader.getDefaultReadLimit())
    latest = reader.reportLatestOffset()
    assert sum(offset_from(end).positions.values()) == 4
    assert latest is not None
    assert offset_from(latest).positions == {0: 5, 1: 3}
    reader.stop()


def test_available_now_does_not_read_what_comes_later(world: World) -> None:
    reader = _reader()
    start = reader.initialOffset()
    world.ends = {0: 2, 1: 0}
    reader.prepareForTriggerAvailableNow()
    world.ends = {0: 9, 1: 9}
    end = reader.latestOffset(_json(start), ReadAllAvailable())
    assert offset_from(end).positions == {0: 2, 1: 0}
    reader.stop()


def test_the_first_batch_repeated_is_the_same_also_where_the_cursor_has_moved(world: World) -> None:
    reader = _reader()
    start = reader.initialOffset()
    world.ends = {0: 5, 1: 3}
    end = reader.latestOffset(_json(start), ReadAllAvailable())
    planned = _ranges(reader, start, end)
    reader.latestOffset(_json(end), ReadAllAvailable())
    again = _reader()  # another driver; the lease of the first was never given back
    assert _ranges(again, again.initialOffset(), end) == planned == [(0, 1, 5), (1, 1, 3)]


def test_a_driver_with_the_same_checkpoint_takes_over_and_the_old_one_is_fenced(world: World) -> None:
    old = _reader()
    world.ends = {0: 5, 1: 3}
    end = old.latestOffset(_json(old.initialOffset()), ReadAllAvailable())
    new = _reader()
    new.latestOffset(_json(end), ReadAllAvailable())
    with pytest.raises(CursorLeased):
        old.latestOffset(_json(end), ReadAllAvailable())
    old.commit(_json(end))  # never fails the query


def test_another_query_cannot_have_the_cursor(world: World) -> None:
    first, second = _reader(), _reader()
    first.latestOffset(_json(first.initialOffset()), ReadAllAvailable())
    with pytest.raises(CursorLeased, match="a cursor of its own"):
        second.latestOffset(_json(second.initialOffset()), ReadAllAvailable())


def test_a_partition_that_is_out_waits(world: World) -> None:
    reader = _reader()
    start = reader.initialOffset()
    world.ends, world.out = {0: 5, 1: 3}, {1}
    end = reader.latestOffset(_json(start), ReadAllAvailable())
    assert offset_from(end).positions == {0: 5, 1: 0}
    world.out = set()
    assert _ranges(reader, end, reader.latestOffset(_json(end), ReadAllAvailable())) == [(1, 1, 3)]
    reader.stop()


def test_an_entity_created_again_or_a_cursor_gone_is_loud(world: World) -> None:
    reader = _reader()
    world.ends = {0: 5, 1: 3}
    end = reader.latestOffset(_json(reader.initialOffset()), ReadAllAvailable())
    world.cursor = None
    with pytest.raises(DataLoss, match="is gone"):
        _reader().latestOffset(_json(end), ReadAllAvailable())
    world.entity_id = "2-2"
    with pytest.raises(DataLoss, match="created again"):
        _reader().latestOffset(_json(end), ReadAllAvailable())
    world.holder = None
    world.ends = {0: 1, 1: 0}
    careless = _reader(failOnDataLoss="false")
    after = careless.latestOffset(_json(end), ReadAllAvailable())
    assert _ranges(careless, end, after) == [(0, 1, 1)]


def test_an_entity_created_again_under_a_running_query_is_noticed_when_it_lets_go(world: World) -> None:
    careful, careless = _reader(), _reader(failOnDataLoss="false")
    world.ends = {0: 5, 1: 3}
    for reader in (careful, careless):
        end = reader.latestOffset(_json(reader.initialOffset()), ReadAllAvailable())
        kept = world.cursor
        world.entity_id, world.cursor, world.holder, world.ends = f"2-{reader is careless}", None, None, {0: 1, 1: 0}
        if reader is careful:
            with pytest.raises(DataLoss, match="created again"):
                reader.latestOffset(_json(end), ReadAllAvailable())
            world.cursor, world.ends = kept, {0: 5, 1: 3}
        else:
            after = reader.latestOffset(_json(end), ReadAllAvailable())
            assert (offset_from(after).entity_id, offset_from(after).positions) == (world.entity_id, {0: 1, 1: 0})
        reader.stop()
