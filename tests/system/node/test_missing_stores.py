"""Fewer stores than before: all that belong to a bus are opened without being named, and it shouts about the others."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from polybus.testing.server import ServerProcess

MESSAGES = 32


def fill(server: ServerProcess) -> None:
    with ServiceBusAdministrationClient.from_connection_string(
        server.admin_connection_string, connection_verify=str(server.authority)
    ) as admin:
        admin.create_queue("spread", enable_partitioning=True)
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender("spread") as sender,
    ):
        for number in range(MESSAGES):
            sender.send_messages(ServiceBusMessage(str(number)))


def drain(server: ServerProcess) -> set[str]:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver("spread", receive_mode="receiveanddelete", max_wait_time=2) as receiver,
    ):
        return {str(message) for message in receiver}


def command(server: ServerProcess, *words: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "polybus", *words, "--connection", server.connection_string]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)


def health(server: ServerProcess) -> dict[str, Any]:
    answer: dict[str, Any] = httpx.get(f"{server.http_url}/health").json()
    return answer


def test_every_store_of_a_data_folder_is_opened_whatever_number_is_said(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--stores", "4") as server:
        fill(server)
    with ServerProcess(tmp_path / "data", "--stores", "2") as server:
        assert not health(server)["degraded"]
        assert len(health(server)["stores"]) == 4
        assert drain(server) == {str(number) for number in range(MESSAGES)}
    with ServerProcess(tmp_path / "data") as server:
        assert len(health(server)["stores"]) == 4


def named(*folders: Path) -> list[str]:
    return [word for folder in folders for word in ("--store", f"rocksdb:{folder}")]


def test_a_store_elsewhere_is_found_without_being_named(tmp_path: Path) -> None:
    one, two, three = (tmp_path / name for name in ("one", "two", "data/inside"))
    with ServerProcess(tmp_path / "data", *named(one, two, three)) as server:
        fill(server)
    with ServerProcess(tmp_path / "data", *named(two)) as server:
        assert any(str(one) in line and "was not named" in line for line in server.output)
        assert not health(server)["degraded"]
        assert drain(server) == {str(number) for number in range(MESSAGES)}


def test_a_data_folder_is_whole_where_it_was_moved_to(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", *named(tmp_path / "data/a", tmp_path / "data/b")) as server:
        fill(server)
    (tmp_path / "data").rename(tmp_path / "moved")
    with ServerProcess(tmp_path / "moved", *named(tmp_path / "moved/b")) as server:
        assert drain(server) == {str(number) for number in range(MESSAGES)}


def test_a_store_that_is_gone_is_told_everywhere_and_no_new_one_is_made_in_its_place(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--stores", "2") as server:
        fill(server)
    lost = tmp_path / "data" / "stores" / "1"
    lost.rename(tmp_path / "unmounted")
    lost.mkdir()
    with ServerProcess(tmp_path / "data", "--stores", "2") as server:
        assert any("CANNOT BE OPENED" in line and "out of reach" in line for line in server.output)
        line = next(line for line in server.output if line.startswith(f"store rocksdb:{lost}: "))
        assert line.rstrip() != f"store rocksdb:{lost}: open"
        assert health(server)["degraded"]
        assert "1 of 2 messaging stores do not take messages" in command(server, "healthcheck").stdout
        shown = json.loads(command(server, "stores", "--json").stdout)["stores"]
        assert [store["state"] == "open" for store in shown] == [True, False]
        assert "gone" in shown[1]["last_error"]
        assert list(lost.iterdir()) == []
    lost.rmdir()
    (tmp_path / "unmounted").rename(lost)
    with ServerProcess(tmp_path / "data", "--stores", "2") as server:
        assert drain(server) == {str(number) for number in range(MESSAGES)}


def test_a_store_that_nobody_can_find_is_told_everywhere(tmp_path: Path) -> None:
    """Its folder was copied elsewhere, and something else stands in its place."""
    with ServerProcess(tmp_path / "data", "--stores", "2") as server:
        fill(server)
    with ServerProcess(tmp_path / "other", "--stores", "1"):
        pass
    taken = tmp_path / "data" / "stores" / "1"
    shutil.rmtree(taken)
    shutil.copytree(tmp_path / "other" / "stores" / "0", taken)
    with ServerProcess(tmp_path / "data", "--stores", "2") as server:
        line = next(line for line in server.output if "MISSING" in line)
        assert "8 partitions of spread" in line
        assert any(line.startswith("store a messaging store with id ") for line in server.output)
        told = health(server)
        assert told["degraded"]
        assert told["missing"] == 1
        assert "8 partitions lie in messaging stores that are MISSING" in told["message"]
        checked = command(server, "healthcheck")
        assert checked.returncode == 0
        assert "MISSING" in checked.stdout
        assert "missing" in command(server, "stores").stdout
