"""Coverage-guided fuzzing with atheris, target by target, to be gone on with: `scripts/fuzz`.

Each target's corpus is kept in `tests/fuzz/corpus/` and read again by the next run; how many inputs were tried is added
to `tests/fuzz/runs.jsonl` with the commit and the seed. A crash or a hang is left as a file by the fuzzer, whose name is
told; it becomes a test.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
RUNS = FOLDER / "runs.jsonl"
NAMES = ("codec", "connection", "http", "atom", "tokens", "rules", "jwt", "frames")
HANG_SECONDS = 10
LONGEST_INPUT = 4_096


def fuzz(name: str, seconds: int, seed: int) -> int:
    """Runs one target; how many inputs were tried. Raises where one of them broke it."""
    corpus = FOLDER / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    findings = FOLDER / "findings"
    findings.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.atheris_target", name, str(corpus)]
    command += [
        f"-max_total_time={seconds}",
        f"-timeout={HANG_SECONDS}",
        f"-max_len={LONGEST_INPUT}",
        f"-seed={seed}",
    ]
    command += ["-print_final_stats=1", f"-artifact_prefix={findings}/{name}-"]
    begun_s = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    tried = re.search(r"number_of_executed_units:\s*(\d+)", done.stderr) or re.search(r"Done (\d+) runs", done.stderr)
    inputs = int(tried[1]) if tried else 0
    note(name, inputs, time.monotonic() - begun_s, seed, done.returncode)
    if done.returncode != 0:
        raise SystemExit(f"{name}: broken, see {findings}\n{done.stderr[-3_000:]}")
    return inputs


def note(name: str, inputs: int, seconds: float, seed: int, code: int) -> None:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    one = {
        "target": name,
        "inputs": inputs,
        "seconds": round(seconds),
        "seed": seed,
        "commit": commit.stdout.strip(),
        "broken": code != 0,
    }
    with RUNS.open("a") as runs:
        runs.write(json.dumps(one) + "\n")


def totals() -> dict[str, int]:
    """Inputs tried so far, by target, over all runs."""
    found = dict.fromkeys(NAMES, 0)
    for line in RUNS.read_text().splitlines() if RUNS.exists() else []:
        one = json.loads(line)
        found[one["target"]] = found.get(one["target"], 0) + one["inputs"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=6.0, help="for all targets together (6)")
    parser.add_argument("--target", choices=NAMES, action="append", help="only these (repeatable)")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--totals", action="store_true", help="only say how much was tried so far")
    given = parser.parse_args()
    targets = given.target or NAMES
    seed = given.seed if given.seed is not None else int(time.time()) % 1_000_000
    if not given.totals:
        for name in targets:
            inputs = fuzz(name, max(int(given.minutes * 60 / len(targets)), 1), seed)
            print(f"{name}: {inputs:,} inputs, nothing found", flush=True)
    counted = totals()
    print(", ".join(f"{name} {inputs:,}" for name, inputs in counted.items()), f"; {sum(counted.values()):,} in all")


if __name__ == "__main__":
    main()
