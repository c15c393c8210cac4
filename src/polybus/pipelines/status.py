"""`polybus pipelines status`: what each pipeline does, from its runner or from what it has left in its folder."""

from __future__ import annotations

import http.client
import json
from typing import Any, Final

from polybus.pipelines.control import PauseMark
from polybus.pipelines.declaration import Declaration
from polybus.pipelines.folders import CheckpointState, Folder
from polybus.pipelines.history import RunHistory
from polybus.pipelines.kind import PipelineKind

_ASK_SECONDS: Final = 5


def pipeline_states(declaration: Declaration) -> list[dict[str, Any]]:
    told: dict[str, dict[str, Any]] = {}
    found = []
    for kind in declaration.pipelines:
        folder = Folder(declaration.checkpoints / kind.name)
        address = folder.runner()
        if address and address not in told:
            told[address] = _ask(address)
        found.append(_state(kind, folder, address, told.get(address or "", {})))
    return found


def _state(kind: PipelineKind, folder: Folder, address: str | None, told: dict[str, Any]) -> dict[str, Any]:
    own = {"name": kind.name, "kind": kind.kind, "what": kind.describe()}
    if address is not None:
        return {**own, "state": "running", **told.get(kind.name, {}), "runner": address}
    told = {**own, **_from_history(folder), **_from_journal(folder.journal())}
    return {**told, "state": "paused"} if PauseMark(folder.path) else told


def pipeline_runs(declaration: Declaration) -> list[dict[str, Any]]:
    """Every run that the folders remember, oldest first."""
    found = []
    for kind in declaration.pipelines:
        folder = Folder(declaration.checkpoints / kind.name)
        running, runs = folder.runner() is not None, RunHistory(folder.path).runs()
        found += [{"name": kind.name, **run.record(running and run is runs[-1])} for run in runs]
    return found


def _from_history(folder: Folder) -> dict[str, Any]:
    """What the last run of a pipeline that does not run has done."""
    runs = RunHistory(folder.path).runs()
    if not runs:
        return {}
    told = runs[-1].record(running=False)
    return {name: value for name, value in told.items() if value is not None and name != "batches"}


def _from_journal(journal: CheckpointState | None) -> dict[str, Any]:
    if journal is None:
        return {"state": "not running"}
    state = "not running" if journal.planned == journal.done else "not running, with a batch to repeat"
    positions = [{str(index): at for index, at in end.positions.items()} for end in journal.ends]
    return {"state": state, "batch": journal.done, "query": journal.query, "positions": positions}


def _ask(address: str) -> dict[str, Any]:
    """What a runner tells of its pipelines, by name; nothing where it does not answer."""
    connection = http.client.HTTPConnection(address, timeout=_ASK_SECONDS)
    try:
        connection.request("GET", "/status")
        told = json.loads(connection.getresponse().read())
        return {each["name"]: each for each in told["pipelines"]}
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return {}
    finally:
        connection.close()
