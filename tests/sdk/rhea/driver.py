"""Starts a bus that makes entities on demand, tells the tests where it is, runs them and counts."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.sdk.driving import environment, verdict
from tests.sdk.js.driver import tally

from polybus.testing.server import ServerProcess

HERE = Path(__file__).parent


def command(results: Path) -> list[str]:
    reporters = ["--test-reporter=spec", "--test-reporter-destination=stdout"]
    reporters += ["--test-reporter=tap", f"--test-reporter-destination={results}"]
    return ["node", "--test", *reporters, "rhea.test.mjs"]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.tap"
        with ServerProcess(Path(folder) / "data", "--on-demand-entities") as server:
            login = {"POLYBUS_KEY_NAME": server.key_name, "POLYBUS_KEY": server.key}
            code = subprocess.run(command(results), cwd=HERE, env=environment(server, **login)).returncode
        counts = tally(results.read_text(encoding="utf-8"))
    return verdict(code, *counts, server)


if __name__ == "__main__":
    sys.exit(main())
