"""Batches for lakes, written as a task of Spark would, without Spark."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from polybus.pipelines.avro import arrow_schema_of, read_avro
from polybus.pipelines.file_writing import AVRO, PARQUET, TaskFiles
from polybus.pipelines.lake import Lake, LakeBatch, open_lake
from polybus.pipelines.layout import HIVE, Layout
from polybus.pipelines.manifests import ManifestFolder
from polybus.pipelines.object_stores import Location
from polybus.spark.columns import COLUMNS, arrow_schema

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SCHEMA = arrow_schema(tuple(COLUMNS))
QUERY = "1f0c2a9e-1111-2222-3333-444455556666"
FORMATS = ("parquet", "avro", "delta", "iceberg")


def rows(first: int, count: int, seconds: int = 60) -> Any:
    """Messages of two partitions, one each so many seconds around noon."""
    empty = dict.fromkeys(COLUMNS)
    return pa.RecordBatch.from_pylist(
        [
            {
                **empty,
                "partition": number % 2,
                "position": number,
                "sequence_number": number,
                "delivery_count": 0,
                "enqueued_time": NOON + timedelta(seconds=(number - 10) * seconds),
                "message_id": f"id {number}",
                "properties": [("number", str(number))],
                "body": f"message {number}".encode(),
            }
            for number in range(first, first + count)
        ],
        SCHEMA,
    )


def opened(root: Location, form: str, levels: tuple[str, ...] = HIVE, entity: str = "orders") -> Lake:
    return open_lake(form, root, Layout(levels, entity), {})


def staging(lake: Lake, identity: str) -> Path:
    """Where a task would write the files of a batch, in a folder of this machine."""
    assert isinstance(lake.folder, ManifestFolder)
    return lake.folder.fresh_staging(identity)


def avro_table(path: str | Path) -> Any:
    """A file as a plain reader has it."""
    with Path(path).open("rb") as source:
        schema = arrow_schema_of(source)
        source.seek(0)
        return pa.Table.from_batches(read_avro(source, schema), schema)


def write(lake: Lake, number: int, *parts: Any, query: str = QUERY, ends: str = "") -> bool:
    """One batch, each part by a task of its own; False where it was in already."""
    batch = LakeBatch(query, number, ends)
    if lake.committed(batch):
        return False
    target = lake.folder.begin(batch.id)
    told: list[dict[str, Any]] = []
    for task, part in enumerate(parts):
        with target.working() as working:
            form = AVRO if lake.suffix == AVRO else PARQUET
            files = TaskFiles(working, lake.layout, form, lake.whole, task, uuid.uuid4().hex[:8], target)
            files.write(part)
            told += files.close()
    lake.commit(batch, lake.staged(batch, told), SCHEMA)
    return True
