"""Campaigns add up in a file, and the next one goes on where the last one ended."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.campaigns import next_seed, note, totals


def test_runs_add_up_with_commit_and_seed_and_the_next_begins_behind_them(tmp_path: Path) -> None:
    runs = tmp_path / "runs.jsonl"
    assert next_seed("seeds", runs) == 0
    note("seeds", 500, 61.2, 0, False, runs)
    note("seeds", 20, 3.0, 500, True, runs)
    note("kills of the server", 25, 90.0, 7, False, runs)
    assert next_seed("seeds", runs) == 520
    assert next_seed("kills of the server", runs) == 8
    assert totals(runs).splitlines() == [
        "kills of the server: 25, 0 runs with findings",
        "seeds: 520, 1 runs with findings",
    ]
    first = json.loads(runs.read_text().splitlines()[0])
    assert (first["seed"], first["seconds"], first["broken"]) == (0, 61, False)
    assert first["commit"]
