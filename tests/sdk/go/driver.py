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


def command(chosen: list[str]) -> list[str]:
    only = ["-test.run", chosen[0]] if chosen else []
    return ["target/sdk.test", "-test.v", "-test.parallel", "3", "-test.timeout", "170s", *only]


def tally(output: str) -> tuple[int, int, int]:
    """Passed, failed and skipped; a test that has runs of its own is counted by them."""
    results: dict[str, str] = {}
    for outcome, name in re.findall(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", output, re.MULTILINE):
        results[name] = outcome
    parents = {name.rsplit("/", 1)[0] for name in results if "/" in name}
    outcomes = [outcome for name, outcome in results.items() if name not in parents]
    return outcomes.count("PASS"), outcomes.count("FAIL"), outcomes.count("SKIP")


def main() -> int:
    options = as_in_the_cloud() if release() else []
    told = cloud_environment if release() else environment
    with tempfile.TemporaryDirectory() as folder, ServerProcess(Path(folder) / "data", *options) as server:
        trusted = {"POLYBUS_CA": str(server.authority), "SSL_CERT_FILE": str(server.authority)}
        done = subprocess.run(
            command(sys.argv[1:]),
            cwd=HERE,
            env=told(server, **trusted),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    noise = re.compile(r"=== (RUN|PAUSE|CONT|NAME)")
    print("\n".join(line for line in done.stdout.splitlines() if not noise.match(line)))
    return verdict(done.returncode, *tally(done.stdout), server)


if __name__ == "__main__":
    sys.exit(main())
