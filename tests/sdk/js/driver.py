"""Starts a bus of its own, tells the tests where it is, runs them and counts."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.sdk.driving import as_in_the_cloud, cloud_environment, environment, release, verdict

from polybus.testing.server import ServerProcess

HERE = Path(__file__).parent


TRANSPORT = "transport"
"""Its tests are about addresses that an older release does not know."""


def command(names: list[str], results: Path) -> list[str]:
    files = [f"{name}.test.mjs" for name in names]
    if not files:
        left_out = f"{TRANSPORT}.test.mjs" if release() else ""
        files = sorted(path.name for path in HERE.glob("*.test.mjs") if path.name != left_out)
    reporters = ["--test-reporter=spec", "--test-reporter-destination=stdout"]
    reporters += ["--test-reporter=tap", f"--test-reporter-destination={results}"]
    return ["node", "--test", "--test-concurrency=3", *reporters, *files]


def tally(results: str) -> tuple[int, int, int]:
    """Passed, failed, and failed as expected, as the runner itself has counted them."""
    counts = {name: int(number) for name, number in re.findall(r"^# (\w+) (\d+)$", results, re.MULTILINE)}
    return counts.get("pass", 0), counts.get("fail", 0) + counts.get("cancelled", 0), counts.get("todo", 0)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.tap"
        options = as_in_the_cloud() if release() else []
        with ServerProcess(Path(folder) / "data", *options) as server:
            told = cloud_environment if release() else environment
            surroundings = told(server, NODE_EXTRA_CA_CERTS=str(server.authority))
            place = HERE / "target" / release() if release() else HERE
            code = subprocess.run(command(sys.argv[1:], results), cwd=place, env=surroundings).returncode
        counts = tally(results.read_text(encoding="utf-8"))
    return verdict(code, *counts, server)


if __name__ == "__main__":
    sys.exit(main())
