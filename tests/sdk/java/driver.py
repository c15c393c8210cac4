"""Starts a bus of its own, tells the tests where it is, runs them and counts."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.sdk.driving import environment, verdict

from polybus.testing.server import ServerProcess

HERE = Path(__file__).parent
REPORTS = HERE / "target" / "surefire-reports"
PASSWORD = "trusted"


def trust_store(server: ServerProcess, folder: Path) -> Path:
    """Java takes the authorities it trusts from a file of its own kind."""
    made = folder / "trusted.p12"
    command = ["keytool", "-importcert", "-noprompt", "-alias", "polybus", "-file", str(server.authority)]
    command += ["-keystore", str(made), "-storetype", "PKCS12", "-storepass", PASSWORD]
    subprocess.run(command, check=True, capture_output=True)
    return made


def command(names: list[str], trusted: Path) -> list[str]:
    java = f"-Djavax.net.ssl.trustStore={trusted} -Djavax.net.ssl.trustStorePassword={PASSWORD}"
    chosen = [f"-Dtest={','.join(f'{name}Test' for name in names)}"] if names else []
    return ["mvn", "-q", "-B", "-Dstyle.color=never", "--offline", "surefire:test", f"-DargLine={java}", *chosen]


def tally() -> tuple[int, int, int]:
    """Passed, failed and skipped, as the runner's reports have them."""
    counts = [0, 0, 0]
    for report in REPORTS.glob("TEST-*.xml"):
        head = re.search(r"<testsuite [^>]*>", report.read_text(encoding="utf-8"))
        assert head is not None, f"{report.name} has no suite"
        names = ("tests", "errors", "failures", "skipped")
        number = {name: int(match[1]) for name in names if (match := re.search(rf'\b{name}="(\d+)"', head[0]))}
        failed = number["errors"] + number["failures"]
        counts[0] += number["tests"] - failed - number["skipped"]
        counts[1] += failed
        counts[2] += number["skipped"]
    return counts[0], counts[1], counts[2]


def main() -> int:
    shutil.rmtree(REPORTS, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with ServerProcess(folder / "data") as server:
            run = command(sys.argv[1:], trust_store(server, folder))
            code = subprocess.run(run, cwd=HERE, env=environment(server)).returncode
    return verdict(code, *tally(), server)


if __name__ == "__main__":
    sys.exit(main())
