"""What campaigns have done so far: seeds, kills, sieges. Runs add up in `tests/campaigns.jsonl`, over days and machines.

Each line has the commit and the seed, so that what a figure is worth can be told, and the next run goes on behind the
last seed instead of playing the same ones again.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

RUNS = Path(os.environ.get("POLYBUS_CAMPAIGNS") or Path(__file__).resolve().parents[1] / "campaigns.jsonl")
"""Tests play the same seeds each time and note nothing: `tests/conftest.py` names another file for them."""


def note(kind: str, count: int, seconds: float, seed: int, broken: bool, runs: Path | None = None) -> None:
    """Adds a run: `count` seeds from `seed` on, kills or attacks."""
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    one = {"kind": kind, "count": count, "seconds": round(seconds), "seed": seed, "commit": head.stdout.strip()}
    with (runs or RUNS).open("a", encoding="utf-8") as kept:
        kept.write(json.dumps({**one, "broken": broken}) + "\n")


def noted(runs: Path | None = None) -> list[dict[str, Any]]:
    path = runs or RUNS
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def next_seed(kind: str, runs: Path | None = None) -> int:
    """The first seed that no run of this kind has played."""
    return max((one["seed"] + one["seeds_used"] for one in _of(kind, runs)), default=0)


def _of(kind: str, runs: Path | None) -> list[dict[str, Any]]:
    """Runs of one kind. A round of kills has one seed, whatever it counts."""
    found = [one for one in noted(runs) if one["kind"] == kind]
    return [{**one, "seeds_used": one["count"] if kind.startswith("seeds") else 1} for one in found]


def totals(runs: Path | None = None) -> str:
    """How much was done of each kind, and how many runs found something."""
    counted: Counter[str] = Counter()
    broken: Counter[str] = Counter()
    for one in noted(runs):
        counted[one["kind"]] += one["count"]
        broken[one["kind"]] += one["broken"]
    return "\n".join(
        f"{kind}: {count:,}, {broken[kind]} runs with findings" for kind, count in sorted(counted.items())
    )
