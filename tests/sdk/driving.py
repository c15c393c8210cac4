"""What the drivers of the other languages share: where the bus is, and the verdict over a run and the bus's own log."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from polybus.testing.server import ServerProcess

FAULT = re.compile(r"Traceback \(most recent call last\)|\bERROR\b|\bCRITICAL\b")
"""A client's mistake is answered and logged below this; what is left is a bug of ours."""

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


def faults(output: Iterable[str]) -> list[str]:
    """The lines of a bus's log from its first fault on; none where it had none."""
    lines = list(output)
    first = next((index for index, line in enumerate(lines) if FAULT.search(line)), None)
    return [] if first is None else lines[first : first + AFTER]


def verdict(code: int, passed: int, failed: int, skipped: int, server: ServerProcess) -> int:
    """Prints the count and gives the exit code; a run that left a fault in the bus's log has failed."""
    print(f"{passed} passed, {failed} failed" + (f", {skipped} expected failures" if skipped else ""))
    found = faults(server.output)
    if found:
        print("the bus logged a fault of its own:\n" + "".join(found))
    return 0 if code == 0 and failed == 0 and passed > 0 and not found else 1
