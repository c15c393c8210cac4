"""What stands under packaging/: the container's entry point runs; the container file, compose and unit are linted.

No container can be run here, so that the image builds is not shown.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from polybus.cluster.options import cluster_options
from polybus.testing.server import ServerProcess

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"
EMULATOR = {"ACCEPT_EULA": "Y", "SQL_SERVER": "sqledge", "MSSQL_SA_PASSWORD": "secret", "SQL_WAIT_INTERVAL": "0"}


def tool(name: str) -> str:
    """A program of the environment that the tests run in, or of this machine."""
    environments = [f"{Path(path).parents[2]}/bin" for path in sys.path if path.endswith("site-packages")]
    found = shutil.which(name, path=os.pathsep.join([*environments, os.environ.get("PATH", "")]))
    if found is None:
        pytest.skip(f"there is no {name} here")
    return found


def entrypoint(tmp_path: Path, **environment: str) -> ServerProcess:
    """The program is the entry point: what `ServerProcess` adds stands where a user's own options would."""
    (tmp_path / "bin").mkdir(exist_ok=True)
    starter = tmp_path / "bin" / "polybus"
    starter.write_text(f'#!/bin/sh\nexec {sys.executable} -m polybus "$@"\n')
    starter.chmod(0o755)
    # `serve` is the entry point's own word.
    bridge = tmp_path / "bin" / "container"
    bridge.write_text(f'#!/bin/sh\nshift\nexec {PACKAGING / "entrypoint"} "$@"\n')
    bridge.chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    server = ServerProcess(
        tmp_path / "data", "--host", "127.0.0.1", environment={**EMULATOR, **environment, "PATH": path}
    )
    server.program = (str(bridge),)  # type: ignore[assignment]
    return server


def test_the_entry_point_takes_the_emulators_place(tmp_path: Path) -> None:
    config = tmp_path / "Config.json"
    shutil.copy(PACKAGING / "config.json", config)
    with entrypoint(tmp_path, POLYBUS_CONFIG=str(config)) as server:
        assert "Emulator Service is Successfully Up!\n" in server.output
        with ServiceBusClient.from_connection_string(server.connection_string) as client:
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("hello"))
            (message,) = client.get_queue_receiver("orders").peek_messages()
            assert str(message) == "hello"


def test_keys_of_ones_own_take_the_place_of_the_well_known_one(tmp_path: Path) -> None:
    with entrypoint(tmp_path, POLYBUS_KEY_mine="c2VjcmV0") as server:
        command = (sys.executable, "-m", "polybus", "stores", "--json", "--connection")
        for key_name, key, code in (("mine", "c2VjcmV0", 0), ("RootManageSharedAccessKey", "SAS_KEY_VALUE", 1)):
            given = server.connection_string_for(key_name, key)
            done = subprocess.run([*command, given], capture_output=True, text=True, check=False)
            assert done.returncode == code, done.stderr


def test_the_container_file_is_linted_and_names_the_emulators_ports() -> None:
    done = subprocess.run([tool("hadolint"), PACKAGING / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    exposed = re.search(r"^EXPOSE (.*)$", (PACKAGING / "Dockerfile").read_text(), re.MULTILINE)
    assert exposed is not None
    assert exposed[1].split() == ["5672", "5671", "5300"]


def test_the_compose_file_follows_its_schema() -> None:
    command = [tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(PACKAGING / "compose.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "/ServiceBus_Emulator/ConfigFiles/Config.json" in (PACKAGING / "compose.yml").read_text()
    assert json.loads((PACKAGING / "config.json").read_text())["UserConfig"]["Namespaces"][0]["Queues"]


def test_the_cluster_of_the_compose_file_is_one_that_nodes_take() -> None:
    path = PACKAGING / "compose.cluster.yml"
    command = [tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    services = yaml.safe_load(path.read_text())["services"]
    seen = set()
    for name in "abc":
        given = [word.removeprefix("--").split("=", 1) for word in services[name]["command"]]
        stores = [value for option, value in given if option == "store"]
        options = dict(given)
        found = cluster_options(
            options["cluster"], options["node"], options["advertise"], stores=stores, catalogue=None, host=options["host"]
        )
        assert found is not None
        assert found.node == name
        assert options["advertise"] == f"{name}:5680"
        seen.add((options["cluster"], *stores))
    assert len(seen) == 1, "all nodes are given the same"


def test_the_unit_is_understood_by_systemd(tmp_path: Path) -> None:
    unit = tmp_path / "polybus.service"
    unit.write_text((PACKAGING / "polybus.service").read_text().replace("/opt/polybus/bin/polybus", "/bin/true"))
    command = [tool("systemd-analyze"), "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if "polybus.service" in line] == []
