"""Starts a bus that makes entities on demand, tells the tests where it is, runs them and counts."""

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
ROOT = ("jms-root", "a-key-for-everything")
WORKER = ("jms-worker", "a-key-that-makes-nothing")
KEYS = ("--key", "=".join(ROOT), "--key", f"{'='.join(WORKER)}:Send,Listen")


def command(names: list[str], trusting: str) -> list[str]:
    chosen = [f"-Dtest={','.join(f'{name}Test' for name in names)}"] if names else []
    return ["mvn", "-q", "-B", "-Dstyle.color=never", "--offline", "surefire:test", f"-DargLine={trusting}", *chosen]


def main() -> int:
    shutil.rmtree(REPORTS, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with ServerProcess(folder / "data", "--on-demand-entities", *KEYS) as server:
            server.key_name, server.key = ROOT
            more = {"POLYBUS_KEY_NAME": ROOT[0], "POLYBUS_KEY": ROOT[1]}
            more |= {"POLYBUS_WORKER_NAME": WORKER[0], "POLYBUS_WORKER_KEY": WORKER[1]}
            run = command(sys.argv[1:], trust_store(server, folder))
            code = subprocess.run(run, cwd=HERE, env=environment(server, **more)).returncode
    return verdict(code, *tally(REPORTS), server)


if __name__ == "__main__":
    sys.exit(main())
