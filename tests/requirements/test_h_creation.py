"""H1, H2, H4 and H5: every way to create a partitioned entity. H3 comes with the console."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from polybus.testing.server import ServerProcess
from tests.requirements.kit import PARTITIONS, Bus, Gate, entry
from tests.sdk.python.bus import Entity


def works(bus: Bus, gate: Gate, name: str) -> bool:
    Entity(bus, name).send(*["x"] * PARTITIONS)
    return gate.totals(name) == [1] * PARTITIONS and bus.admin.get_queue(name).enable_partitioning


def test_h1_by_code(bus: Bus, gate: Gate) -> None:
    """Python's two administration clients; those of other languages are in tests/sdk."""
    bus.admin.create_queue("by-code", enable_partitioning=True)

    async def create() -> None:
        async with ServiceBusAdministrationClient.from_connection_string(
            bus.server.admin_connection_string, connection_verify=str(bus.server.authority)
        ) as admin:
            await admin.create_topic("topic-by-code", enable_partitioning=True)
            await admin.create_subscription("topic-by-code", "sub")

    asyncio.run(create())
    assert works(bus, gate, "by-code")
    assert bus.admin.get_topic("topic-by-code").enable_partitioning
    assert len(gate.partitions("topic-by-code", "sub")) == PARTITIONS


def test_h2_by_http(bus: Bus, gate: Gate) -> None:
    made = gate.http.put("/by-http?api-version=2021-05", content=entry("QueueDescription", EnablePartitioning=True))
    assert made.status_code == 201, made.text
    assert works(bus, gate, "by-http")
    topic = entry("TopicDescription", EnablePartitioning=True)
    assert gate.http.put("/topic-by-http?api-version=2021-05", content=topic).status_code == 201
    assert bus.admin.get_topic("topic-by-http").enable_partitioning


def test_h4_by_the_command_line(bus: Bus, gate: Gate) -> None:
    for kind, name in (("queue", "by-command"), ("topic", "topic-by-command")):
        command = [sys.executable, "-m", "polybus", kind, "create", name, "--enable-partitioning"]
        command += ["--connection", bus.server.connection_string]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
    assert works(bus, gate, "by-command")
    assert bus.admin.get_topic("topic-by-command").enable_partitioning


def test_h5_by_a_file(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    queue = {"Name": "by-file", "Properties": {"EnablePartitioning": True}}
    topic = {"Name": "topic-by-file", "Properties": {"EnablePartitioning": True}, "Subscriptions": [{"Name": "sub"}]}
    namespace = {"Name": "sbemulatorns", "Queues": [queue], "Topics": [topic]}
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    with ServerProcess(tmp_path / "data", "--config", str(file), "--store", "memory:0") as server:
        bus, gate = Bus(server, "partitioned"), Gate(server)
        assert works(bus, gate, "by-file")
        assert bus.admin.get_topic("topic-by-file").enable_partitioning
        bus.close()
        gate.close()


def test_h5_a_file_that_declares_partitions_for_what_is_plain_ends_the_start(tmp_path: Path) -> None:
    file = tmp_path / "config.json"

    def declare(partitioned: bool) -> None:
        queue = {"Name": "by-file", "Properties": {"EnablePartitioning": partitioned}}
        file.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [queue]}]}}))

    declare(False)
    server = ServerProcess(tmp_path / "data", "--config", str(file))
    with server:
        server.stop()
    declare(True)
    with pytest.raises(RuntimeError, match="'by-file' exists with another EnablePartitioning than the file declares"):
        server.start()
