"""A cluster of real nodes on a real PostgreSQL server: started together, killed, frozen, thawed, and looked at."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from azure.servicebus.management import ServiceBusAdministrationClient

from polybus.hashing import partition_for
from polybus.hosting.opener import shown_url
from polybus.store.cluster_database import ClusterDatabase
from polybus.store.cluster_rows import ClusterView
from polybus.testing.server import ServerProcess
from tests.support.postgres import PostgresServer

PATIENCE_S = 30.0


class Cluster:
    def __init__(self, folder: Path, server: PostgresServer, schema: str, stores: int = 4) -> None:
        self.url = server.url(f"{schema}_cluster")
        self.stores = [server.url(f"{schema}_{number}") for number in range(stores)]
        self.folder = folder
        self.nodes: dict[str, ServerProcess] = {}

    def node(self, name: str, *options: str, environment: dict[str, str] | None = None) -> ServerProcess:
        """A node that is not started yet."""
        stores = [word for url in self.stores for word in ("--store", url)]
        given = ("--cluster", self.url, "--node", name, *stores, *options)
        self.nodes[name] = ServerProcess(self.folder / name, *given, environment=environment)
        return self.nodes[name]

    def start(self, *names: str) -> None:
        """Starts nodes at the same time; returns when all are ready and every store has an owner."""
        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(lambda name: (self.nodes.get(name) or self.node(name)).start(), names))
        self.wait_even(len(names))

    def stop(self) -> None:
        for node in self.nodes.values():
            with suppress(AssertionError, ProcessLookupError):
                os.kill(node.pid, signal.SIGCONT)
                node.kill()

    # What is seen

    def view(self) -> ClusterView:
        database = ClusterDatabase(self.url)
        try:
            return database.look()
        finally:
            database.close()

    def drain(self, name: str, draining: bool) -> None:
        database = ClusterDatabase(self.url)
        try:
            database.drain(name, draining)
        finally:
            database.close()

    def owners(self) -> dict[str, str]:
        """Stores that living nodes own, by shown address."""
        return {one.store: member.name for member in self.view().living for one in member.owned}

    def wait_even(self, nodes: int) -> None:
        """Returns when so many nodes own all stores, each about as many as the others."""

        def even() -> bool:
            view = self.view()
            counts = [sum(1 for one in row.owned if one.store != "catalogue") for row in view.living]
            owned = sum(len(row.owned) for row in view.living)
            settled = view.moving is None and owned == len(self.stores) + 1
            return settled and len(counts) == nodes and max(counts) - min(counts) <= 1

        wait_for(even, "the stores are spread evenly")

    def wait_serving(self, path: str, *names: str) -> None:
        """Returns when these nodes see all partitions of an entity serving."""
        for name in names:
            wait_for(
                lambda name=name: all(each["available"] for each in self.partitions(path, name)),  # type: ignore[misc]
                f"{path} serves through {name}",
            )

    def partitions(self, path: str, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(name, f"/$polybus/entities/{quote(path, safe='')}/partitions")[
            "partitions"
        ]
        return found

    def get(self, name: str, path: str) -> Any:
        node = self.nodes[name]
        request = urllib.request.Request(f"{node.http_url}{path}", headers={"Authorization": node.token()})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def keys_of(self, path: str, owner: str, through: str) -> list[str]:
        """Keys of messages whose partition the node owns; one for each of its partitions."""
        owners = self.owners()
        there = self.partitions(path, through)
        wanted = {each["index"] for each in there if owners[shown_url(each["store"])] == owner}
        found: dict[int, str] = {}
        for number in range(10_000):
            index = partition_for(f"key {number}", len(there))
            if index in wanted:
                found.setdefault(index, f"key {number}")
        return list(found.values())

    def admin(self, name: str) -> Any:
        node = self.nodes[name]
        return ServiceBusAdministrationClient.from_connection_string(
            node.admin_connection_string, connection_verify=str(node.authority)
        )

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A `polybus` command about the cluster."""
        return subprocess.run(
            [sys.executable, "-m", "polybus", *words, "--cluster", self.url],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


def wait_for(happened: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
    until_s = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < until_s, f"within {seconds:g} s: {what}"
        time.sleep(0.02)


@contextmanager
def cluster_of(cluster: Cluster, *names: str) -> Iterator[Cluster]:
    try:
        cluster.start(*names)
        yield cluster
    finally:
        cluster.stop()
