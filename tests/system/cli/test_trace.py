"""`polybus trace` against a bus in a process of its own."""

from __future__ import annotations

import httpx

from polybus.client.connection_string import ConnectionString
from tests.system.cli.server import Served, Shell


def test_a_message_is_followed_by_its_id(served: Served, shell: Shell) -> None:
    shell.run("queue", "create", "followed")
    shell.run("queue", "create", "silent")
    token = ConnectionString(served.connection()).token()
    url = f"http://{served.authority}/$polybus/entities/followed/events"
    assert httpx.put(url, json={"enabled": True}, headers={"Authorization": token}).status_code == 200
    shell.run("send", "followed", "hello", "--message-id", "mine")
    shell.run("receive", "followed")
    found = shell.json("trace", "mine")
    assert [(row["entity"], row["change"]) for row in found["trail"]] == [
        ("followed", "enqueued"),
        ("followed", "completed"),
    ]
    assert "silent" in found["without_events"]
    shown = shell.run("trace", "mine")
    assert "completed" in shown
    for name in ("followed", "silent"):
        shell.run("queue", "delete", name, "--yes")
