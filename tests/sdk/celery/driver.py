"""Starts a bus with the queues that Celery works on, and runs the checks in Celery's own environment.

Once with the URL that needs nothing else, `polybus://`, and once, on another bus, with kombu's own.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from azure.servicebus.management import ServiceBusAdministrationClient
from tests.sdk.driving import environment, verdict

from polybus.testing.server import ServerProcess

HERE = Path(__file__).parent
SOURCES = HERE.parents[2] / "src"
NAME = "broker.polybus.net"
LOCK = "PT5S"
SUFFIXES = ("", "-late", "-shared")


def make_queues(server: ServerProcess) -> None:
    """kombu makes plain queues by itself; those that are there it takes as they are."""
    with ServiceBusAdministrationClient.from_connection_string(
        server.admin_connection_string, connection_verify=str(server.authority)
    ) as admin:
        for suffix in SUFFIXES:
            admin.create_queue(f"partitioned{suffix}", enable_partitioning=True, lock_duration=LOCK)


def command(python: str, chosen: list[str]) -> list[str]:
    only = ["-k", chosen[0]] if chosen else []
    own = ["-c", "/dev/null", "--rootdir", str(HERE), "--noconftest", "-p", "no:cacheprovider"]
    return [python, "-m", "pytest", "-q", "-rf", *own, *only, str(HERE / "celery_checks.py")]


def tally(output: str) -> tuple[int, int, int]:
    """Passed, failed and skipped, as pytest's last line has them."""
    found = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)", output)}
    failed = found.get("failed", 0) + found.get("error", 0) + found.get("errors", 0)
    return found.get("passed", 0), failed, found.get("skipped", 0)


def end_workers(folder: Path) -> None:
    """Ends the workers that the checks have started and could not end themselves; each leads a group of processes."""
    for note in (folder / "workers").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(note.name), signal.SIGKILL)


def brokers(server: ServerProcess) -> dict[str, dict[str, str]]:
    """The URLs, each with what its processes must be told besides."""
    key = f"{server.key_name}:{server.key}"
    return {
        f"polybus://{key}@{server.addresses['amqp']}": {},
        f"azureservicebus://{key}@{NAME}": {"REQUESTS_CA_BUNDLE": str(server.authority)},
    }


def checked(number: int, python: str, chosen: list[str]) -> int:
    """Runs the checks with one of the URLs on a bus of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        for inside in ("results", "runs", "workers"):
            (folder / inside).mkdir()
        stack.callback(end_workers, folder)
        with ServerProcess(folder / "data", "--cert-name", NAME) as server:
            make_queues(server)
            url, more = list(brokers(server).items())[number]
            print(f"tests/sdk/celery: {url.partition(':')[0]}", flush=True)
            own = {"POLYBUS_CELERY_FOLDER": str(folder), "POLYBUS_CELERY_BROKER": url, "PYTHONPATH": str(SOURCES)}
            run = command(python, chosen)
            told = environment(server, **own, **more)
            done = subprocess.run(run, cwd=HERE, env=told, stdout=subprocess.PIPE, text=True)
    print(done.stdout)
    return verdict(done.returncode, *tally(done.stdout), server)


def main() -> int:
    # Whoever loses patience ends this process; what it has started must not stay behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    return max(checked(number, sys.argv[1], sys.argv[2:]) for number in range(2))


if __name__ == "__main__":
    sys.exit(main())
