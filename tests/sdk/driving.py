"""What the drivers of the other languages share: where the bus is, and the verdict over a run and the bus's own log."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from polybus.testing.server import ServerProcess

FAULT = re.compile(r"Traceback \(most recent call last\)|\bERROR\b|\bCRITICAL\b")
"""A client's mistake is answered and logged below this; what is left is a bug of ours."""

MISSING = 77
"""The exit code of a run that could not be begun."""

CLOUD_PORTS = (5671, 443)
"""AMQP over TLS and HTTPS."""

AFTER = 30
"""Lines shown from a fault on: enough for a traceback."""


def environment(server: ServerProcess, **more: str) -> dict[str, str]:
    """What a test needs to know."""
    return {
        **os.environ,
        "POLYBUS_CONNECTION_STRING": server.connection_string,
        "POLYBUS_ADMIN_CONNECTION_STRING": server.admin_connection_string,
        "POLYBUS_AMQP": server.addresses["amqp"],
        "POLYBUS_HTTP": server.addresses["http"],
        "POLYBUS_TLS": server.addresses["tls"],
        **more,
    }


def as_in_the_cloud() -> list[str]:
    """Options of a bus where SDKs look for it that know nothing of the emulator: TLS, at the ports of the cloud service,
    on a loopback address of its own. Ends the run where nobody may listen there."""
    number = os.getpid()
    host = f"127.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    for port in CLOUD_PORTS:
        try:
            with socket.create_server((host, port)):
                pass
        except OSError as error:
            print(f"skipped: an SDK of this release goes to port {port}, and a bus cannot listen there: {error}")
            sys.exit(MISSING)
    amqps, https = (str(port) for port in CLOUD_PORTS)
    return ["--host", host, "--cert-name", host, "--tls-port", amqps, "--http-port", https]


def cloud_environment(server: ServerProcess, **more: str) -> dict[str, str]:
    """The same as `environment`, with a connection string as the cloud's portal shows it."""
    host = server.addresses["tls"].rsplit(":", 1)[0]
    text = f"Endpoint=sb://{host}/;SharedAccessKeyName={server.key_name};SharedAccessKey={server.key};"
    told = {"POLYBUS_CONNECTION_STRING": text, "POLYBUS_ADMIN_CONNECTION_STRING": text, "POLYBUS_AMQP": host}
    return {**environment(server, **more), **told}


def release() -> str:
    """The release of the SDK that was asked for; nothing where it is the newest one."""
    return os.environ.get("POLYBUS_SDK_RELEASE", "")


def trust_store(server: ServerProcess, folder: Path) -> str:
    """The words by which Java trusts the bus: it takes the authorities from a file of its own kind."""
    made, password = folder / "trusted.p12", "trusted"
    command = ["keytool", "-importcert", "-noprompt", "-alias", "polybus", "-file", str(server.authority)]
    command += ["-keystore", str(made), "-storetype", "PKCS12", "-storepass", password]
    subprocess.run(command, check=True, capture_output=True)
    return f"-Djavax.net.ssl.trustStore={made} -Djavax.net.ssl.trustStorePassword={password}"


def faults(output: Iterable[str]) -> list[str]:
    """The lines of a bus's log from its first fault on; none where it had none."""
    lines = list(output)
    first = next((index for index, line in enumerate(lines) if FAULT.search(line)), None)
    return [] if first is None else lines[first : first + AFTER]


def tally(reports: Path) -> tuple[int, int, int]:
    """Passed, failed and skipped, as Maven's reports have them."""
    counts = [0, 0, 0]
    for report in reports.glob("TEST-*.xml"):
        head = re.search(r"<testsuite [^>]*>", report.read_text(encoding="utf-8"))
        assert head is not None, f"{report.name} has no suite"
        names = ("tests", "errors", "failures", "skipped")
        number = {name: int(match[1]) for name in names if (match := re.search(rf'\b{name}="(\d+)"', head[0]))}
        failed = number["errors"] + number["failures"]
        counts[0] += number["tests"] - failed - number["skipped"]
        counts[1] += failed
        counts[2] += number["skipped"]
    return counts[0], counts[1], counts[2]


def verdict(code: int, passed: int, failed: int, skipped: int, server: ServerProcess) -> int:
    """Prints the count and gives the exit code; a run that left a fault in the bus's log has failed."""
    print(f"{passed} passed, {failed} failed" + (f", {skipped} expected failures" if skipped else ""))
    found = faults(server.output)
    if found:
        print("the bus logged a fault of its own:\n" + "".join(found))
    return 0 if code == 0 and failed == 0 and passed > 0 and not found else 1
