"""`polybus keys`, and keys that are changed in their file while the bus runs."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from typer.testing import CliRunner

from polybus.cli.app import app
from polybus.testing.server import ServerProcess

PATIENCE_S = 30.0


def polybus(server: ServerProcess, *words: str, code: int = 0) -> Any:
    done = CliRunner().invoke(app, [*words, "--json", "--connection", server.connection_string])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout) if code == 0 else done.output


def with_key(server: ServerProcess, name: str, key: str) -> ServiceBusClient:
    text = server.connection_string.replace("RootManageSharedAccessKey", name).replace("SAS_KEY_VALUE", key)
    return ServiceBusClient.from_connection_string(text, retry_total=0)


def test_keys_are_made_shown_regenerated_and_deleted_and_a_link_ends_with_its_key(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--store", "memory:0") as server:
        polybus(server, "queue", "create", "q")
        made = polybus(server, "keys", "create", "app", "--rights", "send", "--entity", "q")
        assert made["keyName"] == "app"
        assert made["primaryConnectionString"].endswith("EntityPath=q")
        assert polybus(server, "keys", "list", "--entity", "q") == [{"name": "app", "rights": ["Send"]}]
        assert polybus(server, "keys", "show", "app", "--entity", "q") == made
        with with_key(server, "app", made["primaryKey"]) as client, client.get_queue_sender("q") as sender:
            sender.send_messages(ServiceBusMessage("x"))
            renewed = polybus(server, "keys", "regenerate", "app", "--entity", "q", "--yes")
            assert renewed["primaryKey"] != made["primaryKey"]
            assert renewed["secondaryKey"] == made["secondaryKey"]
            with pytest.raises(ServiceBusError):
                sender.send_messages(ServiceBusMessage("y"))
        assert polybus(server, "keys", "delete", "app", "--entity", "q", "--yes")["deleted"]
        assert polybus(server, "keys", "list", "--entity", "q") == []
        assert "could not be found" in polybus(server, "keys", "delete", "app", "--entity", "q", "--yes", code=1)


def test_keys_of_the_namespace_and_of_a_topic(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--store", "memory:0") as server:
        polybus(server, "topic", "create", "t")
        polybus(server, "queue", "create", "a/b")
        assert polybus(server, "keys", "create", "k", "--entity", "a/b")["primaryConnectionString"].endswith("=a/b")
        polybus(server, "keys", "create", "reader", "--rights", "Listen", "--entity", "t")
        polybus(server, "keys", "create", "root", "--rights", "Manage")
        rights = {rule["name"]: set(rule["rights"]) for rule in polybus(server, "keys", "list")}
        assert rights["root"] == {"Manage", "Send", "Listen"}
        assert polybus(server, "keys", "list", "--entity", "t") == [{"name": "reader", "rights": ["Listen"]}]
        assert "--yes" in polybus(server, "keys", "regenerate", "root", code=2)
        assert "Send, Listen" in polybus(server, "keys", "create", "x", "--rights", "fly", code=2)
        told = polybus(server, "keys", "delete", "RootManageSharedAccessKey", "--yes", code=1)
        assert "given when the bus was started" in told


def test_a_file_of_keys_is_read_again_and_what_was_taken_out_of_it_ends(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    root = "RootManageSharedAccessKey=SAS_KEY_VALUE\n"
    file.write_text(root + "app=first:Send\n")
    file.chmod(0o600)
    with ServerProcess(tmp_path / "data", "--store", "memory:0", "--key-file", str(file)) as server:
        polybus(server, "queue", "create", "q")
        with with_key(server, "app", "first") as client, client.get_queue_sender("q") as sender:
            sender.send_messages(ServiceBusMessage("x"))
            file.write_text(root + "app=second:Send\n")
            os.kill(server.pid, signal.SIGHUP)
            until(server, "keys were read again")
            with pytest.raises(ServiceBusError):
                sender.send_messages(ServiceBusMessage("y"))
        with with_key(server, "app", "second") as client, client.get_queue_sender("q") as sender:
            sender.send_messages(ServiceBusMessage("z"))
            file.write_text("not a key")
            os.kill(server.pid, signal.SIGHUP)
            until(server, "the keys stay as they were")
            sender.send_messages(ServiceBusMessage("still"))


def until(server: ServerProcess, words: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not any(words in line for line in server.output):
        assert time.monotonic() < deadline, "".join(server.output[-20:])
        httpx.get(f"{server.http_url}/health")
