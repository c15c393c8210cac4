"""Starts a bus that makes entities on demand, tells the tests where it is, runs them and counts."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.sdk.driving import environment, verdict
from tests.sdk.go.driver import command, tally

from polybus.testing.server import ServerProcess

HERE = Path(__file__).parent


def main() -> int:
    with tempfile.TemporaryDirectory() as name, ServerProcess(Path(name) / "data", "--on-demand-entities") as server:
        login = {"POLYBUS_KEY_NAME": server.key_name, "POLYBUS_KEY": server.key}
        surroundings = environment(server, **login)
        done = subprocess.run(command(sys.argv[1:]), cwd=HERE, env=surroundings, capture_output=True, text=True)
    print(done.stdout + done.stderr)
    return verdict(done.returncode, *tally(done.stdout), server)


if __name__ == "__main__":
    sys.exit(main())
