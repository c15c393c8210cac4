"""Ranges as stored records, and stages of whole messages: what pipelines do so that the bus need not."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from polybus.message.message import build
from polybus.namespace.entities.description import QueueDescription, SubscriptionDescription, TopicDescription
from polybus.spark.record_columns import RecordColumns
from tests.system.http.bulk_kit import ARROW, Bulk
from tests.system.http.kit import Server

COLUMNS = ("partition", "position", "message_id", "properties", "state", "body")


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def queue(server: Server) -> str:
    name = f"q-{uuid.uuid4().hex}"
    server.wait(server.namespace.management.create(QueueDescription(path=name, enable_partitioning=True)))
    return name


def _stage(http: httpx.Client, queue: str, raws: list[bytes | None], kind: Any = None) -> httpx.Response:
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_arrays([pa.array(raws, kind or pa.binary())], names=["message"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    path = f"/$polybus/entities/{queue}/stage"
    return http.post(path, content=bytes(sink.getvalue()), headers={"Content-Type": ARROW})


def _fill(http: httpx.Client, entity: str, raws: list[bytes]) -> None:
    staged = _stage(http, entity, list(raws))
    assert staged.status_code == 201, staged.text
    body = {"stages": [staged.json()], "wait_seconds": 10}
    assert http.post(f"/$polybus/entities/{entity}/publish", json=body).json()["visible"] is True


def _records(http: httpx.Client, entity: str, ranges: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    query = {"format": "records", "ranges": ranges}
    answer = http.get(f"/$polybus/entities/{entity.replace('/', '%2F')}/range", params=query)
    assert answer.status_code == 200, answer.text
    rows: list[dict[str, Any]] = []
    end: dict[str, Any] = {}
    with pa.ipc.open_stream(answer.content) as reader:
        while True:
            try:
                batch, metadata = reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                return rows, end
            end = json.loads(metadata[b"polybus.end"]) if metadata else {}
            rows += RecordColumns(batch, COLUMNS).batch().to_pylist() if batch.num_rows else []


def test_several_ranges_come_in_one_answer_in_the_order_they_were_asked_for(http: httpx.Client, queue: str) -> None:
    raws = [
        build(b"%d" % number, message_id=str(number), partition_key=f"k{number}", application={"n": number}).raw
        for number in range(100)
    ]
    _fill(http, queue, raws)
    logs = Bulk(http, queue).log()
    wanted = [(index, log["stable_end"]) for index, log in reversed(logs.items()) if log["stable_end"]]
    rows, end = _records(http, queue, ",".join(f"{index}:1-{last}" for index, last in wanted))
    assert [(row["partition"], row["position"]) for row in rows] == [
        (index, position) for index, last in wanted for position in range(1, last + 1)
    ]
    assert sorted(int(row["body"]) for row in rows) == list(range(100))
    assert all(row["properties"] == [("n", row["message_id"])] and row["state"] == "active" for row in rows)
    assert end == {"ranges": [{"partition": index, "complete_to": last} for index, last in wanted]}


def test_what_was_settled_and_is_kept_says_so_and_what_is_gone_is_left_out(http: httpx.Client, queue: str) -> None:
    raws = [build(b"%d" % number, partition_key="one").raw for number in range(4)]
    _fill(http, queue, raws)
    assert http.delete(f"/{queue}/messages/head?timeout=5").status_code == 200
    index = next(index for index, log in Bulk(http, queue).log().items() if log["stable_end"])
    http.put(f"/$polybus/entities/{queue}/cursors/c", json={"start": "earliest"}).raise_for_status()
    assert http.delete(f"/{queue}/messages/head?timeout=5").status_code == 200
    rows, end = _records(http, queue, f"{index}:1-99")
    assert [(row["position"], row["state"]) for row in rows] == [(2, "settled"), (3, "active"), (4, "active")]
    assert end == {"ranges": [{"partition": index, "complete_to": 4}]}


def test_bodies_that_several_subscriptions_share_are_inside(http: httpx.Client, server: Server) -> None:
    topic = f"t-{uuid.uuid4().hex}"
    server.wait(server.namespace.management.create(TopicDescription(path=topic)))
    for name in ("a", "b"):
        server.wait(server.namespace.management.create_subscription(SubscriptionDescription(topic=topic, name=name)))
    _fill(http, topic, [build(b"x" * 5000, message_id="shared").raw])
    rows, _ = _records(http, f"{topic}/Subscriptions/b", "0:1-1")
    assert [(row["message_id"], row["body"]) for row in rows] == [("shared", b"x" * 5000)]


@pytest.mark.parametrize("ranges", ["", "0", "0:1", "0:1-x", "x:1-2", "0:1-2,", "99:1-2", ",".join(["0:1-2"] * 101)])
def test_ranges_that_cannot_be_read_are_refused(http: httpx.Client, queue: str, ranges: str) -> None:
    answer = http.get(f"/$polybus/entities/{queue}/range", params={"format": "records", "ranges": ranges})
    assert answer.status_code == 400


def test_a_message_that_is_none_fails_its_stage_by_its_row(http: httpx.Client, queue: str) -> None:
    good = build(b"good").raw
    for bad, why in (
        (b"\x00\x53\x75\xa0\x05x", "Row 1"),
        (b"nonsense", "Row 1"),
        (build(b"x").raw[:-1] + b"", "Row 1"),
    ):
        answer = _stage(http, queue, [good, bad])
        assert answer.status_code == 400
        assert why in answer.text
    too_long = b"\x00\x53\x73\xc0\x86\x01\xa1\x83" + b"k" * 131 + b"\x00\x53\x75\xa0\x00"
    assert "Row 1: The MessageId" in _stage(http, queue, [good, too_long]).text


def test_messages_must_be_bytes_and_all_there(http: httpx.Client, queue: str) -> None:
    assert _stage(http, queue, [None]).status_code == 400
    assert _stage(http, queue, ["text"], pa.string()).status_code == 400  # type: ignore[list-item]
