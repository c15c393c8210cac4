"""Draws the graph of imports between the rooms and fails where a room reaches into one it may not know."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import polybus

SOURCES = Path(polybus.__file__).parent

COMMON = {"errors", "limits", "clock", "rows", "numbering", "hashing", "promise", "turns", "asyncio_bridge"}
MAY_KNOW: dict[str, set[str]] = {
    "errors": set(),
    "limits": set(),
    "clock": set(),
    "memory": {"limits"},
    "rows": set(),
    "numbering": set(),
    "hashing": set(),
    "promise": {"errors"},
    "turns": {"promise"},
    "asyncio_bridge": {"errors", "promise"},
    "_compiled": set(),
    "__init__": {"_compiled", "errors", "server"},
    "client": {"errors", "limits"},
    "amqp": {"errors", "limits"},
    "rules": {"errors", "limits"},
    "message": {"amqp", "errors", "limits"},
    "partition": {*COMMON, "amqp", "message", "rules"},
    "store": {"errors", "limits", "rows", "promise"},
    "hosting": {*COMMON, "amqp", "message", "rules", "partition", "store"},
    "cluster": {*COMMON, "amqp", "message", "rules", "partition", "hosting", "store"},
    "namespace": {*COMMON, "amqp", "message", "rules", "partition", "store", "hosting"},
    "templates": {"errors", "limits"},
    "gateway": {*COMMON, "templates", "client", "amqp", "message", "rules", "namespace", "store"},
    "operations": {*COMMON, "amqp", "message", "rules", "partition", "store", "namespace", "hosting"},
    "provisioning": {*COMMON, "gateway", "namespace"},
}
ANYTHING_BUT_CLIENTS = {"__main__", "node", "nodes", "workers", "server", "testing", "cli"}
CLIENTS = {"spark", "console", "pipelines", "kombu"}
COMMANDED = {("cli", "pipelines")}
"""A command that runs a client; it loads the client only when it is called."""
SERVED = {("gateway", "console")}
"""The console's files leave through the gateway; the console itself knows nothing of it."""
PLAIN_DATA = {
    f"polybus.partition.{name}"
    for name in ("data", "kinds", "records", "rule_changes", "settings", "tokens", "totals")
}
"""All of a partition that the namespace may know: what its client's verbs take and give, settings and formats."""
CODEC = {"polybus.amqp.codec", "polybus.amqp.types"}
"""All of the AMQP room that the rooms below the gateway may know: how values are written."""


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def imports_of(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [
                f"{node.module}.{alias.name}" if node.module == "polybus" else node.module for alias in node.names
            ]
    return [name for name in dict.fromkeys(found) if name.startswith("polybus.")]


def edges() -> list[tuple[str, str, str]]:
    """(file, its room, module it imports)."""
    drawn = []
    for path in sorted(SOURCES.rglob("*.py")):
        relative = path.relative_to(SOURCES)
        room = relative.parts[0].removesuffix(".py")
        drawn += [(str(relative), room, module) for module in imports_of(path)]
    return drawn


def test_no_room_reaches_into_one_it_may_not_know() -> None:
    wrong = []
    for file, room, module in edges():
        other = room_of(module)
        if room in CLIENTS or other in ("__version__", "BUILD", room):
            continue
        if (room, other) in COMMANDED | SERVED:
            continue
        allowed = (other not in CLIENTS) if room in ANYTHING_BUT_CLIENTS else other in MAY_KNOW.get(room, COMMON)
        if not allowed:
            wrong.append(f"{file} ({room}) imports {module}")
    assert wrong == []


def test_clients_of_a_bus_know_nothing_of_its_inside() -> None:
    inside = {"partition", "namespace", "store", "gateway", "amqp"}
    wrong = [
        f"{file} imports {module}" for file, room, module in edges() if room in CLIENTS and room_of(module) in inside
    ]
    assert wrong == []


def test_the_command_line_starts_without_spark_and_yaml() -> None:
    look = "import sys, polybus.cli.app; print([name for name in ('pyspark', 'yaml') if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_below_the_gateway_only_the_codec_of_amqp_is_known() -> None:
    below = {"message", "partition", "cluster", "namespace", "operations"}
    wrong = [
        f"{file} imports {module}"
        for file, room, module in edges()
        if room in below and room_of(module) == "amqp" and module not in CODEC
    ]
    assert wrong == []


def test_the_namespace_reaches_partitions_only_through_their_client() -> None:
    wrong = [
        f"{file} imports {module}"
        for file, room, module in edges()
        if room == "namespace" and room_of(module) == "partition" and module not in PLAIN_DATA
    ]
    assert wrong == []


def test_every_room_is_in_the_graph() -> None:
    rooms = {path.name.removesuffix(".py") for path in SOURCES.iterdir() if path.suffix == ".py" or path.is_dir()}
    rooms -= {"__pycache__", "__init__", "py.typed"}
    assert rooms - set(MAY_KNOW) - ANYTHING_BUT_CLIENTS - CLIENTS == set()
