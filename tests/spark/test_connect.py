"""Spark Connect: the client has no JVM, the server runs the source and the sink that are installed beside it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.kit import Kit
from tests.spark.test_cluster import SECONDS, Member

pytestmark = pytest.mark.slow


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.master": "local[2,4]",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    server = Member(
        tmp_path,
        "org.apache.spark.deploy.SparkSubmit",
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *words,
        "spark-internal",
    )
    try:
        server.wait_for("Spark Connect server started at")
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.end()


def client(kit: Kit, address: str, *queues: str) -> dict[str, Any]:
    """What a client says that has no Java."""
    command = [sys.executable, "-m", "tests.spark.connect_driver", address, str(kit.folder), *queues]
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    environment |= {"PATH": str(kit.folder), "BUS": kit.server.connection_string}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def bodies(kit: Kit, queue: str) -> list[str]:
    return sorted(bytes(row.body).decode() for row in kit.read(queue).collect())


def test_a_client_of_connect_reads_and_writes_a_bus(kit: Kit, address: str) -> None:
    queues = [kit.queue(suffix) for suffix in ("-from", "-to", "-by-batches", "-once")]
    sent = kit.fill(queues[0], 500)
    told = client(kit, address, *queues)
    assert (
        told.pop("pipelines") == "pipelines need a session with a driver of its own, and this is one of Spark Connect"
    )
    assert told == {"count": 500, "some": 10, "module": "pyspark.sql.connect.session"}
    # Its queries go on from their checkpoints when another client starts them again.
    sent |= kit.fill(queues[0], 200, first=500)
    assert client(kit, address, *queues)["count"] == 700
    assert bodies(kit, queues[1]) == bodies(kit, queues[2]) == sorted(sent)
    assert bodies(kit, queues[3]) == sorted([f"row {number}" for number in range(10)] * 2)
