"""What the rooms below the network cost: CPU per message, throughput on synced stores, memory and opening time.

Run through `scripts/bench core`. Every figure is the median of interleaved runs and is printed with its goal.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polybus
from bench.bench_bus import BenchBus, Settler
from bench.table import Table
from polybus.message.message import Message, build
from polybus.namespace.entities.description import QueueDescription, SubscriptionDescription, TopicDescription
from polybus.namespace.entities.names import parse_address
from polybus.namespace.entities.rule import (
    CorrelationFilterDescription,
    RuleDescription,
    SqlFilterDescription,
)
from polybus.rows import Batch
from polybus.store.base import Store
from polybus.store.open import open_store

BODY = b"b" * 1024
RAW = build(BODY, message_id="m").raw
IN_FLIGHT = 256
SYNCED = 60_000
"""Messages of one measure with synced stores: about a second, for the buffers to be full and flushed several times."""
RECEIVED = 20_000
"""Messages that are received from a backlog at a time, and after its store was opened again."""
PASSED = 600_000
"""Messages that come and go while a backlog stays as long as it is: enough for RocksDB to flush and merge many times."""


async def cpu_per_message(messages: int) -> float:
    """Microseconds of CPU for enqueue, lock and complete of 1 KiB through namespace, partition and memory store."""
    async with BenchBus(["memory:"]) as bench:
        queue = await bench.create(QueueDescription(path="q"))
        settler = Settler(bench, queue)
        settler.want(1 << 40)
        await settler.drive([Message(RAW) for _ in range(IN_FLIGHT)], IN_FLIGHT)
        batches = [[Message(RAW) for _ in range(IN_FLIGHT)] for _ in range(messages // IN_FLIGHT)]
        gc.collect()
        started = time.process_time()
        for batch in batches:
            await settler.drive(batch, IN_FLIGHT)
        return (time.process_time() - started) / (len(batches) * IN_FLIGHT) * 1e6


def bare_stores(urls: list[str], batches: int) -> float:
    """Messages a second of bare stores with the same batches: put and delete of 1 KiB, one sync for each batch."""
    opened = [open_store(url) for url in urls]
    value = b"v" * 1150
    share = IN_FLIGHT // len(opened)

    def work(store: Store) -> None:
        for number in range(batches):
            keys = [b"k%016d" % (number * share + item) for item in range(share)]
            put, delete = Batch(), Batch()
            for key in keys:
                put.put(key, value)
                delete.delete(key)
            store.commit(put)
            store.commit(delete)

    started = time.perf_counter()
    with ThreadPoolExecutor(len(opened)) as pool:
        list(pool.map(work, opened))
    spent = time.perf_counter() - started
    for store in opened:
        store.close()
    return batches * share * len(opened) / spent


def bare_store(folder: Path, stores: int, batches: int) -> float:
    return bare_stores([f"rocksdb:{folder / f'bare-{index}'}" for index in range(stores)], batches)


async def synced(folder: Path, stores: int, partitions: int, messages: int) -> float:
    """Messages a second, sent, locked and completed, each step synced, with 256 in flight."""
    urls = [f"rocksdb:{folder / f'bus-{index}'}" for index in range(stores)]
    async with BenchBus(urls, folder / "catalogue") as bench:
        description = QueueDescription(path="q", enable_partitioning=partitions > 1)
        queue = await bench.create(description, partitions)
        settler = Settler(bench, queue)
        settler.want(1 << 40)
        await settler.drive([Message(RAW) for _ in range(1024)], IN_FLIGHT)
        rest = [Message(RAW) for _ in range(messages)]
        started = time.perf_counter()
        await settler.drive(rest, IN_FLIGHT)
        return messages / (time.perf_counter() - started)


async def backlog(folder: Path, stores: int, partitions: int, messages: int) -> None:
    """Child process: fills a queue; prints how much the process grew, and what a message costs on top of that."""
    urls = [f"rocksdb:{folder / f'backlog-{index}'}" for index in range(stores)]
    async with BenchBus(urls, folder / "backlog-catalogue") as bench:
        queue = await bench.create(QueueDescription(path="q", enable_partitioning=partitions > 1), partitions)
        settler = Settler(bench, queue)
        await settler.send_only([Message(RAW) for _ in range(1000)])
        before = rss_mb()
        for _ in range(messages // 1000 - 1):
            await settler.send_only([Message(RAW) for _ in range(1000)])
        print(f"grew {rss_mb() - before:.1f}", flush=True)
        cpu = 0.0
        for _ in range(PASSED // RECEIVED):
            more = [Message(RAW) for _ in range(RECEIVED)]
            started = time.process_time()
            settler.want(RECEIVED)
            await settler.drive(more, IN_FLIGHT)
            cpu += time.process_time() - started
        print(f"cost {cpu / PASSED * 1e6:.2f}", flush=True)


async def reopened(folder: Path, stores: int) -> None:
    """Child process: opens the filled store; prints the time to the first message and the cost of the next ones."""
    urls = [f"rocksdb:{folder / f'backlog-{index}'}" for index in range(stores)]
    started = time.perf_counter()
    async with BenchBus(urls, folder / "backlog-catalogue") as bench:
        queue = bench.namespace.entity("q")
        settler = Settler(bench, queue)
        settler.want(1)
        await settler.completed(1)
        print(f"first {time.perf_counter() - started:.3f}", flush=True)
        cpu = time.process_time()
        settler.want(RECEIVED)
        await settler.completed(RECEIVED + 1)
        print(f"each {(time.process_time() - cpu) / RECEIVED * 1e6:.2f}", flush=True)


async def rule_cost(correlation: int, sql: int) -> float:
    """Microseconds of CPU for one send to a topic with so many rules, of which one matches."""
    async with BenchBus(["memory:"]) as bench:
        topic = await bench.create(TopicDescription(path="t"))
        rules = [
            RuleDescription(name=f"c{n}", filter=CorrelationFilterDescription(correlation_id=f"id-{n}"))
            for n in range(correlation)
        ]
        rules += [
            RuleDescription(name=f"s{n}", filter=SqlFilterDescription(expression=f"color = 'c{n}' AND size > 10"))
            for n in range(sql)
        ]
        await bench.run(
            bench.namespace.management.create_subscription(SubscriptionDescription(topic="t", name="s"), rules)
        )
        raw = build(BODY, message_id="m", correlation_id="id-1", application={"color": "c1", "size": 20}).raw
        settler = Settler(bench, topic)
        await settler.send_only([Message(raw) for _ in range(64)])
        started = time.process_time()
        sends = 2000 if sql == 0 else 100
        await settler.send_only([Message(raw) for _ in range(sends)])
        return (time.process_time() - started) / sends * 1e6


async def session_cost(sessions: int) -> float:
    """Microseconds of CPU to accept the next session, take and complete its message, and release it."""
    async with BenchBus(["memory:"]) as bench:
        queue = await bench.create(QueueDescription(path="q", requires_session=True))
        settler = Settler(bench, queue)
        for first in range(0, sessions, 1000):
            await settler.send_only(
                [build(BODY, message_id="m", session_id=f"session-{first + n}") for n in range(min(1000, sessions))]
            )
        source = queue.session_source(parse_address("q"))
        rounds = min(500, sessions - 1)
        await settler.one_session(source)  # the memory store puts the keys of all these sends in order now
        started = time.process_time()
        for _ in range(rounds):
            await settler.one_session(source)
        return (time.process_time() - started) / rounds * 1e6


def rss_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def child(*arguments: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.core", *arguments], capture_output=True, text=True, check=True
    )
    return {word: float(value) for word, value in (line.split() for line in done.stdout.splitlines())}


def interleaved(runs: int, measures: dict[str, Callable[[], float]]) -> dict[str, float]:
    """The median of each measure, one after the other in every round, so that a busy moment hits all alike."""
    seen: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(runs):
        for name, measure in measures.items():
            print(f"\r{number + 1}/{runs} {name:40}", end="", file=sys.stderr, flush=True)
            seen[name].append(measure())
    print("\r" + " " * 60 + "\r", end="", file=sys.stderr)
    return {name: statistics.median(values) for name, values in seen.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench core", description=__doc__)
    parser.add_argument("--runs", type=int, default=9, help="interleaved runs of each measure (9)")
    parser.add_argument("--backlog", type=int, default=1_000_000, help="messages in the backlog (1,000,000)")
    parser.add_argument("--quick", action="store_true", help="smaller counts, for a look")
    parser.add_argument("step", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.backlog <= RECEIVED:
        parser.error(f"--backlog: more than {RECEIVED:,} are needed, for so many are received from it")
    if arguments.step:
        name, folder, stores, *rest = arguments.step
        if name == "backlog":
            asyncio.run(backlog(Path(folder), int(stores), int(rest[0]), int(rest[1])))
        else:
            asyncio.run(reopened(Path(folder), int(stores)))
        return
    folder = Path(tempfile.mkdtemp(prefix="polybus-bench-"))
    try:
        report(folder, 1 if arguments.quick else arguments.runs, 50_000 if arguments.quick else arguments.backlog)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def report(folder: Path, runs: int, messages: int) -> None:
    table = Table(f"core, {polybus.BUILD} build, {os.cpu_count()} cores, medians of {runs}")
    goal = 10 if polybus.BUILD == "compiled" else 30
    number = 0

    def fresh() -> Path:
        nonlocal number
        number += 1
        shutil.rmtree(folder / str(number - 1), ignore_errors=True)
        return folder / str(number)

    figures = interleaved(
        runs,
        {
            "cpu": lambda: asyncio.run(cpu_per_message(20_000)),
            "bare 1": lambda: bare_store(fresh(), 1, SYNCED // IN_FLIGHT),
            "bus 1/1": lambda: asyncio.run(synced(fresh(), 1, 1, SYNCED)),
            "bus 1/16": lambda: asyncio.run(synced(fresh(), 1, 16, SYNCED)),
            "bare 4": lambda: bare_store(fresh(), 4, SYNCED // IN_FLIGHT),
            "bus 4/16": lambda: asyncio.run(synced(fresh(), 4, 16, SYNCED)),
            "rules 10": lambda: asyncio.run(rule_cost(10, 0)),
            "rules 10,000": lambda: asyncio.run(rule_cost(10_000, 0)),
            "sql 2,000": lambda: asyncio.run(rule_cost(0, 2_000)),
            "sessions 1,000": lambda: asyncio.run(session_cost(1_000)),
            "sessions 100,000": lambda: asyncio.run(session_cost(100_000)),
        },
    )
    table.at_most("CPU per message: enqueue + lock + complete, 1 KiB, memory", figures["cpu"], goal, "µs")
    table.at_least("1 store, 1 partition, of the bare store", 100 * figures["bus 1/1"] / figures["bare 1"], 40, "%")
    table.at_least("1 store, 16 partitions, of 1 partition", 100 * figures["bus 1/16"] / figures["bus 1/1"], 90, "%")
    table.at_least(
        "4 stores, 16 partitions, of 4 bare stores", 100 * figures["bus 4/16"] / figures["bare 4"], 40, "%"
    )
    for name in ("bare 1", "bus 1/1", "bus 1/16", "bare 4", "bus 4/16"):
        table.say(f"  {name}, synced, 256 in flight", figures[name], "msg/s")
    table.at_most("10,000 correlation rules against 10", figures["rules 10,000"] / figures["rules 10"], 3, "times")
    table.say("  a send with 10 correlation rules", figures["rules 10"], "µs")
    table.say("  a send with 2,000 SQL rules", figures["sql 2,000"], "µs")
    growth = figures["sessions 100,000"] / figures["sessions 1,000"]
    table.at_most("accept-next with 100,000 sessions against 1,000", growth, 1.5, "times")
    for stores, partitions, limit in ((1, 1, 150), (4, 16, 250)):
        place = folder / f"backlog-{stores}"
        few = child("backlog", str(folder / f"few-{stores}"), str(stores), str(partitions), "1000")
        some = child("backlog", str(folder / f"some-{stores}"), str(stores), str(partitions), "100000")
        many = child("backlog", str(place), str(stores), str(partitions), str(messages))
        opened = child("reopened", str(place), str(stores))
        shutil.rmtree(place)
        what = f"{messages:,} messages, {partitions} partitions on {stores} stores"
        table.at_most(f"{what}: growth", many["grew"], limit, "MB")
        table.at_most(f"{what}: a message, against 1,000", many["cost"] / few["cost"], 1.25, "times")
        table.say(f"  {what}: a message, against 100,000", many["cost"] / some["cost"], "times")
        table.say(f"  {what}: send + receive + complete", many["cost"], "µs")
        table.at_most(f"{what}: open until first message", opened["first"], 3, "s")
        table.say(f"  {what}: receive + complete", opened["each"], "µs")
    table.print()


if __name__ == "__main__":
    main()
