"""Messages a second over AMQP, beside the C reference broker and RabbitMQ in the same run; idle connections; batches.

Run through `scripts/bench amqp`. The load generator is one C process on loopback; every figure is the median of
interleaved runs. RabbitMQ is measured where it is installed, and said to be missing where it is not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from azure.servicebus.management import ServiceBusAdministrationClient

import polybus
from bench.idle import WARM, open_idle_connections
from bench.raw_client import KEY, KEY_NAME
from bench.rivals import LOADGEN, RabbitMQ, Reference, Unavailable, build_loadgen, cpu_seconds
from bench.table import Table
from polybus.testing.server import ServerProcess

PLAIN = ("-u", KEY_NAME, "-p", KEY)
PRODUCTION = ("--profile", "production", "--development-certificate", "--key", f"{KEY_NAME}={KEY}")


def load(port: int, address: str, count: int, *options: str) -> dict[str, float]:
    """One run of the load generator; its JSON line."""
    command = [str(LOADGEN / "amqp_loadgen"), "-P", str(port), "-a", address, "-n", str(count), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode or not done.stdout:
        raise Unavailable(f"the load generator failed: {done.stderr.strip() or done.stdout.strip()}")
    result: dict[str, float] = json.loads(done.stdout)
    if not result["ok"]:
        raise Unavailable(f"the load generator was not satisfied: {done.stdout}")
    return result


class Ours:
    """A bus in a process of its own, with one plain queue `q`."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.server = ServerProcess(folder, *PRODUCTION, *options)
        self.server.key_name, self.server.key = KEY_NAME, KEY
        self.server.start()
        self.port = int(self.server.addresses["amqp"].rsplit(":", 1)[1])
        admin = ServiceBusAdministrationClient.from_connection_string(
            self.server.admin_connection_string, connection_verify=str(self.server.authority)
        )
        with admin:
            admin.create_queue("q", max_size_in_megabytes=5120)
            admin.create_queue("p", max_size_in_megabytes=5120, enable_partitioning=True)

    def run(self, count: int, queue: str = "q", *options: str) -> tuple[float, float]:
        """(messages a second, microseconds of the server's CPU for each)."""
        before = cpu_seconds(self.server.pid)
        result = load(self.port, queue, count, *PLAIN, *options)
        return result["msgs_per_s"], (cpu_seconds(self.server.pid) - before) / count * 1e6

    def stop(self) -> None:
        self.server.stop()


def medians(runs: int, measures: dict[str, Callable[[], tuple[float, float]]]) -> dict[str, tuple[float, float]]:
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in measures}
    for number in range(runs):
        for name, measure in measures.items():
            print(f"\r{number + 1}/{runs} {name:40}", end="", file=sys.stderr, flush=True)
            seen[name].append(measure())
    print("\r" + " " * 60 + "\r", end="", file=sys.stderr)
    return {
        name: (statistics.median(rate for rate, _ in values), statistics.median(cpu for _, cpu in values))
        for name, values in seen.items()
    }


def batches(ours: Ours, singles: int) -> tuple[float, float]:
    """Server CPU in microseconds for one message: in batches of 100, and one by one (send and accept only)."""
    from bench.batches import send_batches, send_singles

    results = []
    for send in (send_batches, send_singles):
        before = cpu_seconds(ours.server.pid)
        send(ours.port, "q", singles)
        results.append((cpu_seconds(ours.server.pid) - before) / singles * 1e6)
        load(ours.port, "q", 1, *PLAIN)
    return results[0], results[1]


def rabbit_measures(
    folder: Path, table: Table, count: int
) -> tuple[RabbitMQ | None, dict[str, Callable[[], tuple[float, float]]]]:
    try:
        rabbit = RabbitMQ(folder)
    except Unavailable as why:
        print(f"RabbitMQ cannot be measured here: {why}", file=sys.stderr)
        table.note(f"RabbitMQ: not measured ({why})")
        return None, {}
    measures: dict[str, Callable[[], tuple[float, float]]] = {}
    for kind in ("classic", "quorum"):
        rabbit.declare(kind, kind)

        def measure(kind: str = kind) -> tuple[float, float]:
            before = cpu_seconds(rabbit.pid)
            result = load(rabbit.port, f"/amq/queue/{kind}", count, "-u", "guest", "-p", "guest", "-1")
            return result["msgs_per_s"], (cpu_seconds(rabbit.pid) - before) / count * 1e6

        measures[f"RabbitMQ, {kind} queue"] = measure
    return rabbit, measures


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench amqp", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="interleaved runs of each measure (5)")
    parser.add_argument("--messages", type=int, default=100_000, help="messages in each run (100,000)")
    parser.add_argument("--connections", type=int, default=5_000, help="idle connections (5,000)")
    arguments = parser.parse_args()
    if arguments.connections <= WARM:
        parser.error(f"--connections: more than {WARM} are needed, for so many are opened before memory is looked at")
    try:
        build_loadgen()
    except Unavailable as why:
        print(f"scripts/bench amqp cannot run: {why}", file=sys.stderr)
        sys.exit(2)
    folder = Path(tempfile.mkdtemp(prefix="polybus-bench-"))
    try:
        report(folder, arguments.runs, arguments.messages, arguments.connections)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def report(folder: Path, runs: int, count: int, connections: int) -> None:
    table = Table(
        f"AMQP, {polybus.BUILD} build, {os.cpu_count()} cores, 1 KiB, 1 sender, 1 receiver, medians of {runs}"
    )
    reference, memory = Reference(), Ours(folder / "memory", "--store", "memory:", "--catalogue", "memory:")
    synced = Ours(folder / "synced", "--stores", "1")
    rabbit, rabbits = rabbit_measures(folder / "rabbit", table, count // 5)
    try:
        figures = medians(
            runs,
            {
                "C reference": lambda: (load(reference.port, "q", count, "-1", "-2")["msgs_per_s"], 0.0),
                "memory": lambda: memory.run(count, "q", "-1", "-2"),
                "RocksDB, synced": lambda: synced.run(count // 2, "q", "-1", "-2"),
                "RocksDB, synced, 16 partitions": lambda: synced.run(count // 2, "p", "-1", "-2"),
                **rabbits,
            },
        )
        share = 100 * figures["memory"][0] / figures["C reference"][0]
        table.at_least("in memory, of the C reference broker", share, 20, "%")
        if rabbits:
            better = max(figures[name][0] for name in rabbits)
            table.at_least(
                "RocksDB, synced, of RabbitMQ's better queue", figures["RocksDB, synced"][0] / better, 3, "times"
            )
        for name, (rate, cpu) in figures.items():
            table.say(f"  {name}", rate, "msg/s")
            if cpu:
                table.say(f"  {name}, server's CPU", cpu, "µs")
        batch, single = batches(memory, 20_000)
        table.at_most("CPU of a batch of 100, of 100 single sends", 100 * batch / single, 60, "%")
        kilobytes = asyncio.run(open_idle_connections(memory.port, memory.server.pid, connections))
        table.at_most(f"{connections:,} idle authenticated connections, each", kilobytes, 60, "KB")
        table.print()
    finally:
        for server in (reference, memory, synced, rabbit):
            if server is not None:
                server.stop()


if __name__ == "__main__":
    main()
