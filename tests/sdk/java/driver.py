"""Starts a bus of its own, tells the tests where it is, runs them and counts."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.sdk.driving import as_in_the_cloud, cloud_environment, environment, release, tally, trust_store, verdict

from polybus.testing.server import ServerProcess

HERE = Path(__file__).parent
REPORTS = HERE / "target" / "surefire-reports"


def command(names: list[str], trusting: str) -> list[str]:
    chosen = [f"-Dtest={','.join(f'{name}Test' for name in names)}"] if names else []
    if release():
        chosen.append(f"-Dservicebus.release={release()}")
        if not names:
            chosen.append("-Dtest=!TransportTest")  # it is about addresses that an older release does not know
    return ["mvn", "-q", "-B", "-Dstyle.color=never", "--offline", "surefire:test", f"-DargLine={trusting}", *chosen]


def main() -> int:
    shutil.rmtree(REPORTS, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = as_in_the_cloud() if release() else []
        with ServerProcess(folder / "data", *options) as server:
            run = command(sys.argv[1:], trust_store(server, folder))
            told = cloud_environment if release() else environment
            code = subprocess.run(run, cwd=HERE, env=told(server)).returncode
    return verdict(code, *tally(REPORTS), server)


if __name__ == "__main__":
    sys.exit(main())
