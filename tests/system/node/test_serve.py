"""`polybus serve` as scripts and operators see it: its words, its ports, its exit codes."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from polybus.testing.server import ServerProcess

AMQP_HEADER = b"AMQP\x03\x01\x00\x00"


def serve(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "polybus", "serve", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def test_it_says_ready_with_its_addresses_and_stops_cleanly(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data")
    server.start()
    assert set(server.addresses) >= {"amqp", "http"}
    assert "Emulator Service is Successfully Up!\n" in server.output
    assert any(line.startswith("connection string: Endpoint=sb://") for line in server.output)
    assert server.stop() == 0


def test_one_port_speaks_everything(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--port", "0") as server:
        assert server.addresses["amqp"] == server.addresses["http"]
        place = address(server.addresses["amqp"])
        with socket.create_connection(place, 10) as plain:
            plain.sendall(AMQP_HEADER)
            assert plain.recv(8) == AMQP_HEADER
        context = ssl.create_default_context(cafile=str(server.authority))
        with socket.create_connection(place, 10) as raw, context.wrap_socket(raw, server_hostname="localhost") as tls:
            tls.sendall(AMQP_HEADER)
            assert tls.recv(8) == AMQP_HEADER
        assert httpx.get(f"http://{server.addresses['http']}/health").json()["status"] == "healthy"
        port = place[1]
        assert httpx.get(f"https://localhost:{port}/health", verify=context).json()["status"] == "healthy"


def test_the_first_bytes_may_come_one_by_one(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "data") as server,
        socket.create_connection(address(server.addresses["http"]), 10) as client,
    ):
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in AMQP_HEADER:
            client.sendall(bytes((byte,)))
        assert client.recv(8) == AMQP_HEADER


def test_messages_are_there_after_a_restart_and_after_a_kill(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        with ServiceBusAdministrationClient.from_connection_string(
            server.admin_connection_string, connection_verify=str(server.authority)
        ) as admin:
            admin.create_queue("kept", enable_partitioning=True)
        for number, kill in enumerate((False, True)):
            with (
                ServiceBusClient.from_connection_string(server.connection_string) as client,
                client.get_queue_sender("kept") as sender,
            ):
                sender.send_messages([ServiceBusMessage(f"{number}-{n}") for n in range(5)])
            server.restart(kill=kill)
        with (
            ServiceBusClient.from_connection_string(server.connection_string) as client,
            client.get_queue_receiver("kept", receive_mode="receiveanddelete", max_wait_time=10) as receiver,
        ):
            received = [str(next(receiver)) for _ in range(10)]
        assert sorted(received) == [f"{number}-{n}" for number in range(2) for n in range(5)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--host", "0.0.0.0"], "needs keys of your own"),
        (["--profile", "production"], "--key"),
        (["--profile", "production", "--key", "a=b", "--clock", "movable"], "movable clock"),
        (["--key", "nothing"], "NAME=KEY"),
        (["--tier", "gold"], "basic, standard, premium"),
        (["--partitions", "0"], "partitions"),
        (["--store", "floppy:a"], "rocksdb:PATH"),
        (["--config", "missing.json"], "missing.json"),
    ],
)
def test_what_cannot_be_served_is_one_clear_line_and_exit_code_2(
    tmp_path: Path, options: list[str], says: str
) -> None:
    done = serve(
        "--data", str(tmp_path / "data"), "--amqp-port", "0", "--http-port", "0", "--tls-port", "0", *options
    )
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_declared_file_makes_its_entities_and_names_its_mistakes(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        """{ // comments are allowed
          "UserConfig": {"Namespaces": [{"Name": "sbemulatorns",
            "Queues": [{"Name": "in", "Properties": {"ForwardTo": "out", "EnablePartitioning": true}},
                       {"Name": "out"}],
            "Topics": [{"Name": "t", "Subscriptions": [{"Name": "s", "Rules": [{"Name": "r", "Properties":
              {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a = 1"}}}]}]}]}]}}"""
    )
    with ServerProcess(tmp_path / "data", "--config", str(config)) as server:
        with ServiceBusAdministrationClient.from_connection_string(
            server.admin_connection_string, connection_verify=str(server.authority)
        ) as admin:
            assert sorted(queue.name for queue in admin.list_queues()) == ["in", "out"]
            assert [rule.name for rule in admin.list_rules("t", "s")] == ["r"]
        with ServiceBusClient.from_connection_string(server.connection_string) as client:
            with client.get_queue_sender("in") as sender:
                sender.send_messages(ServiceBusMessage("moved on"))
            with client.get_queue_receiver("out", max_wait_time=10) as receiver:
                assert str(next(receiver)) == "moved on"
    config.write_text('{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "a b"}], "Topics": []}]}}')
    done = serve("--data", str(tmp_path / "data2"), "--config", str(config))
    assert done.returncode == 2
    assert str(config) in done.stderr
    assert "Queues[0]" in done.stderr


def test_a_health_check_waits_for_a_bus_that_is_starting(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        server.kill()
        command = [sys.executable, "-m", "polybus", "healthcheck", "--connection", server.connection_string]
        assert subprocess.run([*command, "--wait", "0.1"], timeout=60, check=False).returncode == 3
        waiting = subprocess.Popen([*command, "--wait", "60"])
        server.start()
        assert waiting.wait(60) == 0
