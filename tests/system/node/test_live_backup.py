"""A bus is copied while it works: what was acknowledged before is in the copy, all of one moment, and it restores."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from polybus.client.sas import make_token
from polybus.operations.check import catalogue_url, check, store_urls
from polybus.testing.server import ServerProcess
from tests.support.postgres import postgres_server


def polybus(*words: str, connection: str = "", code: int = 0) -> str:
    environment = {**os.environ, "POLYBUS_CONNECTION": connection}
    done = subprocess.run(
        [sys.executable, "-m", "polybus", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stderr if code else done.stdout


def create(server: ServerProcess, *names: str) -> None:
    with ServiceBusAdministrationClient.from_connection_string(
        server.admin_connection_string, connection_verify=str(server.authority)
    ) as admin:
        for name in names:
            admin.create_queue(name, enable_partitioning=name != "plain")


def drain(server: ServerProcess, name: str) -> list[str]:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver(name, receive_mode="receiveanddelete", max_wait_time=2) as receiver,
    ):
        return [str(message) for message in receiver]


class Load:
    """A sender that writes down what was acknowledged, and forwards pairs: to `a` first, to `b` after that."""

    def __init__(self, server: ServerProcess) -> None:
        self._connection = server.connection_string
        self._stop = threading.Event()
        self.acknowledged = 0
        self.reached = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        assert self.reached.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with (
            ServiceBusClient.from_connection_string(self._connection) as client,
            client.get_queue_sender("first") as first,
            client.get_queue_sender("second") as second,
        ):
            while not self._stop.is_set():
                number = self.acknowledged
                first.send_messages(ServiceBusMessage(str(number)))
                second.send_messages(ServiceBusMessage(str(number)))
                self.acknowledged = number + 1
                if number == 50:
                    self.reached.set()


def test_a_copy_of_a_bus_under_load_is_of_one_moment_and_restores(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        create(server, "first", "second", "plain")
        with Load(server) as load:
            before = load.acknowledged
            said = polybus("backup", "--to", str(tmp_path / "copy"), connection=server.connection_string)
            after = load.acknowledged
        assert "verified" in said
        assert after >= before > 0
        assert not (tmp_path / "data" / "outgoing").exists()
        assert not list((tmp_path / "data").rglob("copy"))
        assert len(drain(server, "first")) >= load.acknowledged
    polybus("restore", str(tmp_path / "copy"), "--to", str(tmp_path / "restored"))
    assert check(catalogue_url(tmp_path / "restored"), store_urls(tmp_path / "restored")).findings == []
    with ServerProcess(tmp_path / "restored") as server:
        first, second = (sorted(map(int, drain(server, name))) for name in ("first", "second"))
    assert first == list(range(len(first)))
    assert second == list(range(len(second)))
    # Everything acknowledged before is there; of what came later a second copy is never there without its first.
    assert before <= len(second) <= len(first) <= load.acknowledged + 1
    assert len(first) - len(second) <= 1


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small backup of a bus that ran."""
    folder = tmp_path_factory.mktemp("copied")
    with ServerProcess(folder / "data", "--stores", "2") as server:
        create(server, "orders")
        with (
            ServiceBusClient.from_connection_string(server.connection_string) as client,
            client.get_queue_sender("orders") as sender,
        ):
            sender.send_messages([ServiceBusMessage(f"message {number}") for number in range(20)])
        polybus("backup", "--to", str(folder / "copy"), connection=server.connection_string)
        refused = polybus("backup", "--to", str(folder / "copy"), connection=server.connection_string, code=2)
        assert "exists already" in refused
    return folder / "copy"


def test_a_restore_refuses_what_is_not_empty(copied: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "letter").write_text("")
    assert "not empty" in polybus("restore", str(copied), "--to", str(tmp_path / "data"), code=2)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["letter"]


def test_a_restore_fills_a_folder_that_is_empty(copied: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    said = json.loads(polybus("restore", str(copied), "--to", str(tmp_path / "data"), "--json"))
    assert (said["entities"], said["messages"]) == (1, 20)
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["catalogue", "stores"]
    with ServerProcess(tmp_path / "data") as server:
        assert len(drain(server, "orders")) == 20


def spoiled(copied: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Copies of the backup, each spoiled in one way."""
    for way in ("flipped", "cut", "gone", "strange", "no manifest"):
        folder = tmp_path / way
        shutil.copytree(copied, folder)
        table = max((folder / "stores" / "0" / "db").glob("*.sst"), key=lambda path: path.stat().st_size)
        if way == "flipped":
            content = bytearray(table.read_bytes())
            content[len(content) // 2] ^= 1
            table.write_bytes(content)
        elif way == "cut":
            table.write_bytes(table.read_bytes()[:-1])
        elif way == "gone":
            table.unlink()
        elif way == "strange":
            (folder / "stores" / "0" / "db" / "000999.sst").write_bytes(b"x")
        else:
            (folder / "backup.json").unlink()
        yield way, folder


def test_a_backup_that_is_not_whole_is_not_restored(copied: Path, tmp_path: Path) -> None:
    for way, folder in spoiled(copied, tmp_path):
        said = polybus("restore", str(folder), "--to", str(tmp_path / "data"), code=1)
        assert any(word in said for word in ("as it was made", "missing", "does not belong")), (way, said)
        assert not (tmp_path / "data").exists()
        assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_only_who_manages_everything_gets_a_copy(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    rules = [{"KeyName": "own", "Rights": ["Manage", "Send", "Listen"], "PrimaryKey": "own-key"}]
    names = [{"Name": "one", "AuthorizationRules": rules}, {"Name": "two"}]
    config.write_text(json.dumps({"UserConfig": {"Namespaces": names}}))
    with ServerProcess(tmp_path / "data", "--config", str(config), "--key", "all=all-key") as server:
        for name, key in (("own", "own-key"), ("all", "all-key"), ("own", "wrong")):
            said = polybus(
                "backup", "--to", str(tmp_path / "copy"), connection=server.connection_string_for(name, key), code=1
            )
            assert not (tmp_path / "copy").exists(), said
        assert httpx.get(f"{server.http_url}/$polybus/backup").status_code == 401
    with ServerProcess(tmp_path / "single", "--key", "all=all-key", "--key", "reader=read:Listen,Send") as server:
        polybus(
            "backup", "--to", str(tmp_path / "x"), connection=server.connection_string_for("reader", "read"), code=1
        )
        polybus("backup", "--to", str(tmp_path / "x"), connection=server.connection_string_for("all", "all-key"))


def test_a_bus_without_one_of_its_stores_is_not_copied(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        create(server, "orders")
        token = {"Authorization": _token(server)}
        down = httpx.post(f"{server.http_url}/$polybus/faults/stores/1/down", headers=token)
        assert down.status_code < 300, down.text
        said = polybus("backup", "--to", str(tmp_path / "copy"), connection=server.connection_string, code=1)
        assert "not available" in said or "Try again" in said
        assert not (tmp_path / "copy").exists()
        assert not (tmp_path / "data" / "outgoing").exists()


def _token(server: ServerProcess) -> str:
    return make_token(server.http_url, "RootManageSharedAccessKey", "SAS_KEY_VALUE", int(time.time()) + 600)


def test_stores_in_postgresql_are_copied_while_they_work_and_restored_into_empty_ones(tmp_path: Path) -> None:
    with postgres_server() as database:
        urls = [database.url("one"), f"rocksdb:{tmp_path / 'rocks'}"]
        options = [word for url in urls for word in ("--store", url)]
        with ServerProcess(tmp_path / "data", *options) as server:
            create(server, "first", "second")
            with Load(server) as load:
                before = load.acknowledged
                polybus("backup", "--to", str(tmp_path / "copy"), connection=server.connection_string)
        fresh = [database.url("three"), database.url("four")]
        named = [word for url in fresh for word in ("--store", url)]
        polybus("restore", str(tmp_path / "copy"), "--to", str(tmp_path / "restored"), *named)
        again = polybus("restore", str(tmp_path / "copy"), "--to", str(tmp_path / "again"), *named, code=2)
        assert "not empty" in again
        with ServerProcess(tmp_path / "restored", *named) as server:
            first, second = (sorted(map(int, drain(server, name))) for name in ("first", "second"))
        assert first == list(range(len(first)))
        assert second == list(range(len(second)))
        assert before <= len(second) <= len(first) <= len(second) + 1
