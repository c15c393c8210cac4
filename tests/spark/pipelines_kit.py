"""What tests of pipelines need beside the kit: a file's text in, everything that it declares run once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from polybus.pipelines.declaration import Declaration, parse
from polybus.pipelines.runner import Runner, run_once
from tests.spark.kit import Kit


def declared(kit: Kit, *pipelines: dict[str, Any], **settings: Any) -> Declaration:
    """A file with these pipelines on the kit's bus; JSON is YAML too."""
    told = {
        "bus": {"connectionString": kit.server.connection_string},
        "checkpoints": "checkpoints",
        "restart": {"attempts": 1},
        "pipelines": list(pipelines),
        **settings,
    }
    return parse(json.dumps(told), "pipelines.yml", kit.folder)


def run(kit: Kit, *pipelines: dict[str, Any]) -> Runner:
    return run_once(declared(kit, *pipelines), kit.spark)


def forget_last_commit(kit: Kit, name: str) -> None:
    """As if the driver had died after the batch was written and before Spark wrote that down."""
    commits = kit.folder / "checkpoints" / name / "stream" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for path in (commits / str(last), commits / f".{last}.crc"):
        path.unlink(missing_ok=True)


def checkpoint(kit: Kit, name: str) -> Path:
    return kit.folder / "checkpoints" / name
