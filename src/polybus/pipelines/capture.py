"""`kind: capture`: everything that an entity gets, into a lake, exactly once.

A batch goes in whole or not at all, and a batch that Spark repeats after a crash is recognised by (query, number).
Batches are cut by time (`every`) and by size (`maxBytes`, `maxMessages`), whichever comes first.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from polybus.errors import ConfigError
from polybus.limits import CAPTURE_BYTES
from polybus.pipelines.bodies import AVRO_BODY, REASON, UNKNOWN, Bodies, BodySettings, body_settings
from polybus.pipelines.fields import Fields, duration_text
from polybus.pipelines.file_writing import AVRO, PARQUET, STAGED_SCHEMA, WriteTask
from polybus.pipelines.folders import CheckpointState, Folder
from polybus.pipelines.kind import Context, Origin, StreamKind, read_stream
from polybus.pipelines.lake import Lake, LakeBatch, open_lake
from polybus.pipelines.layout import HIVE, NEEDED, Layout
from polybus.pipelines.manifests import LakeFile
from polybus.pipelines.object_stores import Location, ObjectUrl
from polybus.pipelines.places import EntityReference, entity_from

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

FORMATS: Final = (PARQUET, AVRO, "delta", "iceberg")
EVERY_MS: Final = 300_000
RECURRING_MS: Final = 60_000
"""From here on the query rests between batches: starting it anew costs about a second."""


@dataclass(frozen=True)
class LakePlace:
    """The file's `to`, or `from` of a replay: which table of which format."""

    path: Location
    format: str
    options: dict[str, str] = field(default_factory=dict, repr=False)

    def open(self, layout: Layout) -> Lake:
        return open_lake(self.format, self.path, layout, self.options)


def lake_place(fields: Fields, origin: Origin) -> LakePlace:
    """Reads `{path: /lake/orders, format: iceberg, table: sales.orders, catalog: {…}}`."""
    path = origin.location(fields, "path", "a folder that the driver and all executors share")
    kind = fields.word("format", FORMATS, PARQUET)
    options: dict[str, str] = {}
    if kind == "iceberg":
        options = fields.options("catalog")
        if fields.has("table"):
            options["table"] = fields.text("table")
        if "." not in options.get("table", "a.b"):
            fields.refuse("table", options["table"], "a table with its namespace, such as sales.orders")
        if isinstance(path, ObjectUrl) and not options.keys() - {"table"}:
            fields.missing("catalog", "properties of a catalogue, for no file of an object store can be one")
    return LakePlace(path, kind, options)


class CaptureKind(StreamKind):
    kind: ClassVar[str] = "capture"

    def __init__(
        self,
        name: str,
        origin: EntityReference,
        place: LakePlace,
        levels: tuple[str, ...],
        every_ms: int,
        max_bytes: int,
        max_messages: int | None,
        body: BodySettings | None = None,
    ) -> None:
        super().__init__(name)
        self.place = place
        self.layout = Layout(levels, origin.entity)
        self._origin = origin
        self._every_ms = every_ms
        self._max_bytes = max_bytes
        self._max_messages = max_messages
        self._body = body
        self.recurring_ms = every_ms if every_ms >= RECURRING_MS else None

    @classmethod
    def parse(cls, name: str, fields: Fields, origin: Origin) -> Self:
        to = fields.mapping("to")
        if to is None:
            fields.missing("to", f"a mapping with path and format ({', '.join(FORMATS)})")
        place = lake_place(to, origin)
        levels = _levels(to)
        to.close()
        return cls(
            name,
            entity_from(fields, "from", origin.bus),
            place,
            levels,
            fields.duration_ms("every", EVERY_MS, least=1_000),
            fields.size_bytes("maxBytes", CAPTURE_BYTES, least=1024),
            fields.number("maxMessages", None, least=1),
            body_settings(fields, origin, place.path),
        )

    def entities(self) -> list[EntityReference]:
        return [self._origin]

    def check(self) -> list[str]:
        if self._body is not None and self._body.kind == AVRO_BODY:
            Bodies(self._body, Path()).schema()
        return self._origin.check_source(**self._source_options())

    def describe(self) -> str:
        cut = f"every {duration_text(self._every_ms)}"
        return f"{self._origin.entity} to {self.place.path} ({self.place.format}), {cut}"

    def _source_options(self) -> dict[str, Any]:
        limits = {"maxBytesPerTrigger": self._max_bytes, "maxMessagesPerTrigger": self._max_messages}
        # Rows of a table have positions: their order across files is nobody's.
        return {"cursor": self.name, "splitHot": "true", **limits}

    # Running

    def lake(self) -> Lake:
        return self.place.open(self.layout)

    def start(self, session: SparkSession, context: Context) -> StreamingQuery:
        frame = read_stream(session, self._origin, **self._source_options())
        self._check_columns(frame)
        writing = self.writing(context)
        journal = Folder(context.checkpoint).journal()
        if journal is not None:
            writing.recover(journal.query)
        return (
            frame.writeStream.queryName(self.name)
            .foreachBatch(writing)
            .option("checkpointLocation", context.stream_folder())
            .trigger(**context.trigger(self._every_ms))
            .start()
        )

    def writing(self, context: Context) -> Capturing:
        """What puts batches into the table."""
        bodies = None if self._body is None else TypedBodies(self._body, self.layout, self.place, context)
        return Capturing(self.lake(), Folder(context.checkpoint), context.lands, bodies)

    def _check_columns(self, frame: DataFrame) -> None:
        for level in self.layout.levels:
            if NEEDED.get(level, frame.columns[0]) not in frame.columns:
                raise ConfigError(f"the layout has {level!r}, so 'columns' must have {NEEDED[level]!r}")

    def due(self, context: Context) -> bool:
        """Whether as much waits in the log as a batch may have."""
        journal = Folder(context.checkpoint).journal()
        read = journal.ends[0] if journal is not None and journal.ends else None
        bus = self._origin.open()
        try:
            state = bus.log()
        finally:
            bus.close()
        messages, size = 0, 0.0
        for end in state.ends:
            waiting = max(end.stable_end - max(end.earliest - 1, read.position(end.index) if read else 0), 0)
            messages += waiting
            size += waiting * end.average_bytes
        return size >= self._max_bytes or (self._max_messages is not None and messages >= self._max_messages)


class Capturing:
    """For `foreachBatch`: one batch of the query into the lake, unless it is there."""

    def __init__(
        self, lake: Lake, folder: Folder, lands: Callable[[int, list[LakeFile]], None], bodies: TypedBodies | None
    ) -> None:
        self.lake = lake
        self._folder = folder
        self._lands = lands
        self._bodies = bodies

    def __call__(self, frame: DataFrame, number: int) -> None:
        journal = self._folder.journal()
        assert journal is not None, "a query has a journal before it has a batch"
        ends = ends_text(journal) if journal.planned == number else ""
        self._lands(number, self.write(LakeBatch(journal.query, number, ends), frame))

    def recover(self, query: str) -> None:
        """Makes good what a crash has left of a query's batches."""
        self.lake.recover(query)
        if self._bodies is not None:
            self._bodies.quarantine.recover(query)

    def write(self, batch: LakeBatch, frame: DataFrame) -> list[LakeFile]:
        if self._bodies is None:
            return capture_batch(self.lake, batch, frame)
        return self._bodies.capture(self.lake, batch, frame)


def ends_text(journal: CheckpointState) -> str:
    """How far the batch that is being made reads, the same text whenever it is repeated."""
    told = [[end.entity_id, sorted(end.positions.items())] for end in journal.ends]
    return json.dumps(told, separators=(",", ":"))


def capture_batch(lake: Lake, batch: LakeBatch, frame: DataFrame) -> list[LakeFile]:
    """Puts the rows of a batch into the lake and gives its files; none where they are there already."""
    if lake.committed(batch):
        return []
    return commit_staged(lake, batch, stage(lake, batch, frame), frame)


def stage(lake: Lake, batch: LakeBatch, frame: DataFrame) -> list[LakeFile]:
    """Writes the rows into files that do not count yet."""
    target = lake.folder.begin(batch.id)
    form = AVRO if lake.suffix == AVRO else PARQUET
    writing = WriteTask(target, uuid.uuid4().hex[:8], lake.layout, form, lake.whole)
    told = frame.mapInArrow(writing, STAGED_SCHEMA).collect()
    return lake.staged(batch, [row.asDict() for row in told])


def commit_staged(lake: Lake, batch: LakeBatch, files: list[LakeFile], frame: DataFrame) -> list[LakeFile]:
    if files:
        lake.commit(batch, files, _arrow_schema(frame))
    return files


def _arrow_schema(frame: DataFrame) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema, timezone="UTC")


class TypedBodies:
    """Batches whose bodies are taken apart: what fits goes into the lake, the rest into its quarantine.

    The quarantine's rows are in before the lake's: a batch that the lake has is whole, whenever a crash comes.
    """

    def __init__(self, settings: BodySettings, layout: Layout, place: LakePlace, context: Context) -> None:
        self._bodies = Bodies(settings, context.checkpoint)
        self._say = context.say
        form = place.format if place.format in (PARQUET, AVRO) else PARQUET
        self.quarantine = open_lake(form, settings.quarantine, layout, {})

    def capture(self, lake: Lake, batch: LakeBatch, frame: DataFrame) -> list[LakeFile]:
        if lake.committed(batch):
            return []
        if self._bodies.inferred and self._bodies.schema() is None:
            self._learn(frame)
        files, typed, misfits, strangers = self._stage(lake, batch, frame)
        if strangers and self._bodies.inferred and self._learn(typed.where(UNKNOWN).select(frame.columns)):
            files, typed, misfits, _ = self._stage(lake, batch, frame)
        if misfits:
            bad = typed.where(f"{REASON} is not null").select(*frame.columns, REASON)
            aside = capture_batch(self.quarantine, batch, bad)
            self._say(f"batch {batch.number}: {misfits:,} messages do not fit: {self.quarantine.root}")
            return aside + commit_staged(lake, batch, files, _fitting(typed))
        return commit_staged(lake, batch, files, _fitting(typed))

    def _stage(self, lake: Lake, batch: LakeBatch, frame: DataFrame) -> tuple[list[LakeFile], DataFrame, int, int]:
        """The files of the rows that fit; how many do not, and how many have fields that are not known."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812

        typed, seen = self._bodies.typed(frame), Observation()
        misfit, strange = F.count(REASON), F.count(F.when(F.col(UNKNOWN) & F.col(REASON).isNull(), 1))
        files = stage(lake, batch, _fitting(typed.observe(seen, misfit.alias("misfits"), strange.alias("strangers"))))
        return files, typed, int(seen.get["misfits"]), int(seen.get["strangers"])

    def _learn(self, frame: DataFrame) -> list[str]:
        new = self._bodies.learn(frame)
        if new:
            self._say(f"new columns of bodies: {', '.join(new)}")
        return new


def _fitting(typed: DataFrame) -> DataFrame:
    return typed.where(f"{REASON} is null").drop(REASON, UNKNOWN)


def _levels(fields: Fields) -> tuple[str, ...]:
    told = fields.raw("layout")
    if told is None or told == "hive":
        return HIVE
    if told == "flat":
        return ()
    if not isinstance(told, list):
        fields.refuse("layout", told, f"hive, flat, or a list of some of {', '.join(HIVE)}")
    levels: tuple[str, ...] = fields.texts("layout", words=HIVE)
    return levels
