"""Several workers against one, what a message costs that passes through a gateway which does not own it, and what clients
feel when a node is killed or drained.

Run through `scripts/bench nodes`; `--only workers` or `--only cluster` for one part. The load generator is one C process
on loopback, and takes its share of the cores: two workers on two cores cannot double anything. Rates are medians of
interleaved runs. Nodes run on a PostgreSQL server that is started for it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusMessage
from tests.support.cluster import Cluster, cluster_of
from tests.support.postgres import postgres_server

import polybus
from bench.amqp import Ours, load, medians
from bench.core import IN_FLIGHT, bare_stores
from bench.raw_client import KEY, KEY_NAME, RawClient
from bench.rivals import Unavailable, build_loadgen, cpu_seconds
from bench.table import Table
from polybus.testing.sdk_clients import connect

ONE_EACH = ("-s", "1", "-r", "1", "-1", "-2")
EIGHT_EACH = ("-s", "8", "-r", "8", "-1", "-2")


class Elsewhere(Ours):
    """Two workers with one store: the second is a gateway only, and all clients are its."""

    def run(self, count: int, queue: str = "q", *options: str) -> tuple[float, float]:
        return asyncio.run(self._run(count, queue, *options))

    async def _run(self, count: int, queue: str, *options: str) -> tuple[float, float]:
        """The owner is kept busier than the other by idle clients, so that whoever comes is handed to the other."""
        idle = [await RawClient.connect(self.port, KEY_NAME, KEY) for _ in range(8)]
        for client in idle[1::2]:
            await client.close()
        await asyncio.sleep(0.5)  # workers tell their load a few times a second
        try:
            return await asyncio.to_thread(super().run, count, queue, *options)
        finally:
            for client in idle[::2]:
                await client.close()


def measure_workers(folder: Path, table: Table, runs: int, count: int) -> None:
    with ExitStack() as stack:
        one = Ours(folder / "one", "--stores", "4")
        stack.callback(one.stop)
        two = Ours(folder / "two", "--stores", "4", "--workers", "2")
        stack.callback(two.stop)
        here = Ours(folder / "here", "--stores", "1")
        stack.callback(here.stop)
        there = Elsewhere(folder / "there", "--stores", "1", "--workers", "2")
        stack.callback(there.stop)
        figures = medians(
            runs,
            {
                "one worker, 8+8": lambda: one.run(count, "p", *EIGHT_EACH),
                "two workers, 8+8": lambda: two.run(count, "p", *EIGHT_EACH),
                "one worker, 1+1": lambda: one.run(count, "p", *ONE_EACH),
                "two workers, 1+1": lambda: two.run(count, "p", *ONE_EACH),
                "by its owner, 1+1": lambda: here.run(count, "q", *ONE_EACH),
                "through another gateway, 1+1": lambda: there.run(count, "q", *ONE_EACH),
            },
        )
    ratio = figures["two workers, 8+8"][0] / figures["one worker, 8+8"][0]
    table.at_least("two workers against one, 8+8, 16 partitions on 4 stores", ratio, 1.25, "times")
    hop = figures["through another gateway, 1+1"][1] - figures["by its owner, 1+1"][1]
    table.at_most("extra CPU of a message through another gateway", hop, 8, "µs")
    for name, (rate, cpu) in figures.items():
        table.say(f"  {name}", rate, "msg/s")
        table.say(f"  {name}, CPU of all processes", cpu, "µs")


# Nodes


class Sending(threading.Thread):
    """Sends one by one through one node until it is told to stop; every refusal and every wait is written down."""

    def __init__(self, connection: str, queue: str, key: str | None) -> None:
        super().__init__(daemon=True)
        self.accepted: list[tuple[float, float]] = []
        """When each was sent and when it was accepted."""
        self.refused = 0
        self.stopped = threading.Event()
        self._connection, self._queue, self._key = connection, queue, key

    def run(self) -> None:
        with connect(self._connection) as client:
            while not self.stopped.is_set():
                try:
                    self._send(client)
                except Exception:
                    self.refused += 1
                    self.stopped.wait(0.05)

    def _send(self, client: Any) -> None:
        with client.get_queue_sender(self._queue) as sender:
            while not self.stopped.is_set():
                began = time.monotonic()
                sender.send_messages(ServiceBusMessage("x" * 100, partition_key=self._key))
                self.accepted.append((began, time.monotonic()))

    def first_after(self, moment: float) -> float | None:
        """When the first send that began after a moment was accepted."""
        return next((done for began, done in list(self.accepted) if began >= moment), None)

    def longest_ms(self) -> float:
        return max((done - began for began, done in self.accepted), default=0.0) * 1000


def until_accepted(sending: Sending, moment: float, seconds: float = 30) -> float:
    """How long after a moment a send was accepted again."""
    while time.monotonic() < moment + seconds:
        done = sending.first_after(moment)
        if done is not None:
            return done - moment
        time.sleep(0.005)
    return float(seconds)


def during(cluster: Cluster, lost: str, what: Any) -> tuple[Sending, Sending, Any]:
    """Sends with and without keys through a node that stays while something happens to another."""
    stays = "a" if lost != "a" else "b"
    key = cluster.keys_of("bench", lost, stays)[0]
    connection = cluster.nodes[stays].connection_string
    keyed, others = Sending(connection, "bench", key), Sending(connection, "bench", None)
    for sending in (keyed, others):
        sending.start()
    try:
        began = time.monotonic()
        until_accepted(keyed, began)
        until_accepted(others, began)
        return keyed, others, what(keyed)
    finally:
        for sending in (keyed, others):
            sending.stopped.set()
        for sending in (keyed, others):
            sending.join()


def measure_cluster(folder: Path, table: Table, kills: int) -> None:
    taken: list[float] = []
    refused = moves_refused = 0
    waits: list[float] = []
    with postgres_server() as server, cluster_of(Cluster(folder, server, "bench"), "a", "b", "c") as cluster:
        cluster.admin("a").create_queue("bench", enable_partitioning=True)
        for number in range(kills):
            lost = ("b", "c")[number % 2]
            print(f"\rkill {number + 1}/{kills}", end="", file=sys.stderr, flush=True)

            def kill(keyed: Sending, lost: str = lost) -> float:
                cluster.nodes[lost].kill()
                return until_accepted(keyed, time.monotonic())

            _, others, seconds = during(cluster, lost, kill)
            taken.append(seconds)
            refused += others.refused
            cluster.nodes[lost].start()
            cluster.wait_even(3)
            cluster.wait_serving("bench", "a", "b", "c")
        for number in range(max(kills // 2, 1)):
            lost = ("b", "c")[number % 2]
            print(f"\rmove {number + 1}   ", end="", file=sys.stderr, flush=True)

            def stop(keyed: Sending, lost: str = lost) -> None:
                cluster.nodes[lost].stop()
                until_accepted(keyed, time.monotonic())

            keyed, others, _ = during(cluster, lost, stop)
            waits.append(keyed.longest_ms())
            moves_refused += keyed.refused + others.refused
            cluster.nodes[lost].start()
            cluster.wait_even(3)
            cluster.wait_serving("bench", "a", "b", "c")
        print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
    table.at_most(f"node killed, {kills} times: keyed send accepted again, p50", statistics.median(taken), 4, "s")
    table.at_most("  the worst", max(taken), 5, "s")
    table.at_most("  sends without a key refused meanwhile", refused, 0, "")
    table.at_most("node stopped: longest wait of a keyed send", max(waits), 1000, "ms")
    table.at_most("  sends refused meanwhile", moves_refused, 0, "")


def measure_cluster_rate(folder: Path, table: Table, runs: int, count: int) -> None:
    """What three nodes do together, against what their stores do bare with the same batches."""
    keys = ("--key", f"{KEY_NAME}={KEY}")
    with postgres_server() as server:
        made = Cluster(folder, server, "rate")
        for name in ("a", "b", "c"):
            made.node(name, *keys).key_name = KEY_NAME
            made.nodes[name].key = KEY
        with cluster_of(made, "a", "b", "c") as cluster:
            ports = {name: int(node.addresses["amqp"].rsplit(":", 1)[1]) for name, node in cluster.nodes.items()}
            for name in ports:
                cluster.admin("a").create_queue(name, enable_partitioning=True, max_size_in_megabytes=5120)

            def all_nodes() -> tuple[float, float]:
                pids = [node.pid for node in cluster.nodes.values()]
                before = sum(cpu_seconds(pid) for pid in pids)
                began = time.monotonic()
                options = ("-u", KEY_NAME, "-p", KEY, "-s", "3", "-r", "3", "-1", "-2")
                with ThreadPoolExecutor(len(ports)) as pool:
                    list(pool.map(lambda name: load(ports[name], name, count // len(ports), *options), ports))
                took = time.monotonic() - began
                return count / took, (sum(cpu_seconds(pid) for pid in pids) - before) / count * 1e6

            bare = [server.url(f"bare_{number}") for number in range(len(cluster.stores))]
            figures = medians(
                runs,
                {"three nodes, 9+9": all_nodes, "bare stores": lambda: (bare_stores(bare, count // IN_FLIGHT), 0.0)},
            )
    share = 100 * figures["three nodes, 9+9"][0] / figures["bare stores"][0]
    table.at_least("three nodes, 4 schemas on one PostgreSQL, of the bare stores", share, 50, "%")
    table.say("  three nodes, 9+9", figures["three nodes, 9+9"][0], "msg/s")
    table.say("  three nodes, CPU of all nodes", figures["three nodes, 9+9"][1], "µs")


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench nodes", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="interleaved runs of each measure (5)")
    parser.add_argument("--messages", type=int, default=60_000, help="messages in each run (60,000)")
    parser.add_argument("--kills", type=int, default=10, help="how often a node is killed (10)")
    parser.add_argument("--only", choices=("workers", "cluster"), help="one part of it")
    arguments = parser.parse_args()
    try:
        build_loadgen()
    except Unavailable as why:
        print(f"scripts/bench nodes cannot run: {why}", file=sys.stderr)
        sys.exit(2)
    folder = Path(tempfile.mkdtemp(prefix="polybus-bench-"))
    table = Table(
        f"Workers and nodes, {polybus.BUILD} build, {os.cpu_count()} cores, 1 KiB, medians of {arguments.runs}"
    )
    try:
        if arguments.only != "cluster":
            measure_workers(folder, table, arguments.runs, arguments.messages)
        if arguments.only != "workers":
            measure_cluster(folder / "cluster", table, arguments.kills)
            measure_cluster_rate(folder / "rate", table, max(arguments.runs // 2, 1), arguments.messages // 4)
        table.print()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
