"""A server of several workers, and a look at its processes from outside."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from azure.servicebus import ServiceBusClient
from azure.servicebus.management import ServiceBusAdministrationClient

from polybus.testing.server import ServerProcess

PATIENCE_S = 60.0
ESTABLISHED = "01"


def until(true: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


def workers_of(server: ServerProcess) -> list[int]:
    """Ids of the worker processes, in the order in which they were started."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return sorted(int(child) for child in children)


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def clients_of(pid: int, port: int) -> int:
    """Connections of clients to the port that this process holds."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            inodes.add(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
    found = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        local_port = int(words[1].rpartition(":")[2], 16)
        found += local_port == port and words[3] == ESTABLISHED and words[9] in inodes
    return found


def client(server: ServerProcess, retries: int = 0) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(server.connection_string, retry_total=retries)


def admin(server: ServerProcess) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        server.admin_connection_string, connection_verify=str(server.authority)
    )


def port_of(server: ServerProcess) -> int:
    return int(server.addresses["amqp"].rsplit(":", 1)[1])
