"""`kind: python`: the user's own function between an entity and an entity, a folder, or anything it likes.

`each: stream`: the function gets a streaming DataFrame and gives one, which goes `to` an entity or a folder of files.
`each: batch`: it gets the DataFrame of each batch and the batch's number, and does with them what it wants; a batch
that is repeated after a crash comes with the same number.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Self

from polybus.pipelines.entry import ENTRY, ENTRY_RULE, function_of, module_file
from polybus.pipelines.fields import Fields
from polybus.pipelines.kind import Context, Origin, StreamKind, read_stream
from polybus.pipelines.places import FORMAT, EntityReference, entity_from

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

FILE_FORMATS: Final = ("parquet", "orc", "json", "csv")
EVERY_MS: Final = 10_000


@dataclass(frozen=True)
class Files:
    """A folder that Spark's own file sink writes."""

    path: Path
    format: str


class PythonKind(StreamKind):
    kind: ClassVar[str] = "python"

    def __init__(
        self,
        name: str,
        folder: Path,
        entry: str,
        each: str,
        origin: EntityReference,
        target: EntityReference | Files | None,
        every_ms: int,
    ) -> None:
        super().__init__(name)
        self._folder = folder
        self._entry = entry
        self._each = each
        self._origin = origin
        self._target = target
        self._every_ms = every_ms

    @classmethod
    def parse(cls, name: str, fields: Fields, origin: Origin) -> Self:
        entry = fields.text("entry", allowed=ENTRY_RULE)
        if not ENTRY.fullmatch(entry):
            fields.refuse("entry", entry, ENTRY_RULE)
        each = fields.word("each", ("stream", "batch"), "stream")
        target = _target(fields, origin)
        if (target is None) == (each == "stream"):
            allowed = "an entity, or path and format, with each: stream; nothing with each: batch"
            fields.refuse("to", fields.raw("to"), allowed)
        every = fields.duration_ms("every", EVERY_MS)
        return cls(name, origin.folder, entry, each, entity_from(fields, "from", origin.bus), target, every)

    def entities(self) -> list[EntityReference]:
        return [self._origin, *([self._target] if isinstance(self._target, EntityReference) else [])]

    def check(self) -> list[str]:
        function_of(self._entry, self._folder)
        remarks = self._origin.check_source(cursor=self.name)
        if isinstance(self._target, EntityReference):
            remarks += self._target.check_sink(producerName=self.name)
        return list(dict.fromkeys(remarks))

    def describe(self) -> str:
        there = (
            self._target.entity if isinstance(self._target, EntityReference) else self._target and self._target.path
        )
        return f"{self._origin.entity} through {self._entry}" + (f" to {there}" if there else "")

    def start(self, session: SparkSession, context: Context) -> StreamingQuery:
        function = function_of(self._entry, self._folder)
        beside = module_file(self._entry, self._folder)
        if beside is not None:
            session.addArtifacts(str(beside), pyfile=True)
        frame = read_stream(session, self._origin, cursor=self.name)
        if self._each == "batch":
            writing = frame.writeStream.foreachBatch(function)
        else:
            writing = self._to_target(function(frame).writeStream)
        return (
            writing.queryName(self.name)
            .option("checkpointLocation", context.stream_folder())
            .trigger(**context.trigger(self._every_ms))
            .start()
        )

    def _to_target(self, writing: DataStreamWriter) -> DataStreamWriter:
        if isinstance(self._target, EntityReference):
            return writing.format(FORMAT).options(**self._target.options(producerName=self.name))
        assert self._target is not None
        return writing.format(self._target.format).option("path", str(self._target.path))


def _target(fields: Fields, origin: Origin) -> EntityReference | Files | None:
    told = fields.raw("to")
    if told is None:
        return None
    if isinstance(told, dict) and "path" in told:
        inner = Fields(fields.file, fields.place("to"), told)
        found = Files(origin.path(inner.text("path")), inner.word("format", FILE_FORMATS, "parquet"))
        inner.close()
        return found
    return entity_from(fields, "to", origin.bus)
