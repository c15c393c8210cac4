"""Of how many processes the servers of this table are: `POLYBUS_TEST_WORKERS=2` runs it against two workers,
`POLYBUS_TEST_NODES=3` against the second of three nodes on one PostgreSQL server."""

from __future__ import annotations

import atexit
import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from polybus.testing.server import ServerProcess
from tests.support.cluster import Cluster
from tests.support.postgres import PostgresServer, postgres_server

_WORKERS = os.environ.get("POLYBUS_TEST_WORKERS")
_NODES = int(os.environ.get("POLYBUS_TEST_NODES", "1"))


def bus_server(folder: Path, *options: str) -> ServerProcess:
    """A bus of as many processes as are asked for. What must be in memory has no nodes."""
    if _WORKERS is not None:
        return ServerProcess(folder, "--workers", _WORKERS, *options)
    if _NODES > 1 and "memory:" not in options:
        return SecondNode(folder, *options)
    return ServerProcess(folder, *options)


class SecondNode(ServerProcess):
    """One node of several. The others live as long as it does, and over its restarts."""

    def __init__(self, folder: Path, *options: str) -> None:
        cluster = self._cluster = Cluster(folder, _postgres(), f"table_{uuid.uuid4().hex[:8]}")
        names = [f"node-{number}" for number in range(_NODES)]
        nodes = [cluster.node(name, *options) for name in names]
        super().__init__(folder / names[1], *nodes[1].options)
        self._restarting = False
        self._others = [node for node in nodes if node is not nodes[1]]

    def start(self) -> None:
        waiting = [node.start for node in self._others if not node.addresses]
        with ThreadPoolExecutor(_NODES) as pool:
            for started in [pool.submit(start) for start in (*waiting, super().start)]:
                started.result()
        self._cluster.wait_even(_NODES)

    def restart(self, *, kill: bool = False) -> None:
        self._restarting = True
        super().restart(kill=kill)
        self._restarting = False

    def stop(self) -> int:
        code = super().stop()
        if not self._restarting:
            for node in self._others:
                node.stop()
        return code


@cache
def _postgres() -> PostgresServer:
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(postgres_server({"max_connections": "400"}))
