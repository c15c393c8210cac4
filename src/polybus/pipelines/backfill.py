"""Back-fill: what an entity's log still has of a time range, into a capture's table, while the capture goes on.

A cursor of its own holds the log from the range's begin on until it is done. The range is cut into batches once, and the
cut is kept in the pipeline's folder: a back-fill that was broken off goes on with the first batch that is not in, and
one that is done does nothing. To the table it is a query of its own, so neither disturbs the other.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from polybus.errors import ConfigError
from polybus.limits import BACKFILL_BATCH_ROWS
from polybus.pipelines.capture import CaptureKind
from polybus.pipelines.control import moment
from polybus.pipelines.declaration import Declaration
from polybus.pipelines.folders import Folder
from polybus.pipelines.kind import Context
from polybus.pipelines.lake import LakeBatch
from polybus.spark import session
from polybus.spark.bus import BusClient, LogState
from polybus.spark.planning import Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_VERSION: Final = 1
_PLAN: Final = "plan.json"


@dataclass(frozen=True)
class BackfillPlan:
    query: str
    """What the table knows it by."""
    entity_id: str
    batches: list[list[Range]]

    def write(self, path: Path) -> None:
        told = [[[each.partition, each.first, each.last] for each in batch] for batch in self.batches]
        hidden = path.with_name(f".{path.name}")
        hidden.write_text(
            json.dumps({"version": _VERSION, "query": self.query, "entity_id": self.entity_id, "batches": told})
        )
        hidden.replace(path)


def read_backfill(path: Path) -> BackfillPlan | None:
    try:
        told = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    if told.get("version") != _VERSION:
        raise ConfigError(f"{path}: is a plan of another version")
    return BackfillPlan(
        told["query"], told["entity_id"], [[Range(*each) for each in batch] for batch in told["batches"]]
    )


def cut(ranges: list[Range], rows: int) -> list[list[Range]]:
    """Batches of about so many positions, spread over all partitions that have some left."""
    left = [each for each in ranges if each.first <= each.last]
    found = []
    while left:
        share = max(rows // len(left), 1)
        found.append([Range(each.partition, each.first, min(each.last, each.first + share - 1)) for each in left])
        left = [
            Range(each.partition, each.first + share, each.last) for each in left if each.first + share <= each.last
        ]
    return found


@dataclass(frozen=True)
class ReadRanges:
    """For `mapInArrow`: ranges of the log in, messages out, those that only cursors still hold included."""

    options: dict[str, str]
    entity_id: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        from polybus.spark.options import source_options
        from polybus.spark.range_reading import RangesRead

        options = source_options(self.options)
        bus = BusClient(options.place.connect(), options.place.entity, options.place.retry_seconds)
        try:
            for batch in batches:
                wanted = [Range(row["partition"], row["first"], row["last"]) for row in batch.to_pylist()]
                yield from RangesRead(bus, options.columns, wanted, self.entity_id).batches()
        finally:
            bus.close()

    def __repr__(self) -> str:
        return "ReadRanges()"


class Backfill:
    """One back-fill of a capture. Repeating it is harmless."""

    def __init__(self, kind: CaptureKind, checkpoints: Path, first: str, end: str) -> None:
        self._kind = kind
        self._first, self._end = moment(first), moment(end)
        if self._first >= self._end:
            raise ConfigError(f"the range ends at {self._end}, which is not after its begin, {self._first}")
        name = hashlib.sha256(f"{self._first} {self._end}".encode()).hexdigest()[:12]
        self._folder = Folder(checkpoints / kind.name / "backfills" / name)
        self._cursor = f"{kind.name}.backfill-{name}"

    def run(self, session: SparkSession, say: Callable[[str], None]) -> int:
        """Puts what is not in yet into the table; gives the rows that came."""
        self._folder.hold("")
        (entity,) = self._kind.entities()
        bus = entity.open(retry_seconds=30)
        try:
            bus.create_cursor(self._cursor, {"start": "earliest", "time": self._first})
            rows = self._fill(session, self._plan(bus), say)
            bus.delete_cursor(self._cursor)
            return rows
        finally:
            bus.close()
            self._folder.leave()

    def _plan(self, bus: BusClient) -> BackfillPlan:
        path = self._folder.path / _PLAN
        plan = read_backfill(path)
        if plan is None:
            begin, until = bus.log(self._first), bus.log(self._end)
            plan = BackfillPlan(str(uuid.uuid4()), begin.entity_id, cut(_between(begin, until), BACKFILL_BATCH_ROWS))
            plan.write(path)
        return plan

    def _fill(self, session: SparkSession, plan: BackfillPlan, say: Callable[[str], None]) -> int:
        # Schemas of bodies are the capture's own, so its folder is the context's.
        context = Context(self._folder.path.parents[1], True, say)
        writing = self._kind.writing(context)
        writing.recover(plan.query)
        landed = 0
        for number in range(writing.lake.last(plan.query) + 1, len(plan.batches)):
            frame = self._frame(session, plan.entity_id, plan.batches[number])
            files = writing.write(LakeBatch(plan.query, number), frame)
            rows = sum(file.rows for file in files)
            landed += rows
            say(f"back-fill: batch {number + 1} of {len(plan.batches)}: {rows:,} rows")
        return landed

    def _frame(self, session: SparkSession, entity_id: str, ranges: list[Range]) -> DataFrame:
        from polybus.spark.columns import spark_schema
        from polybus.spark.options import source_options

        (entity,) = self._kind.entities()
        options = entity.options()
        columns = source_options(options).columns
        rows = [(each.partition, each.first, each.last) for each in ranges]
        listed = session.createDataFrame(rows, "partition int, first long, last long").repartition(len(rows))
        return listed.mapInArrow(ReadRanges(options, entity_id), spark_schema(columns))


def backfill_alone(declaration: Declaration, first: str, end: str, say: Callable[[str], None]) -> int:
    """A back-fill of the one pipeline that is declared, in a session of its own."""
    (kind,) = declaration.pipelines
    if not isinstance(kind, CaptureKind):
        raise ConfigError(f"{kind.name!r} is no capture but {kind.kind!r}: there is nothing to back-fill")
    work = Backfill(kind, declaration.checkpoints, first, end)
    spark = session(declaration.spark.master, "polybus-backfill", declaration.spark.conf)
    try:
        return work.run(spark, say)
    finally:
        spark.stop()


def _between(begin: LogState, until: LogState) -> list[Range]:
    """Positions that were enqueued from one time to another, as far as the log still has them."""
    ends = {end.index: end for end in until.ends}
    out = [end.index for end in begin.ends if not end.available]
    if out:
        raise ConfigError(f"partitions {', '.join(map(str, out))} are out; back-fill when they are back")
    return [
        Range(
            end.index,
            max(begin.at_time.get(end.index, end.earliest), end.earliest),
            min(until.at_time.get(end.index, end.stable_end + 1) - 1, ends[end.index].stable_end),
        )
        for end in begin.ends
    ]
