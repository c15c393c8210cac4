"""`kind: enrich`: messages joined with tables, or with another stream, by a query in SQL, and sent on to a topic.

The query sees the messages as `messages` and everything else under the names that the file gives. It is resolved when
the pipeline starts; tables are read as they are then. What it gives becomes messages, exactly once: the columns are
those of Spark's sink.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from polybus.errors import ConfigError
from polybus.pipelines.fields import Fields, duration_text
from polybus.pipelines.kind import Context, Origin, StreamKind, read_stream
from polybus.pipelines.places import FORMAT, EntityReference, entity_from
from polybus.pipelines.views import query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

MESSAGES: Final = "messages"
EVERY_MS: Final = 10_000
TABLE_FORMATS: Final = ("parquet", "orc", "json", "csv", "text")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_NAME_RULE: Final = f"a name for SQL of letters, digits and underscores, other than {MESSAGES}, given once"


@dataclass(frozen=True)
class Lookup:
    """Files that Spark reads as a table."""

    path: str
    format: str
    options: dict[str, str]
    schema: str | None

    def read(self, session: SparkSession) -> DataFrame:
        reading = session.read.format(self.format).options(**self.options)
        return (reading.schema(self.schema) if self.schema else reading).load(self.path)


@dataclass(frozen=True)
class Joined:
    """Another stream, with how long its messages wait for those that they belong to."""

    entity: EntityReference
    watermark_ms: int


class EnrichKind(StreamKind):
    kind: ClassVar[str] = "enrich"

    def __init__(
        self,
        name: str,
        origin: EntityReference,
        target: EntityReference,
        sql: str,
        tables: Mapping[str, Lookup],
        streams: Mapping[str, Joined],
        watermark_ms: int | None,
        unknown_columns: str,
        every_ms: int,
    ) -> None:
        super().__init__(name)
        self._origin = origin
        self._target = target
        self._sql = sql
        self._tables = tables
        self._streams = streams
        self._watermark_ms = watermark_ms
        self._unknown_columns = unknown_columns
        self._every_ms = every_ms

    @classmethod
    def parse(cls, name: str, fields: Fields, origin: Origin) -> Self:
        tables = {each: _lookup(inner, origin) for each, inner in _named(fields, "tables", []).items()}
        streams = {each: _joined(inner, origin) for each, inner in _named(fields, "streams", list(tables)).items()}
        watermark = fields.duration_ms("watermark", None)
        if streams and watermark is None:
            fields.missing("watermark", "a duration such as 10m, for which messages wait for those of other streams")
        return cls(
            name,
            entity_from(fields, "from", origin.bus),
            entity_from(fields, "to", origin.bus),
            fields.text("sql", allowed=f"a query over {', '.join([MESSAGES, *tables, *streams])}"),
            tables,
            streams,
            watermark,
            fields.word("unknownColumns", ("error", "properties"), "error"),
            fields.duration_ms("every", EVERY_MS),
        )

    def entities(self) -> list[EntityReference]:
        return [self._origin, self._target, *(each.entity for each in self._streams.values())]

    def cursors(self) -> list[tuple[EntityReference, str]]:
        own = (self._origin, self.name)
        return [own, *((each.entity, f"{self.name}.{name}") for name, each in self._streams.items())]

    def check(self) -> list[str]:
        unused = [name for name in (MESSAGES, *self._tables, *self._streams) if not mentions(self._sql, name)]
        if MESSAGES in unused:
            raise ConfigError(
                f"{self.name}: the query does not name {MESSAGES}, so it would send nothing: {self._sql}"
            )
        return [f"{self.name}: the query does not use {name}" for name in unused]

    def describe(self) -> str:
        others = [*self._tables, *(f"stream {name}" for name in self._streams)]
        return f"{self._origin.entity}{' with ' + ', '.join(others) if others else ''} to {self._target.entity}"

    def start(self, session: SparkSession, context: Context) -> StreamingQuery:
        given = query(session, self._sql, self._frames(session))
        if not given.isStreaming:
            raise ConfigError(f"{self.name}: the query gives no stream: it must read {MESSAGES}")
        options = self._target.options(producerName=self.name, unknownColumns=self._unknown_columns)
        return (
            given.writeStream.format(FORMAT)
            .options(**options)
            .queryName(self.name)
            .option("checkpointLocation", context.stream_folder())
            .outputMode("append")
            .trigger(**context.trigger(self._every_ms))
            .start()
        )

    def _frames(self, session: SparkSession) -> dict[str, DataFrame]:
        frames = {MESSAGES: _waiting(read_stream(session, self._origin, cursor=self.name), self._watermark_ms)}
        for name, table in self._tables.items():
            frames[name] = table.read(session)
        for name, stream in self._streams.items():
            # A second stream of the same entity needs a cursor of its own.
            frame = read_stream(session, stream.entity, cursor=f"{self.name}.{name}")
            frames[name] = _waiting(frame, stream.watermark_ms)
        return frames


def _waiting(frame: DataFrame, watermark_ms: int | None) -> DataFrame:
    return frame if watermark_ms is None else frame.withWatermark("enqueued_time", f"{watermark_ms} milliseconds")


def mentions(sql: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sql, re.IGNORECASE) is not None


def _named(fields: Fields, name: str, taken: list[str]) -> dict[str, Any]:
    """The mappings of a mapping, by names that SQL can use."""
    inner = fields.mapping(name)
    if inner is None:
        return {}
    found: dict[str, Any] = {}
    for each in inner.names():
        others = [MESSAGES, *taken, *found]
        if not _NAME.fullmatch(each) or each.lower() in (other.lower() for other in others):
            inner.refuse(each, each, _NAME_RULE)
        # A single text is short for the one field that must be there.
        value = inner.raw(each)
        short = {"path" if name == "tables" else "from": value} if isinstance(value, str) else value
        found[each] = Fields(inner.file, inner.place(each), short)
    return found


def _lookup(fields: Fields, origin: Origin) -> Lookup:
    found = Lookup(
        str(origin.path(fields.text("path", allowed="a file or folder"))),
        fields.word("format", TABLE_FORMATS, "parquet"),
        fields.options("options"),
        fields.text("schema", None, "columns such as id string, price double"),
    )
    fields.close()
    return found


def _joined(fields: Fields, origin: Origin) -> Joined:
    allowed = f"a duration such as {duration_text(600_000)}, for which its messages wait"
    if not fields.has("watermark"):
        fields.missing("watermark", allowed)
    found = Joined(entity_from(fields, "from", origin.bus), fields.duration_ms("watermark"))
    fields.close()
    return found
