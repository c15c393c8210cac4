"""Pipelines of a file, on Spark, with tables and reports on a real object store; secrets show nowhere."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from polybus.pipelines.capture import CaptureKind
from polybus.pipelines.compacting import compact_capture
from polybus.pipelines.declaration import Declaration, parse
from polybus.pipelines.lake_reading import lake_frame
from polybus.pipelines.object_folder import ObjectStore
from polybus.pipelines.runner import Runner, run_once
from polybus.pipelines.status import pipeline_runs, pipeline_states
from polybus.testing.server import ServerProcess
from tests.lake.servers import ObjectServer, Wire
from tests.spark.kit import CONNECTION_VARIABLE, Kit, start_spark
from tests.spark.pipelines_kit import forget_last_commit
from tests.unit.pipelines.lakes import FORMATS


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("bus"), "--stores", "2") as running:
        os.environ[CONNECTION_VARIABLE] = running.connection_string
        yield running
        del os.environ[CONNECTION_VARIABLE]


@pytest.fixture(scope="module")
def spark(bus: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = start_spark(tmp_path_factory.mktemp("spark"))
        yield session
        session.stop()


@pytest.fixture
def kit(bus: ServerProcess, spark: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Kit]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Kit(bus, spark, tmp_path, request.node.name) as made:
            yield made


def declared(kit: Kit, server: ObjectServer, *pipelines: dict[str, Any], port: int | None = None) -> Declaration:
    told = {
        "bus": {"connectionStringEnv": CONNECTION_VARIABLE},
        "stores": server.declared(port),
        "checkpoints": "checkpoints",
        "restart": {"attempts": 12, "first": "100ms", "most": "1s"},
        "pipelines": list(pipelines),
    }
    return parse(json.dumps(told), "pipelines.yml", kit.folder)


def capture(kit: Kit, server: ObjectServer, queue: str, folder: str, form: str, **more: Any) -> dict[str, Any]:
    to: dict[str, Any] = {"path": f"{server.scheme}://lake/{folder}", "format": form}
    if form == "iceberg":
        to["catalog"] = {"type": "sql", "uri": f"sqlite:///{kit.folder / 'catalogue.db'}"}
    return {"name": "cap", "kind": "capture", "from": queue, "to": to, **more}


def kind_of(declaration: Declaration) -> CaptureKind:
    (kind,) = declaration.pipelines
    assert isinstance(kind, CaptureKind)
    return kind


def bodies(kit: Kit, kind: CaptureKind) -> list[str]:
    return sorted(bytes(row.body).decode() for row in lake_frame(kit.spark, kind.place).select("body").collect())


@pytest.mark.parametrize("form", FORMATS)
def test_a_capture_is_there_once_and_replayed_and_its_secrets_show_nowhere(
    kit: Kit, server: ObjectServer, folder: str, form: str, capfd: pytest.CaptureFixture[str]
) -> None:
    queue, copy = kit.queue(), kit.queue("-copy")
    sent = kit.fill(queue, 60)
    pipeline = capture(kit, server, queue, folder, form, maxMessages=30)
    said: list[str] = []
    declaration = declared(kit, server, pipeline)
    runner = run_once(declaration, kit.spark, said.append)
    assert runner.metrics.get("polybus_pipeline_rows_total", pipeline="cap") == 60
    forget_last_commit(kit, "cap")
    run_once(declaration, kit.spark, said.append)
    kind = kind_of(declaration)
    assert bodies(kit, kind) == sorted(sent)
    if form in ("parquet", "avro"):
        done = compact_capture(kind, "256m", "0s")
        assert done.files_after < done.files_before
        assert bodies(kit, kind) == sorted(sent)
    replay = {"name": "again", "kind": "replay", "from": pipeline["to"], "to": copy}
    replayed = declared(kit, server, replay)
    with Runner(replayed, kit.spark, once=True, say=said.append) as again:
        again.run()
        assert not again.failed(), said
    assert sorted(str(message) for message in kit.drain(copy, 60)) == sorted(sent)
    frame = lake_frame(kit.spark, kind.place)
    plan = frame._jdf.queryExecution().toString()
    told = json.dumps(
        [pipeline_states(declaration), pipeline_runs(declaration), runner.status(), said, plan, kind.describe()]
    )
    everything = told + "".join(capfd.readouterr()) + _written(kit.folder)
    for line in server.secrets.read_text().splitlines():
        assert line.partition("=")[2] not in everything


def _written(folder: Path) -> str:
    return "".join(path.read_text(errors="replace") for path in (folder / "checkpoints").rglob("*") if path.is_file())


@pytest.mark.parametrize("form", FORMATS)
def test_a_store_that_fails_now_and_then_has_every_message_once(
    kit: Kit, server: ObjectServer, folder: str, form: str
) -> None:
    queue = kit.queue()
    sent = kit.fill(queue, 60)
    with Wire(server.port, 7, "503", "after", "429", "before") as wire:
        pipeline = capture(kit, server, queue, folder, form, maxMessages=20)
        run_once(declared(kit, server, pipeline, port=wire.port), kit.spark)
        assert len(wire.faults()) >= 4
    assert bodies(kit, kind_of(declared(kit, server, pipeline))) == sorted(sent)


def test_reports_are_put_where_the_file_says(kit: Kit, server: ObjectServer, folder: str) -> None:
    queue = kit.queue()
    kit.fill(queue, 40)
    to = f"{server.scheme}://lake/{folder}"
    skew = {"name": "hot", "kind": "skew", "from": queue, "to": to}
    declaration = declared(kit, server, skew)
    run_once(declaration, kit.spark)
    store = ObjectStore(server.url(folder))
    page = store.read("skew.html")
    assert page is not None
    assert b"<!doctype html>" in page
    assert queue.encode() in page
    assert [name for name in store.names("counts") if name.endswith(".parquet")]
