"""Starts a bus, runs Dapr's conformance suite against its TLS port, which speaks AMQP and HTTP, and counts."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.sdk.driving import environment, verdict
from tests.sdk.go.driver import tally

from polybus.testing.server import ServerProcess

HERE = Path(__file__).parent


def main() -> int:
    only = ["-test.run", sys.argv[1]] if len(sys.argv) > 1 else []
    command = ["target/sdk.test", "-test.v", "-test.timeout", "900s", *only]
    with tempfile.TemporaryDirectory() as name, ServerProcess(Path(name) / "data") as server:
        text = f"Endpoint=sb://{server.addresses['tls']}/;SharedAccessKeyName={server.key_name};SharedAccessKey={server.key}"
        told = {"POLYBUS_DAPR_CONNECTION_STRING": text, "SSL_CERT_FILE": str(server.authority)}
        surroundings = environment(server, **told)
        done = subprocess.run(command, cwd=HERE, env=surroundings, capture_output=True, text=True)
    print("\n".join(line for line in done.stdout.splitlines() if "--- " in line or "Error" in line) + done.stderr)
    return verdict(done.returncode, *tally(done.stdout), server)


if __name__ == "__main__":
    sys.exit(main())
