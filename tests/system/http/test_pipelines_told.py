"""What runners tell of their pipelines: kept while it is fresh, with the rights of the entity, bounded."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from polybus import limits
from polybus.client.sas import make_token
from polybus.namespace.entities.description import QueueDescription
from polybus.pipelines.backoff import Restart
from polybus.pipelines.handles import Report, RunHandle
from polybus.pipelines.kind import Context, StreamKind
from polybus.pipelines.places import BusReference, EntityReference
from polybus.pipelines.supervised import Supervised
from polybus.pipelines.telling import BusTeller
from tests.system.http.kit import KEY, KEY_NAME, WAIT_S, Server

PATH = "/$polybus/entities/orders/pipelines/lake"


@pytest.fixture
def server(own_server: Server) -> Server:
    own_server.wait(own_server.namespace.management.create(QueueDescription(path="orders")))
    return own_server


def ask(server: Server, method: str, path: str, body: object = None, name: str = KEY_NAME, key: str = KEY) -> Any:
    token = make_token(f"{server.url}/", name, key, int(time.time()) + 600)
    return httpx.request(method, f"{server.url}{path}", json=body, headers={"Authorization": token})


def test_what_was_told_is_shown_with_its_runs_and_its_report(server: Server) -> None:
    told = {
        "name": "lake",
        "state": "running",
        "kind": "capture",
        "lag": 7,
        "runs": [{"rows": 3}],
        "report": "<main>",
    }
    assert ask(server, "PUT", PATH, told).status_code == 204
    (listed,) = ask(server, "GET", "/$polybus/pipelines").json()["pipelines"]
    assert (listed["name"], listed["entity"], listed["lag"], listed["has_report"]) == ("lake", "orders", 7, True)
    assert listed["silent"] is False
    assert "report" not in listed
    whole = ask(server, "GET", PATH).json()
    assert (whole["runs"], whole["report"]) == ([{"rows": 3}], "<main>")


def test_rights_are_those_of_the_entity(server: Server) -> None:
    told = {"state": "running"}
    assert ask(server, "PUT", PATH, told, "sender", "send key").status_code == 401
    assert ask(server, "PUT", PATH, told, "listener", "listen key").status_code == 204
    assert ask(server, "GET", "/$polybus/pipelines", None, "listener", "listen key").status_code == 401
    assert ask(server, "GET", PATH, None, "listener", "listen key").status_code == 200


def test_what_cannot_be_meant_is_refused(server: Server) -> None:
    for wrong in ({}, {"state": 3}, {"state": "running", "report": 5}, {"state": "running", "password": "x"}):
        assert ask(server, "PUT", PATH, wrong).status_code == 400, wrong
    assert ask(server, "PUT", PATH.replace("orders", "nothing"), {"state": "running"}).status_code == 404
    large = {"state": "running", "report": "x" * limits.PIPELINE_TOLD_BYTES}
    assert ask(server, "PUT", PATH, large).status_code == 413
    assert ask(server, "GET", PATH).status_code == 404


def test_so_many_are_remembered_and_old_ones_are_forgotten(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PIPELINES_TOLD", 2)
    for name in ("one", "two"):
        assert ask(server, "PUT", PATH.replace("lake", name), {"state": "running"}).status_code == 204
    assert ask(server, "PUT", PATH.replace("lake", "three"), {"state": "running"}).status_code == 403
    assert ask(server, "PUT", PATH.replace("lake", "two"), {"state": "waiting"}).status_code == 204
    monkeypatch.setattr(limits, "PIPELINE_SILENT_MS", -1)
    assert [each["silent"] for each in ask(server, "GET", "/$polybus/pipelines").json()["pipelines"]] == [True, True]
    monkeypatch.setattr(limits, "PIPELINE_TOLD_MS", -1)
    assert ask(server, "GET", "/$polybus/pipelines").json()["pipelines"] == []


class Query(RunHandle):
    """A query that has done one batch and goes on."""

    def __init__(self) -> None:
        self._reports: list[Report] = [
            {"batchId": 4, "timestamp": "2026-01-31T12:00:00.000Z", "durationMs": {"triggerExecution": 600}}
        ]

    def ended(self) -> bool:
        return False

    def error(self) -> str | None:
        return None

    def reports(self) -> list[Report]:
        told, self._reports = self._reports, []
        return told

    def figures(self) -> Mapping[str, float]:
        return {}

    def stop(self) -> None:
        pass


class Capture(StreamKind):
    kind = "capture"

    def __init__(self, name: str, entity: EntityReference) -> None:
        super().__init__(name)
        self._entity = entity

    @classmethod
    def parse(cls, name: str, fields: Any, origin: Any) -> Capture:
        raise NotImplementedError

    def start(self, session: Any, context: Context) -> Any:
        raise NotImplementedError

    def entities(self) -> list[EntityReference]:
        return [self._entity]


def test_a_runner_tells_by_itself_and_says_when_it_ends(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polybus.pipelines.telling.PIPELINE_TELL_SECONDS", 0.01)
    bus = BusReference({"connectionString": server.connection_string, "caFile": server.authority})
    context = Context(tmp_path, False, report="<main>the report</main>")
    kind = Capture("lake", EntityReference("orders", bus))
    pipeline = Supervised(kind, context, Query, Restart(), random.Random(1))
    pipeline.step(0)
    pipeline.step(1)
    heard = threading.Event()
    board = server.gateway.pipelines
    put = board.put

    def listen(namespace: Any, told: Any) -> None:
        put(namespace, told)
        heard.set()

    monkeypatch.setattr(board, "put", listen)
    with BusTeller(SimpleNamespace(pipelines=[pipeline])):  # type: ignore[arg-type]
        assert heard.wait(WAIT_S)
        told = ask(server, "GET", PATH).json()
        assert (told["state"], told["batch"], told["kind"]) == ("running", 4, "capture")
        assert told["report"] == "<main>the report</main>"
        assert [run["outcome"] for run in told["runs"]] == ["running"]
    assert ask(server, "GET", PATH).json()["state"] == "ended"
