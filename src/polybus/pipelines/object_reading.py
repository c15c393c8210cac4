"""Files of an object store as a DataFrame, read by tasks in Python: Spark itself has no driver for these stores.

Files may differ in their columns, for bodies gain some; the frame has all of them, as far as one type fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from polybus.limits import OBJECT_READS
from polybus.pipelines.avro import arrow_schema_of, read_avro
from polybus.pipelines.file_writing import AVRO
from polybus.pipelines.iceberg import iceberg_location
from polybus.pipelines.layout import levels_in
from polybus.pipelines.merging import widened
from polybus.pipelines.object_folder import ObjectFolder
from polybus.pipelines.object_stores import ObjectUrl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LEVELS: Final = {"entity": pa.string(), "date": pa.date32(), "hour": pa.int32(), "partition": pa.int32()}
_FILES_PER_TASK: Final = 4


def object_frame(session: SparkSession, url: ObjectUrl, form: str, files: list[str]) -> DataFrame:
    """The rows of some files, with the folders' names as columns where the files have them not."""
    from pyspark.sql.pandas.types import from_arrow_schema

    start = f"{iceberg_location(url) if form == 'iceberg' else url}/"
    names = [each.removeprefix(start) for each in files if each.startswith(start)]
    schema = _unified(ObjectFolder(url), names)
    tasks = max(min(len(names) // _FILES_PER_TASK + 1, session.sparkContext.defaultParallelism * 4), 1)
    listed = session.createDataFrame([(name,) for name in names], "name string").repartition(tasks)
    return listed.mapInArrow(ReadTask(url, schema), from_arrow_schema(schema))


def _unified(folder: ObjectFolder, names: list[str]) -> Any:
    with ThreadPoolExecutor(OBJECT_READS) as readers:
        found = list(readers.map(lambda name: _schema(folder, name), names))
    # Different schemas are few, files are many.
    return pa.unify_schemas(list(dict.fromkeys(found)), promote_options="permissive")


def _schema(folder: ObjectFolder, name: str) -> Any:
    with folder.open(name) as source:
        own = arrow_schema_of(source) if name.endswith(f".{AVRO}") else pq.read_schema(source)
    told = [(level, _LEVELS.get(level, pa.string())) for level in levels_in(name) if level not in own.names]
    return pa.schema([*own.remove_metadata(), *told])


@dataclass(frozen=True)
class ReadTask:
    """For `mapInArrow`: names of files in, their rows out. Secrets are looked up in the worker."""

    url: ObjectUrl
    schema: Any

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        folder = ObjectFolder(self.url)
        for batch in batches:
            for name in batch.column("name").to_pylist():
                for part in _parts(folder, name):
                    yield widened(_with_levels(part, name), self.schema)


def _parts(folder: ObjectFolder, name: str) -> Iterator[Any]:
    with folder.open(name) as source:
        if name.endswith(f".{AVRO}"):
            schema = arrow_schema_of(source)
            source.seek(0)
            yield from read_avro(source, schema)
            return
        with pq.ParquetFile(source) as file:
            yield from file.iter_batches()


def _with_levels(batch: Any, name: str) -> Any:
    for level, value in levels_in(name).items():
        if level not in batch.schema.names:
            kind = _LEVELS.get(level, pa.string())
            column = pa.array([value] * batch.num_rows, pa.string())
            batch = batch.append_column(level, column.cast(kind))
    return batch
