"""What lies on disk is for the bus's own user, and keys come from where other users cannot see them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus.management import ServiceBusAdministrationClient

from polybus.errors import StoreError
from polybus.node import Node, NodeOptions
from polybus.store.permissions import close_folder
from polybus.testing.server import ServerProcess

PRODUCTION = ("--profile", "production", "--development-certificate")
PORTS = ("--amqp-port", "0", "--http-port", "0", "--tls-port", "0")


def opened(folder: Path) -> list[str]:
    """What of a folder other users may reach."""
    found = [folder, *folder.rglob("*")]
    return [str(path) for path in found if stat.S_IMODE(path.lstat().st_mode) & 0o077]


def queues(server: ServerProcess, name: str, key: str) -> int:
    """How many queues a key shows; it must be good."""
    text = server.connection_string_for(name, key, server.addresses["http"])
    options = {"connection_verify": str(server.authority), "retry_total": 0}
    with ServiceBusAdministrationClient.from_connection_string(text, **options) as admin:
        return len(list(admin.list_queues()))


def make_queue(server: ServerProcess) -> None:
    options = {"connection_verify": str(server.authority)}
    with ServiceBusAdministrationClient.from_connection_string(server.admin_connection_string, **options) as admin:
        admin.create_queue("q", enable_partitioning=True)


def test_nobody_else_may_look_into_what_a_bus_keeps(tmp_path: Path) -> None:
    os.umask(0o022)
    with ServerProcess(tmp_path / "data") as server:
        make_queue(server)
        assert opened(tmp_path / "data") == []
    assert opened(tmp_path / "data") == []


def test_what_was_open_is_closed_and_said_loudly(tmp_path: Path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    stores = ("--store", f"rocksdb:{elsewhere}")
    with ServerProcess(data, *stores) as server:
        make_queue(server)
    for folder in (data, elsewhere):
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
    with ServerProcess(data, *stores) as server:
        assert opened(data) + opened(elsewhere) == []
        said = [line for line in server.output if "open to other users" in line]
        assert any(str(data) in line for line in said)
        assert any(str(elsewhere) in line for line in said)
    with ServerProcess(data, *stores) as server:
        assert not any("open to other users" in line for line in server.output)


def test_a_folder_with_other_things_in_it_stays_as_it_is(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    (data / "letter.txt").write_text("hello")
    (data / "letter.txt").chmod(0o644)
    with ServerProcess(data):
        assert opened(data) == [str(data), str(data / "letter.txt")]


def test_what_can_be_closed_by_nobody_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of another user: where everybody may write it is refused, else what is inside must be ours."""

    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    def closing(path: Path, mode: int) -> None:
        path.chmod(mode)
        with monkeypatch.context() as patched:
            patched.setattr(Path, "chmod", refuse)
            close_folder(tmp_path)

    closing(tmp_path, 0o755)
    with pytest.raises(StoreError, match="other users may reach it"):
        closing(tmp_path, 0o777)
    tmp_path.chmod(0o700)
    (tmp_path / "db").write_bytes(b"")
    with pytest.raises(StoreError, match="mode 640"):
        closing(tmp_path / "db", 0o640)


def test_keys_come_from_a_file_and_from_the_environment(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# who may do what\n\nfile=file-key\nreader=read:me:Listen\n")
    keys.chmod(0o600)
    environment = {"POLYBUS_KEY_environment": "from-the-environment", "POLYBUS_KEY_sender": "s:Send"}
    options = ("--profile", "production", "--development-certificate", "--key-file", str(keys))
    with ServerProcess(tmp_path / "data", *options, environment=environment) as server:
        assert not any("holds keys" in line or "SAS_KEY_VALUE" in line for line in server.output)
        assert queues(server, "file", "file-key") == 0
        assert queues(server, "environment", "from-the-environment") == 0
        for name, key in (("reader", "read:me"), ("sender", "s"), ("file", "from-the-environment")):
            with pytest.raises(ClientAuthenticationError):
                queues(server, name, key)
        with pytest.raises(ClientAuthenticationError):
            queues(server, "RootManageSharedAccessKey", "SAS_KEY_VALUE")


def test_a_file_of_keys_that_everybody_may_read_is_told(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("file=file-key")
    keys.chmod(0o644)
    with ServerProcess(tmp_path / "data", "--key-file", str(keys)) as server:
        assert any("holds keys" in line and str(keys) in line for line in server.output)


def config_with(tmp_path: Path, key: str | None) -> Path:
    rule = {"KeyName": "declared", "Rights": ["Manage", "Send", "Listen"], "PrimaryKey": key}
    namespace: dict[str, object] = {"Name": "sbemulatorns", "Queues": [{"Name": "q"}]}
    if key is not None:
        namespace["AuthorizationRules"] = [rule]
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    path.chmod(0o600)
    return path


def test_in_production_the_keys_of_a_file_of_entities_are_enough(tmp_path: Path) -> None:
    config = config_with(tmp_path, "declared-key")
    with ServerProcess(tmp_path / "data", *PRODUCTION, "--config", str(config)) as server:
        assert queues(server, "declared", "declared-key") == 1
        with pytest.raises(ClientAuthenticationError):
            queues(server, "RootManageSharedAccessKey", "SAS_KEY_VALUE")
        assert not any("SAS_KEY_VALUE" in line for line in server.output)


@pytest.mark.parametrize(
    ("key", "options", "environment", "says"),
    [
        (None, (), {}, "needs keys of your own"),
        ("SAS_KEY_VALUE", (), {}, "which everybody knows"),
        (None, ("--key", "a=SAS_KEY_VALUE"), {}, "which everybody knows"),
        ("good", ("--key", "a=b"), {"POLYBUS_KEY_a": "c"}, "given twice"),
        ("good", (), {"POLYBUS_KEY_a": ""}, "POLYBUS_KEY_a is not KEY"),
        ("good", ("--key-file", "/nowhere/keys"), {}, "/nowhere/keys"),
    ],
)
def test_production_without_good_keys_is_refused(
    tmp_path: Path, key: str | None, options: tuple[str, ...], environment: dict[str, str], says: str
) -> None:
    config = config_with(tmp_path, key)
    command = [sys.executable, "-m", "polybus", "serve", "--data", str(tmp_path / "data"), *PORTS]
    command += [*PRODUCTION, "--config", str(config), *options]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment}
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_no_complaint_about_a_file_of_keys_repeats_a_key(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("good=key\nthis-is-a-secret\n")
    command = [sys.executable, "-m", "polybus", "serve", "--data", str(tmp_path / "data"), *PORTS]
    done = subprocess.run(
        [*command, "--key-file", str(keys)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "line 2" in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.parametrize(
    ("host", "trusted"), [("127.0.0.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)]
)
def test_the_well_known_key_is_for_every_loopback_address_and_no_other(
    tmp_path: Path, host: str, trusted: bool
) -> None:
    assert bool(Node(NodeOptions(data=tmp_path, host=host)).common_keys()) is trusted
    assert Node(NodeOptions(data=tmp_path, host=host, production=True)).common_keys() == []
