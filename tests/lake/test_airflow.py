"""The DAG among the examples, run by a real Airflow in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from polybus.pipelines import lake_files
from polybus.testing.server import ServerProcess
from tests.lake.servers import airflow
from tests.sdk.python.bus import admin_client

EXAMPLES = Path(__file__).parents[2] / "examples" / "airflow"


def test_the_dag_captures_what_there_is(tmp_path: Path) -> None:
    command = airflow()
    if command is None:
        pytest.skip("there is no Airflow: scripts/test lake installs it")
    told = {
        "bus": {"connectionStringEnv": "BUS"},
        "checkpoints": "checkpoints",
        "spark": {"master": "local[1,4]"},
        "pipelines": [{"name": "lake", "kind": "capture", "from": "orders", "to": {"path": "lake"}}],
    }
    (tmp_path / "pipelines.yml").write_text(json.dumps(told))
    with ServerProcess(tmp_path / "bus") as bus:
        with admin_client(bus) as admin:
            admin.create_queue("orders")
        with (
            ServiceBusClient.from_connection_string(bus.connection_string) as client,
            client.get_queue_sender("orders") as sender,
        ):
            sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
        environment = {
            **os.environ,
            "AIRFLOW_HOME": str(tmp_path / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "BUS": bus.connection_string,
            "POLYBUS_PIPELINES": str(tmp_path / "pipelines.yml"),
            "POLYBUS_COMMAND": f"{sys.executable} -m polybus",
        }
        environment.pop("PYTHONPATH", None)
        subprocess.run([command, "db", "migrate"], env=environment, check=True, capture_output=True)
        ran = subprocess.run(
            [command, "dags", "test", "polybus_pipelines"],
            env=environment,
            check=False,
            capture_output=True,
            text=True,
        )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert "state=success" in ran.stdout + ran.stderr
    assert len(lake_files(tmp_path / "lake")) >= 1
