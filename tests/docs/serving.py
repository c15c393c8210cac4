"""`polybus serve`, as a page says it: with its own options, on free ports, until it is ready; then it is stopped.

The bus that the rest of the page speaks to runs beside it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile

PORTS = ("--amqp-port", "--http-port", "--tls-port", "--port")


def on_free_ports(given: list[str]) -> list[str]:
    kept: list[str] = []
    words = iter(given)
    for word in words:
        if word in PORTS:
            next(words)
        else:
            kept.append(word)
    return [*kept, *(part for port in PORTS[:3] for part in (port, "0"))]


def in_a_folder(given: list[str]) -> list[str]:
    """The folder that is the default has the page's bus in it."""
    elsewhere = tempfile.mkdtemp(dir=".")
    if "--data" not in given:
        return [*given, "--data", elsewhere]
    return [elsewhere if word == "polybus-data" else word for word in given]


def main() -> int:
    command = [sys.executable, "-m", "polybus", "serve", *in_a_folder(on_free_ports(sys.argv[1:]))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as bus:
        assert bus.stdout is not None
        for line in bus.stdout:
            print(line, end="", flush=True)
            if line.startswith("ready "):
                bus.send_signal(signal.SIGTERM)
    return bus.returncode


if __name__ == "__main__":
    sys.exit(main())
