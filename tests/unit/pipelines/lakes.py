"""Batches for lakes, written as a task of Spark would, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from polybus.pipelines.file_writing import AVRO, PARQUET, TaskFiles
from polybus.pipelines.lake import Lake, LakeBatch, open_lake
from polybus.pipelines.layout import HIVE, Layout
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


def opened(root: Path, form: str, levels: tuple[str, ...] = HIVE, entity: str = "orders") -> Lake:
    return open_lake(form, root, Layout(levels, entity), {})


def write(lake: Lake, number: int, *parts: Any, query: str = QUERY, ends: str = "") -> bool:
    """One batch, each part by a task of its own; False where it was in already."""
    batch = LakeBatch(query, number, ends)
    if lake.committed(batch):
        return False
    staging = lake.folder.fresh_staging(batch.id)
    told: list[dict[str, Any]] = []
    for task, part in enumerate(parts):
        files = TaskFiles(staging, lake.layout, AVRO if lake.suffix == AVRO else PARQUET, lake.whole, task, "0")
        files.write(part)
        told += files.close()
    lake.commit(batch, lake.staged(batch, told), SCHEMA)
    return True
