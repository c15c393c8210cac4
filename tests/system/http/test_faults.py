"""Fault switches: users break a bus on purpose, see what the documents promise, and mend it again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from polybus.clock import MovableClock, RealClock
from polybus.namespace.entities.description import QueueDescription
from polybus.store.failing import FailingStore
from polybus.store.memory import MemoryStore
from tests.system.http.kit import Disk, Server


@pytest.fixture
def server(certificates: Path) -> Iterator[Server]:
    disks = [Disk(FailingStore(MemoryStore()), threaded=True) for _ in range(4)]
    server = Server(certificates, faults=True, clock=MovableClock(frozen=True), disks=disks).start()
    server.wait(server.namespace.management.create(QueueDescription(path="q", enable_partitioning=True)))
    yield server
    for disk in server.disks:
        disk.store.faults.heal()
    server.stop()


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def switch(http: httpx.Client, what: str, **body: Any) -> Any:
    response = http.post(f"/$polybus/faults/{what}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def send(http: httpx.Client, key: str | None = None) -> int:
    headers = {} if key is None else {"BrokerProperties": json.dumps({"PartitionKey": key})}
    return http.post("/q/messages", content=b"x", headers=headers).status_code


def test_a_store_goes_down_and_comes_back(server: Server, http: httpx.Client) -> None:
    shown = switch(http, "stores/2/down")
    assert [store["state"] for store in shown["stores"]].count("open") == 3
    assert {send(http) for _ in range(32)} == {201}
    outcomes = {send(http, f"k{number}") for number in range(40)}
    assert outcomes == {201, 503}
    entry = http.get("/q")
    assert "<EntityAvailabilityStatus>Limited</EntityAvailabilityStatus>" in entry.text
    missing = entry.headers["x-polybus-missing-partitions"].split(",")
    assert len(missing) == 4
    assert [str(index) for index in server.namespace.entity("q").missing_partitions()] == missing
    switch(http, "stores/2/up")
    server.wait_until(lambda: not server.namespace.entity("q").missing_partitions())
    assert {send(http, f"k{number}") for number in range(40)} == {201}
    entry = http.get("/q")
    assert "<EntityAvailabilityStatus>Available</EntityAvailabilityStatus>" in entry.text
    assert "x-polybus-missing-partitions" not in entry.headers


def test_an_entity_that_is_limited_is_not_changed(server: Server, http: httpx.Client) -> None:
    switch(http, "stores/0/down")
    body = '<entry xmlns="http://www.w3.org/2005/Atom"><content><QueueDescription/></content></entry>'
    for method, headers in (("PUT", {"If-Match": "*"}), ("DELETE", {})):
        refused = http.request(method, "/q", content=body, headers=headers)
        assert refused.status_code == 503
        assert "SubCode=50004" in refused.text
    switch(http, "heal")
    server.wait_until(lambda: not server.namespace.entity("q").missing_partitions())
    assert http.delete("/q").status_code == 200


def test_calls_fail_and_are_slow_and_hang(server: Server, http: httpx.Client) -> None:
    shown = switch(http, "stores/1/fail", calls=["sync"], nth=1)
    assert shown["stores"][1]["faults"]["fails"] == ["sync"]
    assert {send(http) for _ in range(16)} == {201}
    assert server.bus.stores[1].commit_failures == 1
    server.wait_until(lambda: not server.namespace.entity("q").missing_partitions())
    shown = switch(http, "stores/1/slow", seconds=0, calls=["commit", "sync"])
    assert shown["stores"][1]["faults"]["slow"] == {"commit": 0.0, "sync": 0.0}
    shown = switch(http, "stores/1/hang", calls=["sync"])
    assert shown["stores"][1]["faults"]["hangs"] == ["sync"]
    shown = switch(http, "heal")
    assert shown["stores"][1]["faults"] == {"fails": [], "full": False, "hangs": [], "low": False, "slow": {}}


def test_a_full_disk_refuses_sends(server: Server, http: httpx.Client) -> None:
    assert send(http) == 201
    for number in range(4):
        switch(http, f"stores/{number}/full", reserve_only=True)
    refused = http.post("/q/messages", content=b"x")
    assert (refused.status_code, "SubCode=40300" in refused.text) == (403, True)
    assert http.delete("/q/messages/head?timeout=0").status_code == 200
    switch(http, "heal")
    assert send(http) == 201
    for number in range(4):
        switch(http, f"stores/{number}/full")
    assert send(http) == 403
    switch(http, "heal")
    server.wait_until(lambda: not server.namespace.entity("q").missing_partitions())
    assert send(http) == 201


def test_an_entity_is_throttled(server: Server, http: httpx.Client) -> None:
    assert switch(http, "entities/q/throttle")["throttled"] == ["q"]
    refused = http.post("/q/messages", content=b"x")
    assert refused.status_code == 503
    assert "SubCode=50004" in refused.text
    switch(http, "entities/q/throttle", on=False)
    assert send(http) == 201


def test_a_lock_is_lost(server: Server, http: httpx.Client) -> None:
    for _ in range(3):
        send(http)
    held = [http.post("/q/messages/head?timeout=0") for _ in range(3)]
    numbers = [json.loads(each.headers["BrokerProperties"])["SequenceNumber"] for each in held]
    places = [httpx.URL(each.headers["Location"]).raw_path.decode() for each in held]
    assert switch(http, "entities/q/lose-lock", sequence_number=numbers[0]) == {"lost": 1}
    assert http.delete(places[0]).status_code == 404
    assert http.delete(places[1]).status_code == 200
    assert switch(http, "entities/q/lose-lock") == {"lost": 1}
    assert http.delete(places[2]).status_code == 404
    again = [http.post("/q/messages/head?timeout=0") for _ in range(2)]
    assert {json.loads(each.headers["BrokerProperties"])["DeliveryCount"] for each in again} == {2}


def test_the_clock_is_moved(server: Server, http: httpx.Client) -> None:
    headers = {"BrokerProperties": json.dumps({"TimeToLive": 14 * 86_400})}
    http.post("/q/messages", content=b"x", headers=headers)
    before = http.get("/$polybus/faults").json()["clock_ms"]
    moved = switch(http, "clock", advance_ms=14 * 86_400_000 + 1)
    assert moved["clock_ms"] == before + 14 * 86_400_000 + 1
    assert server.do(lambda: server.namespace.entity("q").counts().result()).active == 0


@pytest.mark.parametrize(
    ("what", "body", "status"),
    [
        ("stores/4/down", {}, 404),
        ("stores/x/down", {}, 404),
        ("stores/0/melt", {}, 404),
        ("nothing", {}, 404),
        ("stores/0/slow", {"seconds": -1}, 400),
        ("stores/0/slow", {"seconds": "1"}, 400),
        ("stores/0/slow", {"seconds": 1e9}, 400),
        ("stores/0/hang", {"calls": ["everything"]}, 400),
        ("stores/0/hang", {"calls": "commit"}, 400),
        ("stores/0/fail", {"calls": []}, 400),
        ("stores/0/fail", {"nth": 0}, 400),
        ("clock", {"advance_ms": -1}, 400),
        ("clock", {"advance_ms": 1.5}, 400),
        ("clock", {}, 400),
        ("entities/nowhere/throttle", {}, 404),
        ("entities/q/throttle", {"on": "yes"}, 400),
        ("entities/q/lose-lock", {"sequence_number": "1"}, 400),
    ],
)
def test_wrong_switches_are_refused(http: httpx.Client, what: str, body: dict[str, Any], status: int) -> None:
    assert http.post(f"/$polybus/faults/{what}", json=body).status_code == status
    assert http.get("/$polybus/faults").json()["throttled"] == []


def test_only_managers_reach_the_switches(server: Server) -> None:
    assert httpx.get(f"{server.url}/$polybus/faults").status_code == 401
    for name, key in (("sender", "send key"), ("listener", "listen key")):
        with server.client("", name, key) as http:
            assert http.get("/$polybus/faults").status_code == 401
            assert http.post("/$polybus/faults/stores/0/down").status_code == 401
    with server.client() as http:
        assert http.put("/$polybus/faults/stores/0/down").status_code == 405
        assert all(store["state"] == "open" for store in http.get("/$polybus/faults").json()["stores"])


def test_without_faults_there_is_nothing(certificates: Path) -> None:
    server = Server(certificates, clock=RealClock()).start()
    with server.client() as http:
        assert http.get("/$polybus/faults").status_code == 404
        assert http.post("/$polybus/faults/stores/0/down").status_code == 404
    server.stop()


def test_a_real_clock_cannot_be_moved(certificates: Path) -> None:
    server = Server(certificates, clock=RealClock(), faults=True).start()
    with server.client() as http:
        refused = http.post("/$polybus/faults/clock", json={"advance_ms": 1})
        assert (refused.status_code, "--clock movable" in refused.text) == (400, True)
    server.stop()
