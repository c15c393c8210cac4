"""Web pages that reach the bus by a name of their own (DNS rebinding), and what a manager of one namespace sees."""

from __future__ import annotations

import base64
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from polybus.client.sas import make_token
from polybus.testing.server import ServerProcess

CONFIG = {
    "UserConfig": {
        "Namespaces": [
            {"Name": name, "Queues": [{"Name": f"{name}-q"}], "AuthorizationRules": [rule]}
            for name, rule in (
                ("one", {"KeyName": "ones", "PrimaryKey": "key-of-one", "Rights": ["Manage", "Send", "Listen"]}),
                ("two", {"KeyName": "twos", "PrimaryKey": "key-of-two", "Rights": ["Manage", "Send", "Listen"]}),
            )
        ]
    }
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data: Path = tmp_path_factory.mktemp("pages")
    config = data / "config.json"
    config.write_text(json.dumps(CONFIG))
    options = (
        "--store",
        "memory:",
        "--config",
        str(config),
        "--allow-host",
        "bus.example.net",
        "--cert-name",
        "c.example",
    )
    with ServerProcess(data / "bus", *options) as server:
        yield server


CASES = [
    # origin, host, whether it is refused
    (None, "evil.example", False),
    ("http://evil.example", "evil.example", True),
    ("http://evil.example:8080", "evil.example:8080", True),
    ("null", "evil.example", True),
    ("http://evil.example", "other.example", True),
    ("http://localhost.evil.example", "localhost.evil.example", True),
    ("http://127.0.0.1.evil.example", "127.0.0.1.evil.example", True),
    ("http://[::2]", "[::2]:80", True),
    ("http://localhost:5300", "localhost:5300", False),
    ("http://127.0.0.9", "127.0.0.9", False),
    ("http://[::1]:80", "[::1]:80", False),
    ("http://app.localhost", "app.localhost", False),
    ("https://BUS.example.net", "bus.EXAMPLE.net", False),
    ("https://c.example:5671", "c.example:5671", False),
    ("http://one", "one", False),
]


def status(server: ServerProcess, origin: str | None, host: str, *, websocket: bool) -> int:
    address, _, port = server.addresses["http"].rpartition(":")
    path = "/$servicebus/websocket" if websocket else "/health/live"
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", *([f"Origin: {origin}"] if origin else [])]
    if websocket:
        key = base64.b64encode(os.urandom(16)).decode()
        lines += [
            "Connection: Upgrade",
            "Upgrade: websocket",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
        ]
        lines += ["Sec-WebSocket-Protocol: AMQPWSB10"]
    with socket.create_connection((address, int(port)), 10) as client:
        client.sendall("\r\n".join([*lines, "", ""]).encode())
        return int(client.recv(4_096)[9:12])


@pytest.mark.parametrize(("origin", "host", "refused"), CASES)
def test_a_page_with_a_foreign_name_is_refused(server: ServerProcess, origin: str, host: str, refused: bool) -> None:
    assert (status(server, origin, host, websocket=False) == 403) is refused
    assert (status(server, origin, host, websocket=True) == 403) is refused
    if not refused:
        assert status(server, origin, host, websocket=True) == 101


def stores(server: ServerProcess, name: str, key: str, host: str) -> list[dict[str, object]]:
    token = make_token(f"http://{host}/", name, key, 4_000_000_000)
    answer = httpx.get(f"{server.http_url}/$polybus/stores", headers={"Authorization": token, "Host": host})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, object]] = answer.json()["stores"]
    return found


def test_a_manager_sees_only_its_own_part_of_the_stores(server: ServerProcess) -> None:
    [seen] = stores(server, "ones", "key-of-one", "one")
    assert (seen["url"], seen["id"], seen["last_error"], seen["partitions"]) == ("", "", None, 1)
