"""Staged rows and published epochs: seen once or never, whatever is repeated, aborted, crashed or down."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from polybus.clock import MovableClock
from polybus.hashing import partition_for
from polybus.message.message import build
from polybus.namespace.entities.description import QueueDescription, SubscriptionDescription, TopicDescription
from tests.system.http.bulk_kit import ARROW, Bulk, arrow
from tests.system.http.kit import Disk, RocksDisk, Server


@pytest.fixture
def server(certificates: Path) -> Iterator[Server]:
    server = Server(certificates, clock=MovableClock(frozen=True)).start()
    yield server
    server.stop()


def create(server: Server, name: str, **options: Any) -> None:
    server.wait(server.namespace.management.create(QueueDescription(path=name, **options)))


def rows(count: int, start: int = 0, **columns: Any) -> list[dict[str, Any]]:
    return [{"body": f"r{number}".encode(), **columns} for number in range(start, start + count)]


def bodies(http: httpx.Client, path: str) -> list[str]:
    found = []
    while (got := http.delete(f"/{path}/messages/head?timeout=0")).status_code == 200:
        found.append(got.content.decode())
    return found


@pytest.mark.parametrize("partitioned", [False, True])
def test_nothing_is_seen_before_it_is_published(server: Server, partitioned: bool) -> None:
    create(server, "q", enable_partitioning=partitioned)
    with server.client() as http:
        bulk = Bulk(http, "q")
        first = bulk.stage(rows(700), producer="p", query="a")
        second = bulk.stage(rows(5, 700), producer="p", query="a")
        assert (first["rows"], second["rows"]) == (700, 5)
        assert http.get("/q/messages").status_code == 204
        assert server.do(lambda: server.namespace.entity("q").counts().result()).size_bytes > 0
        published = bulk.publish("p", "a", 0, [first, second])
        assert published == {"published": True, "epoch": 0, "visible": True}
        assert sorted(bodies(http, "q")) == sorted(f"r{number}" for number in range(705))
        assert server.do(lambda: server.namespace.entity("q").counts().result()).size_bytes == 0
        assert server.bus.publishing.pending == 0


def test_every_column_arrives(server: Server) -> None:
    create(server, "q")
    row = {
        "body": "text",
        "message_id": "m",
        "session_id": "s",
        "partition_key": "s",
        "subject": "subject",
        "correlation_id": "c",
        "to": "to",
        "reply_to": "r",
        "reply_to_session_id": "rs",
        "content_type": "text/plain",
        "time_to_live": 60.5,
        "properties": {"a": "1", "b": "x"},
    }
    pairs = pa.map_(pa.string(), pa.string())
    names = [name for name in row if name != "properties"]
    schema = pa.schema(
        [(name, pa.float64() if name == "time_to_live" else pa.string()) for name in names] + [("properties", pairs)]
    )
    with server.client() as http:
        bulk = Bulk(http, "q")
        as_arrow = http.post(
            "/$polybus/entities/q/stage", content=arrow([row], schema), headers={"Content-Type": ARROW}
        )
        as_lines = http.post("/$polybus/entities/q/stage", content=json.dumps(row) + "\n")
        for epoch, staged in enumerate((as_arrow, as_lines)):
            assert staged.status_code == 201, staged.text
            bulk.publish("p", "a", epoch, [staged.json()])
            got = http.delete("/q/messages/head?timeout=0")
            shown = json.loads(got.headers["BrokerProperties"])
            assert (got.content, got.headers["content-type"]) == (b"text", "text/plain")
            assert (got.headers["a"], got.headers["b"]) == ('"1"', '"x"')
            assert shown["TimeToLive"] == 60.5
            expected = {
                "MessageId": "m",
                "SessionId": "s",
                "PartitionKey": "s",
                "Label": "subject",
                "CorrelationId": "c",
                "To": "to",
                "ReplyTo": "r",
                "ReplyToSessionId": "rs",
            }
            assert {name: shown[name] for name in expected} == expected


def test_rows_go_where_their_keys_say(server: Server) -> None:
    create(server, "q", enable_partitioning=True)
    with server.client() as http:
        bulk = Bulk(http, "q")
        keyed = [{"body": b"x", "partition_key": f"k{number}"} for number in range(100)]
        staged = bulk.stage(keyed)
        wanted = {partition_for(row["partition_key"], 16) for row in keyed}  # type: ignore[arg-type]
        assert staged["partitions"] == sorted(wanted)
        bulk.publish("p", "a", 1, [staged])
        for row in bulk.everything():
            assert row["partition"] == partition_for(row["partition_key"], 16)
        unkeyed = bulk.stage(rows(10))
        assert len(unkeyed["partitions"]) == 1


def test_an_epoch_is_published_once_for_its_query(server: Server) -> None:
    create(server, "q")
    with server.client() as http:
        bulk = Bulk(http, "q")
        first = bulk.stage(rows(3), producer="p", query="a")
        assert bulk.publish("p", "a", 7, [first])["published"] is True
        # The driver did not hear the answer and asks again; then it does the batch again, with new stages.
        assert bulk.publish("p", "a", 7, [first]) == {"published": False, "epoch": 7, "visible": True}
        again = bulk.stage(rows(3), producer="p", query="a")
        assert bulk.publish("p", "a", 7, [again])["published"] is False
        assert bulk.publish("p", "a", 3, [again])["published"] is False
        assert sorted(bodies(http, "q")) == ["r0", "r1", "r2"]
        assert server.do(lambda: server.namespace.entity("q").counts().result()).size_bytes == 0
        assert bulk.publish("p", "a", 8, []) == {"published": False, "epoch": 7, "visible": True}
        assert bulk.get("producers/p") == {"name": "p", "query": "a", "epoch": 7}
        assert http.get("/$polybus/entities/q/producers/nobody").status_code == 404


def test_a_new_query_takes_over_and_the_old_one_is_fenced(server: Server) -> None:
    create(server, "q")
    with server.client() as http:
        bulk = Bulk(http, "q")
        old = bulk.stage(rows(1), producer="p", query="a")
        bulk.publish("p", "a", 40, [old])
        late = bulk.stage(rows(1, 10), producer="p", query="a")
        new = bulk.stage(rows(1, 1), producer="p", query="b")

        def refused(what: str, **body: Any) -> httpx.Response:
            response = http.post(f"/$polybus/entities/q/{what}", json=body)
            assert response.status_code == 409
            assert "SubCode=40903" in response.text
            return response

        refused("publish", producer="p", query="a", epoch=41, stages=[late])
        refused("stage?producer=p&query=a")
        assert bulk.publish("p", "b", 0, [new]) == {"published": True, "epoch": 0, "visible": True}
        refused("publish", producer="p", query="a", epoch=41, stages=[late])
        assert bulk.publish("other", "a", 0, [late])["published"] is True
        assert sorted(bodies(http, "q")) == ["r0", "r1", "r10"]


def test_aborted_stages_are_gone_and_published_ones_stay(server: Server) -> None:
    create(server, "q", enable_partitioning=True)
    with server.client() as http:
        bulk = Bulk(http, "q")
        dropped, kept = bulk.stage(rows(20)), bulk.stage(rows(20, 20))
        bulk.post("abort", {"stages": [dropped]})
        assert bulk.publish("p", "a", 0, [dropped, kept])["published"] is True
        bulk.post("abort", {"stages": [kept]})
        assert sorted(bodies(http, "q")) == sorted(f"r{number}" for number in range(20, 40))
        assert server.do(lambda: server.namespace.entity("q").counts().result()).size_bytes == 0


def test_a_topic_applies_its_rules_and_duplicates_are_found_when_published(server: Server) -> None:
    management = server.namespace.management
    topic = TopicDescription(path="t", requires_duplicate_detection=True, enable_partitioning=True)
    server.wait(management.create(topic))
    server.wait(management.create_subscription(SubscriptionDescription(topic="t", name="s")))
    with server.client() as http:
        bulk = Bulk(http, "t")
        ids = [{"body": b"x", "message_id": f"id{number % 10}"} for number in range(30)]
        bulk.publish("p", "a", 0, [bulk.stage(ids)])
        bulk.publish("p", "a", 1, [bulk.stage(ids)])
        assert len(bodies(http, "t/subscriptions/s")) == 10


def test_scheduled_rows_wait_for_their_time(server: Server) -> None:
    create(server, "q")
    due = datetime.datetime(2400, 1, 1, tzinfo=datetime.UTC)
    with server.client() as http:
        bulk = Bulk(http, "q")
        bulk.publish("p", "a", 0, [bulk.stage([{"body": b"x", "scheduled_enqueue_time": due}])])
        assert server.do(lambda: server.namespace.entity("q").counts().result()).scheduled == 1


def test_orphans_expire_after_a_day_and_published_ones_do_not(server: Server) -> None:
    create(server, "q")
    with server.client() as http:
        bulk = Bulk(http, "q")
        orphan = bulk.stage(rows(3))
        server.do(lambda: server.clock.advance(86_000_000))
        server.do(server.bus.clock_moved)
        young = bulk.stage(rows(3, 10))
        server.do(lambda: server.clock.advance(1_000_000))
        server.do(server.bus.clock_moved)
        bulk.publish("p", "a", 0, [orphan, young])
        assert sorted(bodies(http, "q")) == ["r10", "r11", "r12"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"body": "x"}\n{"body": 5}', "Row 1"),
        (b'{"body": "x"}\n{"message_id": "m"}', "body"),
        (b'{"body": "x"}\nnonsense', "row 1"),
        (b'{"body": "x"}\n[1]', "Row 1"),
        (b'{"body": "x", "colour": "red"}', "colour"),
        (b'{"body": "x", "message_id": 5}', "message_id"),
        (b'{"body": "x", "session_id": "a", "partition_key": "b"}', "PartitionKey"),
        (b'{"body": "x", "time_to_live": -1}', "time_to_live"),
        (b'{"body": "x", "scheduled_enqueue_time": "soon"}', "Row 0"),
        (b'{"body": "x", "properties": [1]}', "properties"),
        (b'{"body": "x", "properties": {"a": {}}}', "plain value"),
        (b'{"body": "x", "message_id": "' + b"m" * 129 + b'"}', "128"),
        (b'{"body_base64": "%"}', "base64"),
    ],
)
def test_a_row_that_is_no_message_fails_the_stage(server: Server, body: bytes, text: str) -> None:
    create(server, "q")
    with server.client() as http:
        good = b'{"body": "fine"}\n' * 250
        refused = http.post("/$polybus/entities/q/stage", content=good * 0 + body)
        assert refused.status_code == 400
        assert text in refused.text
        late = http.post("/$polybus/entities/q/stage", content=good + body)
        assert late.status_code == 400
        server.wait_until(lambda: server.namespace.entity("q").counts().result().size_bytes == 0)


def test_a_bad_row_behind_blocks_that_are_on_their_way_to_the_disk_leaves_nothing(
    certificates: Path, tmp_path: Path
) -> None:
    server = Server(certificates, disks=[RocksDisk(tmp_path / "0")], catalogue=RocksDisk(tmp_path / "c")).start()
    create(server, "q", enable_partitioning=True)
    good = [{"body": bytes(1_000), "partition_key": f"k{number % 40}"} for number in range(5_000)]
    with server.client() as http:
        body = arrow([*good, {"body": bytes(300_000), "partition_key": "k"}])
        refused = http.post("/$polybus/entities/q/stage", content=body, headers={"Content-Type": ARROW})
        assert refused.status_code == 403
        assert "Row 5000" in refused.text
        partitions = server.namespace.entity("q").partitions
        left = server.do(lambda: [len(partition.require().stages.open) for partition in partitions])
        assert (sum(left), server.do(lambda: server.namespace.entity("q").counts().result()).size_bytes) == (0, 0)
    server.stop()


def test_unknown_columns_become_properties_where_that_is_asked_for(server: Server) -> None:
    create(server, "q")
    with server.client() as http:
        bulk = Bulk(http, "q")
        staged = bulk.stage([{"body": b"x", "colour": "red", "n": 5}], unknown="properties")
        bulk.publish("p", "a", 0, [staged])
        got = http.delete("/q/messages/head?timeout=0")
        assert (got.headers["colour"], got.headers["n"]) == ('"red"', "5")


def test_hostile_arrow_is_refused(server: Server) -> None:
    create(server, "q")
    fine = arrow(rows(100))
    table = pa.Table.from_pylist(rows(10_000))
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    bomb = pa.RecordBatch.from_arrays([pa.nulls(50_000_000)], names=["body"])
    huge = pa.BufferOutputStream()
    with pa.ipc.new_stream(huge, bomb.schema) as writer:
        writer.write_batch(bomb)
    twice = pa.BufferOutputStream()
    with pa.ipc.new_stream(twice, pa.schema([("body", pa.string()), ("body", pa.string())])):
        pass
    hostile = [
        b"",
        b"\xff" * 1000,
        fine[:-200],
        fine[:100],
        sink.getvalue().to_pybytes(),
        huge.getvalue().to_pybytes(),
        twice.getvalue().to_pybytes(),
    ]
    hostile += [fine[:place] + bytes([fine[place] ^ 0xFF]) + fine[place + 1 :] for place in range(0, 400, 7)]
    with server.client() as http:
        for body in hostile[:7]:
            refused = http.post("/$polybus/entities/q/stage", content=body, headers={"Content-Type": ARROW})
            assert refused.status_code == 400, refused.text
        for body in hostile[7:]:
            answered = http.post("/$polybus/entities/q/stage", content=body, headers={"Content-Type": ARROW})
            assert answered.status_code in (201, 400), answered.text


def test_a_message_that_is_too_large_fails_the_stage(server: Server) -> None:
    create(server, "q")
    with server.client() as http:
        body = arrow([{"body": b"x"}, {"body": b"x" * 300_000}])
        refused = http.post("/$polybus/entities/q/stage", content=body, headers={"Content-Type": ARROW})
        assert refused.status_code == 403
        assert "Row 1" in refused.text


@pytest.mark.parametrize(
    "change",
    [
        {"stage": "zz"},
        {"stage": "00"},
        {"stage": None},
        {"entity": "nowhere"},
        {"entity_id": "1-1"},
        {"partitions": [16]},
        {"partitions": [-1]},
        {"partitions": ["0"]},
        {"partitions": [0.0]},
        {"partitions": None},
    ],
)
def test_a_stage_must_be_what_staging_answered(server: Server, change: dict[str, Any]) -> None:
    create(server, "q")
    with server.client() as http:
        staged = Bulk(http, "q").stage(rows(1))
        body = {"producer": "p", "query": "a", "epoch": 0, "stages": [{**staged, **change}]}
        refused = http.post("/$polybus/entities/q/publish", json=body)
        assert refused.status_code in (400, 404)
        assert http.get("/$polybus/entities/q/producers/p").status_code == 404


# Crashes and outages


def test_a_partition_that_is_down_follows_when_it_returns_and_in_order(server: Server) -> None:
    create(server, "q", enable_partitioning=True)
    with server.client() as http:
        bulk = Bulk(http, "q")
        keys = [f"k{number}" for number in range(64)]
        stages = [
            bulk.stage([{"body": f"{epoch}-{key}".encode(), "partition_key": key} for key in keys])
            for epoch in range(3)
        ]
        server.take_down(1)
        for epoch, staged in enumerate(stages):
            published = bulk.publish("p", "a", epoch, [staged], wait_seconds=0)
            assert (published["published"], published["visible"]) == (True, False)
        server.wait_until(lambda: server.namespace.entity("q").counts().result().active > 100)
        refused = http.post(
            "/$polybus/entities/q/stage",
            content="".join(json.dumps({"body": "x", "partition_key": key}) + "\n" for key in keys),
        )
        assert refused.status_code == 503
        assert bulk.stage(rows(5))["rows"] == 5
        server.bring_up(1)
        server.wait_until(lambda: server.bus.publishing.pending == 0)
        order: dict[str, list[str]] = {}
        for row in bulk.everything():
            epoch_text, key = row["body"].decode().split("-")
            order.setdefault(key, []).append(epoch_text)
        assert order == {key: ["0", "1", "2"] for key in keys}


def test_whole_messages_are_staged_as_they_came(server: Server) -> None:
    create(server, "q", enable_partitioning=True)
    raws = [build(b"b%d" % number, partition_key=f"k{number % 7}", subject="s").raw for number in range(1_300)]
    raws.append(build(b"").raw)
    content = arrow([{"message": raw} for raw in raws])
    with server.client() as http:
        bulk = Bulk(http, "q")
        staged = bulk._checked(
            http.post("/$polybus/entities/q/stage", content=content, headers={"Content-Type": ARROW})
        )
        assert (staged["rows"], staged["bytes"]) == (len(raws), sum(map(len, raws)))
        bulk.publish("p", "a", 0, [staged])
        found = bulk.everything()
        expected = sorted([(b"b%d" % number, f"k{number % 7}", "s") for number in range(1_300)] + [(b"", None, None)])
        assert sorted((row["body"], row["partition_key"], row["subject"]) for row in found) == expected
        for key in (f"k{number}" for number in range(7)):
            own = [int(row["body"][1:]) for row in found if row["partition_key"] == key]
            assert own == sorted(own)


@pytest.mark.parametrize("kind", ["memory", "rocksdb"])
def test_a_restart_finishes_what_was_published(certificates: Path, tmp_path: Path, kind: str) -> None:
    """The catalogue has the record, and some partitions have moved nothing when the bus stops."""
    disks: list[Disk] = [RocksDisk(tmp_path / f"{n}") for n in range(4)] if kind == "rocksdb" else []
    catalogue = RocksDisk(tmp_path / "catalogue") if kind == "rocksdb" else None
    server = Server(certificates, disks=disks or None, catalogue=catalogue).start()
    create(server, "q", enable_partitioning=True)
    with server.client() as http:
        bulk = Bulk(http, "q")
        keyed = [{"body": f"r{number}".encode(), "partition_key": f"k{number}"} for number in range(500)]
        staged = bulk.stage(keyed, producer="p", query="a")
        unpublished = bulk.stage(rows(5, 1000), producer="p", query="a")

        def stop_moving() -> None:
            server.bus.publishing._work = lambda place: None  # type: ignore[method-assign]

        server.do(stop_moving)
        published = bulk.publish("p", "a", 5, [staged], wait_seconds=0)
        assert published == {"published": True, "epoch": 5, "visible": False}
    server = server.restarted()
    with server.client() as http:
        bulk = Bulk(http, "q")
        server.wait_until(lambda: server.bus.publishing.pending == 0)
        assert bulk.get("producers/p")["epoch"] == 5
        assert bulk.publish("p", "a", 5, [staged])["published"] is False
        assert sorted(bodies(http, "q")) == sorted(f"r{number}" for number in range(500))
        assert bulk.publish("p", "a", 6, [unpublished])["published"] is True
        assert len(bodies(http, "q")) == 5
        fenced = bulk.stage(rows(1), producer="p", query="b")
        assert bulk.publish("p", "b", 0, [fenced])["published"] is True
    server = server.restarted()
    with server.client() as http:
        assert http.post("/$polybus/entities/q/stage?producer=p&query=a", content='{"body": "x"}').status_code == 409
    server.stop()


def test_asking_again_while_it_is_being_moved_loses_nothing(server: Server) -> None:
    create(server, "q", enable_partitioning=True)
    with server.client() as http:
        bulk = Bulk(http, "q")
        keyed = [{"body": f"r{number}".encode(), "partition_key": f"k{number}"} for number in range(100)]
        staged = bulk.stage(keyed)
        server.take_down(3)
        bulk.publish("p", "a", 0, [staged], wait_seconds=0)
        assert bulk.publish("p", "a", 0, [staged])["published"] is False
        bulk.post("abort", {"stages": [staged]})
        server.do(lambda: server.clock.advance(90_000_000))
        server.bring_up(3)
        server.do(server.bus.delete_idle)
        server.wait_until(lambda: server.bus.publishing.pending == 0)
        assert len(bulk.everything()) == 100


def test_the_catalogue_decides(server: Server) -> None:
    """Where its record cannot be written, nothing was published."""
    create(server, "q")
    with server.client() as http:
        bulk = Bulk(http, "q")
        staged = bulk.stage(rows(3), producer="p", query="a")
        store = server.catalogue.store
        from polybus.store.failing import FailingStore

        assert not isinstance(store, FailingStore)
        broken = server.do(lambda: _break(server))
        refused = http.post(
            "/$polybus/entities/q/publish", json={"producer": "p", "query": "a", "epoch": 0, "stages": [staged]}
        )
        assert refused.status_code == 503
        assert http.get("/q/messages").status_code == 204
        server.do(broken)
        assert bulk.publish("p", "a", 0, [staged])["published"] is True
        assert len(bodies(http, "q")) == 3


def _break(server: Server) -> Any:
    """Makes the catalogue's next commit fail; gives the way back."""
    store = server.catalogue.store
    commit = store.commit

    def fail(batch: Any) -> None:
        from polybus.errors import StoreError

        raise StoreError("on demand")

    store.commit = fail

    def mend() -> None:
        store.commit = commit

    return mend
