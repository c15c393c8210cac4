"""Health says whether a send works, metrics what the bus holds and has done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from polybus.clock import MovableClock
from polybus.namespace.entities.description import QueueDescription, SubscriptionDescription, TopicDescription
from tests.system.http.kit import Server

SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*)\})? (-?[0-9.e+-]+)')


def samples(text: str) -> dict[str, float]:
    """Every sample by its name and labels; fails where a line is not in the format or comes twice."""
    found: dict[str, float] = {}
    typed: list[str] = []
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            typed.append(line.split()[2])
            continue
        if line.startswith("# HELP "):
            continue
        match = SAMPLE.fullmatch(line)
        assert match is not None, line
        name = f"{match[1]}{{{match[2] or ''}}}"
        assert name not in found, line
        assert re.sub("_(sum|count|bucket)$", "", match[1]) in typed or match[1] in typed, line
        found[name] = float(match[3])
    assert len(typed) == len(set(typed))
    return found


def read_metrics(server: Server) -> dict[str, float]:
    answer = httpx.get(f"{server.url}/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.text.endswith("\n")
    return samples(answer.text)


def test_health_is_told_without_a_token(server: Server) -> None:
    for path in ("/health", "/health/ready", "/health/live", "/Health/", "/%68ealth"):
        answer = httpx.get(f"{server.url}{path}")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["status"] == "healthy"
        assert answer.json()["message"]
    assert httpx.head(f"{server.url}/health").content == b""
    assert httpx.post(f"{server.url}/health").status_code == 405
    body = httpx.get(f"{server.url}/health").json()
    assert body["unsafe"] is True
    assert body["degraded"] is False
    assert [store["state"] for store in body["stores"]] == ["open"] * 4


def test_ready_means_that_a_commit_was_made(server: Server) -> None:
    before = [store.commits for store in server.bus.stores]
    httpx.get(f"{server.url}/health/ready")
    assert all(store.commits > count for store, count in zip(server.bus.stores, before, strict=True))
    before = [store.commits for store in server.bus.stores]
    httpx.get(f"{server.url}/health/live")
    assert [store.commits for store in server.bus.stores] == before


def test_a_store_that_is_down_degrades_and_all_of_them_end_readiness(own_server: Server) -> None:
    server = own_server
    for down in (1, 2, 3):
        server.take_down(down)
        body = httpx.get(f"{server.url}/health").json()
        assert (body["status"], body["degraded"]) == ("healthy", True)
        assert [store["commits"] for store in body["stores"]].count(False) == down
    server.take_down(0)
    gone = httpx.get(f"{server.url}/health")
    assert (gone.status_code, gone.json()["status"]) == (503, "unhealthy")
    assert httpx.get(f"{server.url}/health/live").status_code == 200
    server.bring_up(2)
    assert httpx.get(f"{server.url}/health/ready").status_code == 200


def test_a_commit_that_fails_only_now_is_noticed(own_server: Server) -> None:
    server = own_server
    for disk in server.disks:
        disk.down = True
        disk.store.faults.fail_from_now("sync")
    assert httpx.get(f"{server.url}/health").status_code == 503


@pytest.fixture
def unready(certificates: Path) -> Iterator[tuple[Server, list[bool]]]:
    declared = [False]
    server = Server(certificates, is_ready=lambda: declared[0], open_metrics=False, entity_metrics=False).start()
    yield server, declared
    server.stop()


def test_health_waits_for_what_was_declared(unready: tuple[Server, list[bool]]) -> None:
    server, declared = unready
    assert httpx.get(f"{server.url}/health").status_code == 503
    declared[0] = True
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_metrics_can_be_closed_and_kept_small(unready: tuple[Server, list[bool]]) -> None:
    server, _ = unready
    server.wait(server.namespace.management.create(QueueDescription(path="q")))
    assert httpx.get(f"{server.url}/metrics").status_code == 401
    with server.client(key_name="listener", key="listen key") as http:
        found = samples(http.get("/metrics").text)
    assert not any("entity=" in name for name in found)
    assert any(name.startswith("polybus_store_up") for name in found)


def test_a_queue_may_be_called_health(server: Server) -> None:
    with server.client() as http:
        for name in ("health", "metrics"):
            server.wait(server.namespace.management.create(QueueDescription(path=name)))
            entry = http.get(f"/{name}?api-version=2021-05")
            assert entry.headers["content-type"].startswith("application/atom+xml")
            assert http.post(f"/{name}/messages", content=b"x").status_code == 201
        assert "<title" in http.get("/health").text


def test_metrics_tell_what_happened(own_server: Server) -> None:
    server = own_server
    management = server.namespace.management
    server.wait(management.create(QueueDescription(path="orders", enable_partitioning=True)))
    server.wait(management.create(TopicDescription(path="t")))
    server.wait(management.create_subscription(SubscriptionDescription(topic="t", name="s")))
    with server.client() as http:
        for _ in range(3):
            http.post("/orders/messages", content=b"12345678")
        http.post("/t/messages", content=b"x")
        first = http.post("/orders/messages/head?timeout=0")
        http.delete(httpx.URL(first.headers["Location"]).raw_path.decode())
        second = http.post("/orders/messages/head?timeout=0")
        http.put(httpx.URL(second.headers["Location"]).raw_path.decode())
        http.post("/orders/messages/head?timeout=0")
        http.post("/orders/messages", headers={"BrokerProperties": "nonsense"})
    found = read_metrics(server)
    queue = 'namespace="sbemulatorns",entity="orders",entity_type="queue"'
    totals = 'namespace="sbemulatorns",entity="orders"'
    assert found[f"servicebus_active_messages{{{queue}}}"] == 2
    assert found[f"servicebus_locked_messages{{{queue}}}"] == 1
    assert found[f"servicebus_messages{{{queue}}}"] == 2
    assert found[f"servicebus_size_bytes{{{queue}}}"] > 16
    assert found[f"servicebus_incoming_messages_total{{{totals}}}"] == 3
    assert found[f"servicebus_outgoing_messages_total{{{totals}}}"] == 3
    assert found[f"servicebus_completed_messages_total{{{totals}}}"] == 1
    assert found[f"servicebus_abandoned_messages_total{{{totals}}}"] == 1
    assert found[f'servicebus_requests_total{{{totals},result="user_error"}}'] == 1
    assert found[f"servicebus_server_send_latency_seconds_count{{{totals}}}"] == 3
    assert found[f'servicebus_server_send_latency_seconds_bucket{{{totals},le="+Inf"}}'] == 3
    bucket = f"servicebus_server_send_latency_seconds_bucket{{{totals},"
    rising = [value for name, value in found.items() if name.startswith(bucket)]
    assert len(rising) > 5
    assert rising == sorted(rising)
    subscription = 'namespace="sbemulatorns",entity="t/Subscriptions/s",entity_type="subscription"'
    assert found[f"servicebus_active_messages{{{subscription}}}"] == 1
    available = [
        value for name, value in found.items() if name.startswith("polybus_partition_available{") and queue in name
    ]
    assert available == [1] * 16
    stores = {name: value for name, value in found.items() if name.startswith("polybus_store_")}
    assert sum(value for name, value in stores.items() if name.startswith("polybus_store_up")) == 4
    assert all(value == 1 for name, value in stores.items() if name.startswith("polybus_store_unsafe"))

    server.take_down(0)
    with server.client() as http:
        for _ in range(16):
            assert http.post("/orders/messages", content=b"x").status_code == 201
    found = read_metrics(server)
    lost = [
        value for name, value in found.items() if name.startswith("polybus_partition_available{") and queue in name
    ]
    assert sorted(lost) == [0] * 4 + [1] * 12
    assert found['polybus_sends_rerouted_total{namespace="sbemulatorns"}'] >= 4
    store = server.bus.stores[0].store_id.hex()
    assert found[f'polybus_store_up{{store="0",id="{store}"}}'] == 0
    assert found[f'polybus_store_state{{store="0",id="{store}",state="fenced"}}'] == 1
    assert found[f'polybus_store_commit_failures_total{{store="0",id="{store}"}}'] == 1


@pytest.mark.parametrize("partitioned", [False, True])
def test_metrics_tell_the_fate_of_messages(own_server: Server, partitioned: bool) -> None:
    server = own_server
    management = server.namespace.management
    described = QueueDescription(
        path="q",
        enable_partitioning=partitioned,
        requires_duplicate_detection=True,
        dead_lettering_on_message_expiration=True,
        max_delivery_count=2,
    )
    server.wait(management.create(described))
    server.wait(management.create(TopicDescription(path="t", enable_partitioning=partitioned)))
    server.wait(management.create_subscription(SubscriptionDescription(topic="t", name="s")))
    with server.client() as http:
        for _ in range(3):
            http.post("/q/messages", content=b"x", headers={"BrokerProperties": '{"MessageId": "same"}'})
        for _ in range(2):
            locked = http.post("/q/messages/head?timeout=0")
            http.put(httpx.URL(locked.headers["Location"]).raw_path.decode())
        for path in ("q", "t"):
            http.post(f"/{path}/messages", content=b"x", headers={"BrokerProperties": '{"TimeToLive": 5}'})
    assert isinstance(server.clock, MovableClock)
    clock = server.clock
    server.do(lambda: (clock.advance(6_000), server.bus.clock_moved()))
    entity, topic = server.namespace.entity("q"), server.namespace.entity("t")
    server.wait_until(lambda: entity.counts().result().dead_letter == 2 and topic.counts(1).result().active == 0)
    found = read_metrics(server)
    queue = 'namespace="sbemulatorns",entity="q",entity_type="queue"'
    assert found[f"servicebus_duplicate_messages_total{{{queue}}}"] == 2
    assert found[f"servicebus_expired_messages_total{{{queue}}}"] == 1
    assert found[f'servicebus_deadletter_messages_total{{{queue},reason="TTLExpiredException"}}'] == 1
    assert found[f'servicebus_deadletter_messages_total{{{queue},reason="MaxDeliveryCountExceeded"}}'] == 1
    subscription = 'namespace="sbemulatorns",entity="t/Subscriptions/s",entity_type="subscription"'
    assert found[f"servicebus_expired_messages_total{{{subscription}}}"] == 1
    assert not any("deadletter_messages_total" in name and subscription in name for name in found)
