"""Starts a bus of its own, tells the tests where it is, runs them and counts."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.sdk.driving import environment, tally, trust_store, verdict

from polybus.testing.server import ServerProcess

HERE = Path(__file__).parent
REPORTS = HERE / "target" / "surefire-reports"


def command(names: list[str], trusting: str) -> list[str]:
    chosen = [f"-Dtest={','.join(f'{name}Test' for name in names)}"] if names else []
    return ["mvn", "-q", "-B", "-Dstyle.color=never", "--offline", "surefire:test", f"-DargLine={trusting}", *chosen]


def main() -> int:
    shutil.rmtree(REPORTS, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with ServerProcess(folder / "data") as server:
            run = command(sys.argv[1:], trust_store(server, folder))
            code = subprocess.run(run, cwd=HERE, env=environment(server)).returncode
    return verdict(code, *tally(REPORTS), server)


if __name__ == "__main__":
    sys.exit(main())
