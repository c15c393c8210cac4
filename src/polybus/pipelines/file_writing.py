"""What a task of a capture does: its rows into files of a staging folder, by the folders where they will lie.

Nothing that a task writes counts for readers: names are its attempt's own, and only the driver, which hears of the
tasks that ended well, makes files a part of the table. This runs in Spark's workers.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from polybus.limits import CAPTURE_BUFFER_BYTES, CAPTURE_HANDING_OVER, CAPTURE_OPEN_FILES
from polybus.pipelines.avro import AvroWriter
from polybus.pipelines.layout import Layout, file_name
from polybus.pipelines.manifests import TaskTarget

STAGED_SCHEMA: Final = (
    "task int, part int, folder string, staged string, rows long, bytes long, first_time long, last_time long,"
    " retries int"
)
"""What a task tells the driver of each file; times in microseconds since 1970. Retries: attempts that failed before."""
_ARROW: Final = pa.schema(
    [
        ("task", pa.int32()),
        ("part", pa.int32()),
        ("folder", pa.string()),
        ("staged", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("first_time", pa.int64()),
        ("last_time", pa.int64()),
        ("retries", pa.int32()),
    ]
)
PARQUET: Final = "parquet"
AVRO: Final = "avro"


class RowWriter(ABC):
    """Writes one file."""

    @abstractmethod
    def write(self, table: Any) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class ParquetRows(RowWriter):
    def __init__(self, sink: BinaryIO, schema: Any) -> None:
        self._writer = pq.ParquetWriter(sink, schema)

    def write(self, table: Any) -> None:
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()


class AvroRows(RowWriter):
    def __init__(self, sink: BinaryIO, schema: Any) -> None:
        self._writer = AvroWriter(sink, schema)

    def write(self, table: Any) -> None:
        self._writer.write(table)

    def close(self) -> None:
        self._writer.close()


WRITERS: dict[str, type[ParquetRows] | type[AvroRows]] = {PARQUET: ParquetRows, AVRO: AvroRows}


class StagedFile:
    """One file that grows; rows wait in memory until they make a row group of some size."""

    def __init__(self, path: Path, schema: Any, kind: str, folder: str, part: int) -> None:
        self.path = path
        self.folder = folder
        self.part = part
        self.rows = 0
        self.bytes = 0
        self.waiting_bytes = 0
        self._waiting: list[Any] = []
        self._times: list[int] = []
        self.schema = schema
        self._sink = path.open("wb")
        self._writer = WRITERS[kind](self._sink, schema)

    def add(self, batch: Any, times: tuple[int, int] | None) -> None:
        self._waiting.append(batch)
        self.waiting_bytes += batch.nbytes
        self.rows += batch.num_rows
        self._times += times or ()

    def flush(self) -> None:
        if self._waiting:
            self._writer.write(pa.Table.from_batches(self._waiting, self.schema).combine_chunks())
            self._waiting, self.waiting_bytes = [], 0

    def close(self) -> None:
        """Afterwards the file is on the disk, also if the machine falls."""
        self.flush()
        self._writer.close()
        self._sink.flush()
        os.fsync(self._sink.fileno())
        self.bytes = os.fstat(self._sink.fileno()).st_size
        self._sink.close()

    def record(self, task: int, staged: str) -> dict[str, Any]:
        first, last = (min(self._times), max(self._times)) if self._times else (None, None)
        told = {"task": task, "part": self.part, "folder": self.folder, "staged": staged}
        return {**told, "rows": self.rows, "bytes": self.bytes, "first_time": first, "last_time": last}


class TaskFiles:
    """The files of one task: they grow in a folder, and are handed over, a few at a time, when they are whole."""

    def __init__(
        self,
        staging: Path,
        layout: Layout,
        kind: str,
        whole: bool,
        task: int,
        attempt: str,
        target: TaskTarget | None = None,
    ) -> None:
        self._staging = staging
        self._target = target
        self._handing = ThreadPoolExecutor(CAPTURE_HANDING_OVER)
        self._layout = layout
        self._kind = kind
        self._whole = whole
        self._task = task
        self._attempt = attempt
        self._open: dict[str, StagedFile] = {}
        self._parts: dict[str, int] = {}
        self._closed: list[tuple[StagedFile, Future[str]]] = []

    def write(self, batch: Any) -> None:
        for values, rows in self._layout.split(utc(batch)):
            names = self._layout.stored(rows.schema.names, self._whole)
            self._file(self._layout.folder_of(values), rows.select(names).schema).add(rows.select(names), times(rows))
        while sum(each.waiting_bytes for each in self._open.values()) > CAPTURE_BUFFER_BYTES:
            max(self._open.values(), key=lambda each: each.waiting_bytes).flush()

    def _file(self, folder: str, schema: Any) -> StagedFile:
        found = self._open.pop(folder, None)
        if found is None:
            found = self._create(folder, schema)
        self._open[folder] = found
        return found

    def _create(self, folder: str, schema: Any) -> StagedFile:
        if len(self._open) >= CAPTURE_OPEN_FILES:
            self._close(next(iter(self._open)))
        part = self._parts.get(folder, 0)
        self._parts[folder] = part + 1
        number = len(self._closed) + len(self._open)
        path = self._staging / f"{self._task}-{self._attempt}-{number}.part"
        return StagedFile(path, schema, self._kind, folder, part)

    def _close(self, folder: str) -> None:
        file = self._open.pop(folder)
        file.close()
        self._closed.append((file, self._handing.submit(self._land, file)))

    def _land(self, file: StagedFile) -> str:
        if self._target is None:
            return file.path.name
        return self._target.land(
            file.path,
            file.folder,
            lambda identity: file_name(f"{identity}-{self._attempt}", self._task, file.part, self._kind),
        )

    def close(self) -> list[dict[str, Any]]:
        """Hands over the rest and tells of all of them; fails where one could not be handed over."""
        with self._handing:
            for folder in list(self._open):
                self._close(folder)
            return [file.record(self._task, landed.result()) for file, landed in self._closed]


@dataclass(frozen=True)
class WriteTask:
    """For `DataFrame.mapInArrow`: rows in, one row for each file out."""

    target: TaskTarget
    attempt: str
    """Of the driver: a task of one that died may still be writing."""
    layout: Layout
    kind: str
    whole: bool

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        attempt = f"{self.attempt}-{context.taskAttemptId()}"
        task, retries = context.partitionId(), context.attemptNumber()
        with self.target.working() as working:
            files = TaskFiles(working, self.layout, self.kind, self.whole, task, attempt, self.target)
            for batch in batches:
                files.write(batch)
            told = [{**each, "retries": retries} for each in files.close()]
        yield pa.RecordBatch.from_pylist(told, _ARROW)


def utc(batch: Any) -> Any:
    """The same with times in UTC, whatever zone the session shows them in."""
    wanted = pa.timestamp("us", tz="UTC")
    fields = [
        pa.field(field.name, wanted if pa.types.is_timestamp(field.type) else field.type) for field in batch.schema
    ]
    return batch.cast(pa.schema(fields))


def times(batch: Any) -> tuple[int, int] | None:
    """The first and the last time of enqueueing, in microseconds since 1970."""
    index = batch.schema.get_field_index("enqueued_time")
    if index < 0:
        return None
    found = [value for value in batch.column(index).cast(pa.int64()).to_pylist() if value is not None]
    return (min(found), max(found)) if found else None
