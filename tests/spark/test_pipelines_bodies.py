"""Captures that take bodies apart: columns beside the bytes, and a quarantine for what does not fit."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from azure.servicebus import ServiceBusMessage

from polybus.pipelines.lake_reading import lake_frame
from tests.spark.kit import Kit
from tests.spark.pipelines_kit import forget_last_commit, run
from tests.spark.test_pipelines_capture import FORMATS, capture, lake, with_arrow
from tests.unit.pipelines.lakes import avro_table

AVRO = {
    "type": "record",
    "name": "order",
    "fields": [{"name": "id", "type": "long"}, {"name": "lines", "type": {"type": "array", "items": "string"}}],
}


def send(kit: Kit, queue: str, *bodies: Any) -> None:
    kit.send(queue, [ServiceBusMessage(body if isinstance(body, bytes) else json.dumps(body)) for body in bodies])


def rows(kit: Kit, pipeline: dict[str, Any], *names: str) -> list[tuple[Any, ...]]:
    """What the table has in these columns, by the means of its format."""
    table = with_arrow(kit, lake(kit, pipeline), pipeline["to"]["format"])
    return sorted(zip(*(table.column(name).to_pylist() for name in names), strict=True), key=str)


def cities(kit: Kit, pipeline: dict[str, Any]) -> dict[int, str | None]:
    """Two columns, of which files of the first batch have one; files without a table are joined by their columns."""
    opened, form = lake(kit, pipeline), pipeline["to"]["format"]
    if form in ("delta", "iceberg"):
        return dict(rows(kit, pipeline, "data_id", "data_city"))
    if form == "parquet":
        frame = kit.spark.read.option("mergeSchema", "true").parquet(*map(str, opened.files()))
        return {row.data_id: row.data_city for row in frame.collect()}
    parts = [avro_table(path) for path in opened.files()]
    table = pa.concat_tables(parts, promote_options="default")
    return dict(zip(table.column("data_id").to_pylist(), table.column("data_city").to_pylist(), strict=True))


def quarantined(kit: Kit) -> list[tuple[bytes, str]]:
    table = ds.dataset(str(kit.folder / "lake-quarantine"), format="parquet", partitioning="hive").to_table()
    return sorted(
        zip(table.column("body").to_pylist(), table.column("quarantine_reason").to_pylist(), strict=True), key=str
    )


@pytest.mark.parametrize("form", FORMATS)
def test_json_by_a_schema_that_is_inferred_once_and_gains_columns(kit: Kit, form: str) -> None:
    queue = kit.queue()
    pipeline = capture(queue, form, body="json")
    send(kit, queue, {"id": 1, "total": 2.5}, {"id": 2, "total": 3.0})
    said = run(kit, pipeline)
    assert rows(kit, pipeline, "data_id", "data_total") == [(1, 2.5), (2, 3.0)]
    send(kit, queue, {"id": 3, "total": 1.0, "city": "Bern"})
    run(kit, pipeline)
    assert cities(kit, pipeline) == {1: None, 2: None, 3: "Bern"}
    kept = json.loads((kit.folder / "checkpoints" / "cap" / "body-schema.json").read_text())
    assert [field["name"] for field in kept["fields"]] == ["id", "total", "city"]
    last = said.pipelines[0].history.runs()[0]
    assert last.rows == 2
    assert last.files > 0


def test_what_does_not_fit_is_quarantined_with_its_reason_and_can_be_sent_again(kit: Kit) -> None:
    queue, repaired = kit.queue(), kit.queue("-repaired")
    pipeline = capture(queue, "parquet", body={"as": "json", "schema": "id BIGINT, at TIMESTAMP"})
    send(kit, queue, {"id": 1, "at": "2026-01-31T12:00:00Z"}, {"id": "seven"}, b"no json", b"\xff\xfe")
    run(kit, pipeline)
    assert [number for number, _ in rows(kit, pipeline, "data_id", "data_at")] == [1]
    assert quarantined(kit) == [
        (b"\xff\xfe", "the body is not UTF-8"),
        (b"no json", "the body is not JSON of the schema"),
        (b'{"id": "seven"}', "the body is not JSON of the schema"),
    ]
    again = {
        "name": "again",
        "kind": "replay",
        "from": {"path": "lake-quarantine"},
        "to": repaired,
        "sql": "select enqueued_time, replace(cast(body as string), '\"seven\"', '7') as body from lake"
        " where cast(body as string) like '%seven%'",
    }
    run(kit, again)
    assert [str(message) for message in kit.drain(repaired, 1)] == ['{"id": 7}']


def test_a_batch_that_is_repeated_doubles_nothing_in_the_table_nor_in_the_quarantine(kit: Kit) -> None:
    queue = kit.queue()
    pipeline = capture(queue, "parquet", body="json")
    send(kit, queue, {"id": 1}, b"bad")
    run(kit, pipeline)
    forget_last_commit(kit, "cap")
    run(kit, pipeline)
    assert rows(kit, pipeline, "data_id") == [(1,)]
    assert [body for body, _ in quarantined(kit)] == [b"bad"]


def test_text(kit: Kit) -> None:
    queue = kit.queue()
    pipeline = capture(queue, "parquet", body="text")
    send(kit, queue, "grüezi".encode(), b"\xff")
    run(kit, pipeline)
    assert rows(kit, pipeline, "data_text") == [("grüezi",)]
    assert quarantined(kit) == [(b"\xff", "the body is not UTF-8")]


def test_avro(kit: Kit) -> None:
    import fastavro

    queue = kit.queue()
    pipeline = capture(queue, "parquet", body={"as": "avro", "schema": json.dumps(AVRO)})
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), {"id": 7, "lines": ["a", "b"]})
    send(kit, queue, out.getvalue(), b"", out.getvalue() + b"more")
    run(kit, pipeline)
    assert rows(kit, pipeline, "data_id", "data_lines") == [(7, ["a", "b"])]
    assert [reason for _, reason in quarantined(kit)] == ["the body is not Avro of the schema"] * 2


def test_cloudevents_in_structured_and_in_binary_mode(kit: Kit) -> None:
    queue = kit.queue()
    pipeline = capture(queue, "parquet", body="cloudevents")
    event = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "paid", "data": {"total": 5}}
    attributes = {f"cloudEvents:{name}": value for name, value in {**event, "id": "2"}.items() if name != "data"}
    kit.send(
        queue,
        [
            ServiceBusMessage(json.dumps({**event, "time": "2026-01-31T12:00:00Z"})),
            ServiceBusMessage('{"total": 6}', application_properties=attributes),
            ServiceBusMessage('{"total": 7}'),
        ],
    )
    run(kit, pipeline)
    assert rows(kit, pipeline, "event_id", "event_type", "data_total") == [("1", "paid", 5), ("2", "paid", 6)]
    assert quarantined(kit) == [(b'{"total": 7}', "the message is no CloudEvent")]


def test_a_compaction_joins_files_from_before_and_after_a_new_column(kit: Kit) -> None:
    from polybus.pipelines.compacting import compact_capture
    from tests.spark.pipelines_kit import declared

    queue = kit.queue(enable_partitioning=False)
    pipeline = capture(queue, "parquet", body="json", to={"layout": "flat"})
    send(kit, queue, {"id": 1})
    run(kit, pipeline)
    send(kit, queue, {"id": 2, "city": "Bern"})
    run(kit, pipeline)
    (kind,) = declared(kit, pipeline).pipelines
    done = compact_capture(kind, "256m", "0s")
    assert (done.files_before, done.files_after) == (2, 1)
    frame = lake_frame(kit.spark, kind.place)  # type: ignore[attr-defined]
    assert sorted(tuple(row) for row in frame.select("data_id", "data_city").collect()) == [(1, None), (2, "Bern")]
