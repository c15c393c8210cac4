"""`polybus serve` as scripts know it: its lines, its codes, its end."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from pathlib import Path

import pytest

from polybus.operations.check import catalogue_url, check, store_urls
from tests.system.cli.server import Served, Shell, run_command
from tests.system.cli.small_bus import fill


def test_it_says_when_it_is_ready_and_stops_cleanly(tmp_path: Path) -> None:
    served = Served(tmp_path / "data")
    assert "Emulator Service is Successfully Up!" in served.lines
    assert served.lines[-1].startswith(f"ready amqp={served.authority} http={served.authority}")
    shell = Shell(served.connection())
    shell.run("queue", "create", "q", "--enable-partitioning")
    shell.run("send", "q", "x", "--count", "5")
    assert "a bus has this store open" in shell.run("check", str(served.data), code=2)
    shell.run("backup", str(served.data), "--to", str(tmp_path / "copy"), code=2)
    assert served.stop()[0] == 0
    assert "clean" in shell.run("check", str(served.data))
    shell.run("healthcheck", code=3)


def test_a_backup_is_served_like_any_data(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path / "data"))
    shell = Shell("")
    text = shell.run("backup", str(tmp_path / "data"), "--to", str(tmp_path / "copy"))
    assert f"polybus restore {tmp_path / 'copy'}" in text
    served = Served(tmp_path / "copy", "--namespace", "test")
    try:
        shell = Shell(served.connection())
        assert shell.json("queue", "show", "orders")["counts"]["dead_letter"] == 2
        assert len(shell.lines("receive", "orders/$DeadLetterQueue", "--count", "2", "--wait", "1s")) == 1
    finally:
        assert served.stop()[0] == 0
    assert check(catalogue_url(tmp_path / "copy"), store_urls(tmp_path / "copy")).findings == []


def test_a_damaged_folder_is_code_1(data: Path) -> None:
    shutil.rmtree(data / "stores" / "1")
    result = run_command("check", str(data))
    assert result.returncode == 1
    assert "not there to be looked at" in result.stdout
    report = json.loads(run_command("check", str(data), "--json").stdout)
    assert (report["clean"], report["finding_count"]) == (False, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--host", "0.0.0.0"),
        ("--profile", "production"),
        ("--profile", "production", "--key", "a=b", "--clock", "movable"),
        ("--key", "nonsense"),
        ("--store", "nonsense"),
        ("--tier", "golden"),
        ("--config", "no-such-file"),
    ],
    ids=" ".join,
)
def test_what_it_cannot_do_is_one_line_and_code_2(arguments: tuple[str, ...], tmp_path: Path) -> None:
    result = run_command("serve", "--port", "0", "--data", str(tmp_path / "data"), *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("polybus: ")


def test_the_version() -> None:
    result = run_command("version", "--json")
    assert set(json.loads(result.stdout)) == {"version", "build", "python"}
    assert run_command("version").stdout.startswith("polybus ")
    assert run_command("nonsense").returncode == 2


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        others = ("--http-port", "0", "--tls-port", "0")
        done = run_command("serve", "--data", str(tmp_path), "--amqp-port", str(port), *others)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"polybus: port {port} of 127.0.0.1 is taken by another program")
    assert "--amqp-port" in line
