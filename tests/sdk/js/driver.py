"""Starts a bus of its own, tells the tests where it is, runs them and counts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from polybus.testing.server import ServerProcess

HERE = Path(__file__).parent


def environment(server: ServerProcess) -> dict[str, str]:
    """What a test needs to know; the SDK itself reads nothing of it but the CA."""
    return {
        **os.environ,
        "NODE_EXTRA_CA_CERTS": str(server.authority),
        "POLYBUS_CONNECTION_STRING": server.connection_string,
        "POLYBUS_ADMIN_CONNECTION_STRING": server.admin_connection_string,
        "POLYBUS_AMQP": server.addresses["amqp"],
        "POLYBUS_HTTP": server.addresses["http"],
        "POLYBUS_TLS": server.addresses["tls"],
    }


def command(names: list[str], results: Path) -> list[str]:
    files = [f"{name}.test.mjs" for name in names] or sorted(path.name for path in HERE.glob("*.test.mjs"))
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
        with ServerProcess(Path(folder) / "data") as server:
            code = subprocess.run(command(sys.argv[1:], results), cwd=HERE, env=environment(server)).returncode
        passed, failed, expected = tally(results.read_text(encoding="utf-8"))
    print(f"{passed} passed, {failed} failed" + (f", {expected} expected failures" if expected else ""))
    return 0 if code == 0 and failed == 0 and passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
