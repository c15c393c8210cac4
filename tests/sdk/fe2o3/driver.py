"""Starts a bus that makes entities on demand, makes the partitioned ones, runs the tests and counts."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from azure.servicebus.management import ServiceBusAdministrationClient
from tests.sdk.driving import environment, verdict

from polybus.testing.server import ServerProcess

HERE = Path(__file__).parent
PARTITIONED = 8
"""As many partitioned queues as tests that want one, and some to spare."""


def tally(output: str) -> tuple[int, int, int]:
    """Passed, failed and skipped, as each test's line says."""
    outcomes = re.findall(r"^test \S+ \.\.\. (ok|FAILED|ignored)", output, re.MULTILINE)
    return outcomes.count("ok"), outcomes.count("FAILED"), outcomes.count("ignored")


def main() -> int:
    with tempfile.TemporaryDirectory() as name, ServerProcess(Path(name) / "data", "--on-demand-entities") as server:
        with ServiceBusAdministrationClient.from_connection_string(
            server.admin_connection_string, connection_verify=str(server.authority)
        ) as admin:
            for number in range(PARTITIONED):
                admin.create_queue(f"parted-{number}", enable_partitioning=True)
        login = f"{quote(server.key_name, safe='')}:{quote(server.key, safe='')}"
        surroundings = environment(server, POLYBUS_URL=f"amqp://{login}@{server.addresses['amqp']}")
        command = ["cargo", "test", "--locked", "--offline", "--quiet", "--test", "client", "--", "--format=pretty"]
        done = subprocess.run([*command, *sys.argv[1:]], cwd=HERE, env=surroundings, capture_output=True, text=True)
    print(done.stdout + done.stderr)
    return verdict(done.returncode, *tally(done.stdout), server)


if __name__ == "__main__":
    sys.exit(main())
