"""Captures: an entity into every kind of table, each message once, read back with Spark, Arrow and DuckDB."""

from __future__ import annotations

import shutil
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from polybus.pipelines.avro import SPARK_FORMAT
from polybus.pipelines.capture import CaptureKind
from polybus.pipelines.compacting import compact_capture
from polybus.pipelines.kind import Context
from polybus.pipelines.lake import Lake
from polybus.pipelines.lake_reading import lake_frame
from polybus.pipelines.runner import PipelineFailed
from tests.spark.kit import Kit
from tests.spark.pipelines_kit import checkpoint, declared, forget_last_commit, run
from tests.unit.pipelines.lakes import avro_table

FORMATS = ("parquet", "avro", "delta", "iceberg")


def capture(queue: str, form: str, **fields: Any) -> dict[str, Any]:
    to = {"path": "lake", "format": form, **fields.pop("to", {})}
    return {"name": "cap", "kind": "capture", "from": queue, "to": to, **fields}


def lake(kit: Kit, pipeline: dict[str, Any]) -> Lake:
    (kind,) = declared(kit, pipeline).pipelines
    assert isinstance(kind, CaptureKind)
    return kind.lake()


def with_arrow(kit: Kit, opened: Lake, form: str) -> Any:
    """The table as Arrow has it, by the means of its format."""
    if form == "parquet":
        return ds.dataset(str(opened.root), format="parquet", partitioning="hive").to_table()
    if form == "avro":
        return pa.concat_tables(avro_table(path) for path in opened.files())
    if form == "delta":
        from deltalake import DeltaTable

        return DeltaTable(str(opened.root)).to_pyarrow_dataset().to_table()
    return opened.table().scan().to_arrow()  # type: ignore[attr-defined]


def with_duckdb(opened: Lake, form: str, captured: Any) -> list[Any]:
    """From the files themselves; of Avro, which DuckDB reads only with an extension, from Arrow."""
    files = [str(path) for path in opened.files()]
    source = "captured" if form == "avro" else f"read_parquet({files})"
    return duckdb.sql(f"select body from {source}").fetchall()


def with_spark(kit: Kit, opened: Lake, form: str) -> list[Any]:
    reading = kit.spark.read.format(SPARK_FORMAT if form == "avro" else "parquet")
    if form in ("parquet", "avro"):
        return reading.load(str(opened.root)).select("body").collect()
    return reading.load([str(path) for path in opened.files()]).select("body").collect()


def bodies(rows: list[Any]) -> list[str]:
    return sorted(bytes(row[0]).decode() for row in rows)


@pytest.mark.parametrize("form", FORMATS)
def test_a_capture_is_read_back_with_spark_arrow_and_duckdb_also_after_its_last_batch_is_repeated(
    kit: Kit, form: str
) -> None:
    queue = kit.queue()
    sent = kit.fill(queue, 120)
    pipeline = capture(queue, form, maxMessages=60)
    runner = run(kit, pipeline)
    assert runner.metrics.get("polybus_pipeline_rows_total", pipeline="cap") == 120
    forget_last_commit(kit, "cap")
    run(kit, pipeline)
    opened = lake(kit, pipeline)
    table = with_arrow(kit, opened, form)
    assert sorted(table.column("body").to_pylist()) == sorted(body.encode() for body in sent)
    assert bodies(with_duckdb(opened, form, table)) == sorted(sent)
    assert bodies(with_spark(kit, opened, form)) == sorted(sent)


def test_a_capture_goes_on_with_what_is_new_after_a_compaction_and_a_repeated_batch(kit: Kit) -> None:
    queue = kit.queue()
    sent = kit.fill(queue, 60)
    pipeline = capture(queue, "parquet", maxMessages=20)
    run(kit, pipeline)
    (kind,) = declared(kit, pipeline).pipelines
    assert isinstance(kind, CaptureKind)
    done = compact_capture(kind, "256m", "0s")
    assert done.files_after < done.files_before
    forget_last_commit(kit, "cap")
    sent |= kit.fill(queue, 30, first=60)
    run(kit, pipeline)
    assert bodies(with_spark(kit, kind.lake(), "parquet")) == sorted(sent)
    frame = lake_frame(kit.spark, kind.place)
    assert bodies(frame.select("body").collect()) == sorted(sent)
    assert {"entity", "date", "hour", "partition", "position"} <= set(frame.columns)
    assert {row.entity for row in frame.select("entity").distinct().collect()} == {queue}


def test_a_checkpoint_that_was_copied_back_is_refused_and_a_new_one_goes_on(kit: Kit) -> None:
    queue = kit.queue()
    pipeline = capture(queue, "parquet", to={"layout": "flat"})
    sent = kit.fill(queue, 10)
    run(kit, pipeline)
    kept = kit.folder / "kept"
    shutil.copytree(checkpoint(kit, "cap"), kept)
    sent |= kit.fill(queue, 10, first=10)
    run(kit, pipeline)
    shutil.rmtree(checkpoint(kit, "cap"))
    shutil.copytree(kept, checkpoint(kit, "cap"))
    sent |= kit.fill(queue, 10, first=20)
    with pytest.raises(PipelineFailed, match="has batch 1 of this query, and the checkpoint is at an earlier state"):
        run(kit, pipeline)
    shutil.rmtree(checkpoint(kit, "cap"))
    pipeline["from"] = {"entity": queue, "options": {"takeLease": True}}
    run(kit, pipeline)
    assert set(bodies(with_spark(kit, lake(kit, pipeline), "parquet"))) == sent


def test_what_was_completed_before_a_capture_came_to_it_is_captured(kit: Kit) -> None:
    queue = kit.queue()
    pipeline = capture(queue, "parquet", to={"layout": "flat"})
    run(kit, pipeline)
    sent = kit.fill(queue, 40)
    kit.drain(queue, 40)
    run(kit, pipeline)
    assert bodies(with_spark(kit, lake(kit, pipeline), "parquet")) == sorted(sent)


def test_a_capture_is_due_when_as_much_waits_as_a_batch_may_have(kit: Kit) -> None:
    queue = kit.queue()
    pipeline = capture(queue, "parquet", maxMessages=50)
    kit.fill(queue, 49)
    (kind,) = declared(kit, pipeline).pipelines
    assert isinstance(kind, CaptureKind)
    context = Context(checkpoint(kit, "cap"), once=False)
    assert not kind.due(context)
    kit.fill(queue, 1, first=49)
    assert kind.due(context)
    run(kit, pipeline)
    assert not kind.due(context)
    (by_size,) = declared(kit, capture(queue, "parquet", maxBytes="1k")).pipelines
    assert isinstance(by_size, CaptureKind)
    assert not by_size.due(context)
    kit.fill(queue, 20, first=50)
    assert by_size.due(context)
    assert not kind.due(context)


def test_a_layout_needs_its_columns(kit: Kit) -> None:
    queue = kit.queue()
    pipeline = capture(queue, "parquet")
    pipeline["from"] = {"entity": queue, "options": {"columns": "body,partition"}}
    with pytest.raises(PipelineFailed, match="the layout has 'date', so 'columns' must have 'enqueued_time'"):
        run(kit, pipeline)
    pipeline["to"]["layout"] = ["partition"]
    sent = kit.fill(queue, 5)
    run(kit, pipeline)
    opened = lake(kit, pipeline)
    assert set(with_arrow(kit, opened, "parquet").column_names) == {"body", "partition"}
    assert bodies(with_spark(kit, opened, "parquet")) == sorted(sent)
