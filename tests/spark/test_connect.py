"""Spark Connect: the client has no JVM, the server runs the source and the sink that are installed beside it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.kit import Kit
from tests.spark.test_cluster import SECONDS, Member, spark_environment

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


def test_a_client_of_connect_reads_and_writes_a_bus(kit: Kit, address: str) -> None:
    origin, target = kit.queue("-from"), kit.queue("-to")
    sent = kit.fill(origin, 500)
    command = [sys.executable, "-m", "tests.spark.connect_driver", address, str(kit.folder), origin, target]
    environment = {**spark_environment(kit.folder), "BUS": kit.server.connection_string}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"count": 500, "module": "pyspark.sql.connect.session"}
    assert sorted(bytes(row.body).decode() for row in kit.read(target).collect()) == sorted(sent)
