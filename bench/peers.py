"""Messages a second beside other brokers that sync, under one load generator, in one run: `scripts/bench peers`.

Every broker is durable and syncs before it accepts; each round goes through all of them, and figures are medians over
the rounds with their spread. Each message is settled by a disposition of its own, as the Service Bus SDKs do it; ours
also answers each, which is awaited, as those do (rivals need not: some answer not all of them). A rival
that cannot be had on this machine is left out with a line that says why. That a broker syncs is counted, not believed:
a few messages are sent while strace looks on.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from azure.servicebus.management import ServiceBusAdministrationClient

import polybus
from bench.amqp import PLAIN, PRODUCTION, load
from bench.batches import send_batches
from bench.raw_client import KEY, KEY_NAME
from bench.rivals import QUEUES, Artemis, BrokerJ, RabbitMQ, Rival, Unavailable, build_loadgen, cpu_seconds, processes
from polybus.testing.server import ServerProcess

ONE_BY_ONE = ("-1", "-2")
"""A disposition for each message, and the broker's answer to it awaited."""
SUBSCRIPTIONS = 10
BACKLOG_TIMES = 5
"""How many times the messages of a run are there before a backlog is drained."""
RUN_SECONDS = 200
"""After so long a run has failed."""
SYNC_CALLS = "fsync,fdatasync,msync,sync_file_range"
Figures = dict[str, float]


class Peer(Protocol):
    """A broker as the bench sees it."""

    name: str
    pid: int
    port: int
    login: tuple[str, ...]
    second: bool
    """Whether it answers dispositions (receiver-settle-mode second)."""

    def address(self, workload: Workload) -> tuple[str, ...]:
        """The load generator's options for where to send and receive; Unavailable where it cannot do such work."""

    def stop(self) -> None: ...


class Workload:
    """What is asked of every broker that can do it."""

    def __init__(
        self, name: str, *, pairs: int = 1, size: int = 1024, share: float = 1.0, entity: str = "q", **more: Any
    ) -> None:
        self.name = name
        self.pairs = pairs
        self.size = size
        self.share = share
        """Of the messages that a run has."""
        self.entity = entity
        self.queues: int = more.pop("queues", 1)
        self.options: tuple[str, ...] = more.pop("options", ())
        self.one_in_flight: bool = more.pop("one_in_flight", False)
        self.kind: str = more.pop("kind", "flow")
        self.copies: int = more.pop("copies", 1)
        assert not more, more


WORKLOADS = (
    Workload("1+1, 1 KiB"),
    Workload("8+8, 1 KiB", pairs=8),
    Workload("8+8 on eight queues", pairs=8, queues=8),
    Workload("1+1, 16 B", size=16),
    Workload("1+1, 64 KiB", size=65_536, share=0.05),
    Workload("receive and delete", options=("-d",)),
    Workload("backlog drained", kind="backlog", share=0.5),
    Workload("one in flight", one_in_flight=True, share=0.02),
    Workload("16 partitions, 1+1", entity="p"),
    Workload("16 partitions, 8+8", pairs=8, entity="p"),
    Workload("16 partitions, 8+8, keys", pairs=8, entity="p", options=("-g", "1000")),
    Workload("sessions, 8+8", pairs=8, entity="s", options=("-g", "8", "-E")),
    Workload("topic, 10 subscriptions", entity="t", share=0.1, copies=SUBSCRIPTIONS),
    Workload("batches of 100", kind="batches"),
)


class Ours:
    """A bus in a process of its own, over one or several RocksDB stores."""

    second = True
    login: tuple[str, ...] = PLAIN

    def __init__(self, name: str, folder: Path, *options: str) -> None:
        self.name = name
        self.server = ServerProcess(folder, *PRODUCTION, *options)
        self.server.key_name, self.server.key = KEY_NAME, KEY
        self.server.start()
        self.pid = self.server.pid
        self.port = int(self.server.addresses["amqp"].rsplit(":", 1)[1])
        with ServiceBusAdministrationClient.from_connection_string(
            self.server.admin_connection_string, connection_verify=str(self.server.authority)
        ) as admin:
            for queue in QUEUES:
                admin.create_queue(queue, max_size_in_megabytes=5120)
            admin.create_queue("p", max_size_in_megabytes=5120, enable_partitioning=True)
            admin.create_queue("s", max_size_in_megabytes=5120, requires_session=True)
            admin.create_topic("t", max_size_in_megabytes=5120)
            for number in range(SUBSCRIPTIONS):
                admin.create_subscription("t", f"s{number}")

    def address(self, workload: Workload) -> tuple[str, ...]:
        if workload.entity == "t":
            receive = ("-r", str(SUBSCRIPTIONS), "-m", str(SUBSCRIPTIONS), "-q", str(SUBSCRIPTIONS))
            return ("-A", "t", "-B", "t/Subscriptions/s%d", *receive)
        return ("-a", "q%d", "-q", str(workload.queues)) if workload.queues > 1 else ("-a", workload.entity)

    def stop(self) -> None:
        self.server.stop()


class Other:
    """One of the rivals: queues only."""

    def __init__(self, name: str, rival: Rival, login: tuple[str, ...], second: bool, prefix: str = "") -> None:
        self.name = name
        self.pid = rival.pid
        self.port = rival.port
        self.login = login
        self.second = second
        self._prefix = prefix
        self._rival = rival

    def address(self, workload: Workload) -> tuple[str, ...]:
        if workload.entity != "q" or workload.kind == "batches":
            raise Unavailable("only ours has it")
        if workload.queues > 1:
            return ("-a", f"{self._prefix}q%d", "-q", str(workload.queues))
        return ("-a", f"{self._prefix}q")

    def stop(self) -> None:
        self._rival.stop()


def rabbit(folder: Path) -> Other:
    broker = RabbitMQ(folder)
    for queue in QUEUES:
        broker.declare(queue, "classic")
    return Other("RabbitMQ, classic queues", broker, ("-u", "guest", "-p", "guest"), False, "/amq/queue/")


MAKERS: dict[str, Callable[[Path], Peer]] = {
    "polybus": lambda folder: Ours("Polybus", folder, "--stores", "1"),
    "polybus-4": lambda folder: Ours("Polybus, 4 stores", folder, "--stores", "4"),
    "artemis": lambda folder: Other("ActiveMQ Artemis 2.44", Artemis(folder), (), False),
    "broker-j": lambda folder: Other("Qpid Broker-J 9.2", BrokerJ(folder), (), False),
    "rabbitmq": rabbit,
}


# One run


def measured(peer: Peer, workload: Workload, messages: int) -> Figures:
    """Messages (or copies) a second, the broker's CPU for each in microseconds, latencies in milliseconds."""
    count = max(int(messages * workload.share), 100)
    options = [*peer.address(workload), *peer.login, "-b", str(workload.size), "-s", str(workload.pairs)]
    if workload.entity != "t":
        options += ["-r", str(workload.pairs)]
    settling = ONE_BY_ONE if peer.second and "-d" not in workload.options else ("-1",)
    options += [*settling, *workload.options]
    if workload.one_in_flight:
        options += ["-w", "1", "-c", "1"]
    options += ["-t", str(RUN_SECONDS)]
    if workload.kind == "backlog":
        load(peer.port, "", count * BACKLOG_TIMES, *options[:], "-r", "0")
        count *= BACKLOG_TIMES
        options += ["-s", "0"]
    cpu, loop = cpu_seconds(peer.pid), loop_seconds(peer.pid)
    if workload.kind == "batches":
        began = time.monotonic()
        send_batches(peer.port, "q", count)
        result = {"msgs_per_s": count / (time.monotonic() - began)}
    else:
        result = load(peer.port, "", count, *options)
    done = count * workload.copies
    figures = {
        "rate": result["msgs_per_s"],
        "cpu_us": (cpu_seconds(peer.pid) - cpu) / done * 1e6,
        "loop_us": (loop_seconds(peer.pid) - loop) / done * 1e6,
    }
    if workload.kind == "batches":
        load(peer.port, "q", count, *peer.login, "-s", "0", *ONE_BY_ONE)
    for name in ("ack_p50_ms", "ack_p99_ms", "e2e_p50_ms", "e2e_p99_ms"):
        if result.get(name):
            figures[name] = result[name]
    return figures


def loop_seconds(pid: int) -> float:
    """Of the process's first thread alone: our event loop."""
    fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def syncs(peer: Peer, messages: int) -> float | None:
    """How often the broker asked the disk to sync while so many messages passed, one in flight; None without strace."""
    if shutil.which("strace") is None:
        return None
    with tempfile.NamedTemporaryFile() as counted:
        command = ["strace", "-f", "-s", "0", "-e", f"trace={SYNC_CALLS},pwrite64", "-o", counted.name]
        for pid in processes(peer.pid):
            command += ["-p", str(pid)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as looking:
            time.sleep(1)  # it says nothing when it has taken hold of all threads
            settling = ONE_BY_ONE if peer.second else ("-1",)
            options = [*peer.address(WORKLOADS[0]), *peer.login, "-w", "1", "-c", "1", *settling]
            load(peer.port, "", messages, *options)
            looking.send_signal(signal.SIGINT)
        calls = re.findall(r"^(\d+)\s+(\w+)\((\w*)", Path(counted.name).read_text(), re.MULTILINE)
    return float(sum(call != "pwrite64" or _writes_synced(thread, file) for thread, call, file in calls))


@functools.cache
def _writes_synced(thread: str, file: str) -> bool:
    """Whether each write to an open file is a sync, too."""
    try:
        flags = re.search(r"^flags:\s*(\d+)", Path(f"/proc/{thread}/fdinfo/{file}").read_text(), re.MULTILINE)
    except OSError:
        return False
    return flags is not None and bool(int(flags[1], 8) & os.O_DSYNC)


def bare_sync_ms(folder: Path, times: int = 200) -> float:
    """One append of 1 KiB and its sync, on the disk that the brokers use: the median."""
    took = []
    with (folder / "bare").open("wb", buffering=0) as file:
        for _ in range(times):
            began = time.perf_counter()
            file.write(b"x" * 1024)
            os.fdatasync(file.fileno())
            took.append(1000 * (time.perf_counter() - began))
    return statistics.median(took)


# All runs


@contextlib.contextmanager
def started(names: list[str], folder: Path, missing: dict[str, str]) -> Iterator[list[Peer]]:
    peers: list[Peer] = []
    try:
        for name in names:
            try:
                peers.append(MAKERS[name](folder / name))
            except Unavailable as why:
                missing[name] = str(why)
                print(f"{name} is left out: {why}", file=sys.stderr)
        yield peers
    finally:
        for peer in peers:
            peer.stop()


def rounds(
    peers: list[Peer], chosen: list[Workload], runs: int, messages: int
) -> dict[str, dict[str, list[Figures]]]:
    """By workload and broker: the figures of each round."""
    seen: dict[str, dict[str, list[Figures]]] = {}
    for number in range(runs):
        for workload in chosen:
            for peer in peers:
                print(f"\r{number + 1}/{runs} {workload.name}, {peer.name:40}", end="", file=sys.stderr, flush=True)
                with contextlib.suppress(Unavailable):
                    peer.address(workload)  # else it has no such thing
                    found = measured(peer, workload, messages)
                    seen.setdefault(workload.name, {}).setdefault(peer.name, []).append(found)
    print("\r" + " " * 78 + "\r", end="", file=sys.stderr)
    return seen


def summary(figures: list[Figures]) -> dict[str, dict[str, float]]:
    """By figure: its median, its least and its most."""
    return {
        name: {
            "median": statistics.median(each[name] for each in figures if name in each),
            "least": min(each[name] for each in figures if name in each),
            "most": max(each[name] for each in figures if name in each),
        }
        for name in figures[0]
    }


def report(result: dict[str, Any]) -> str:
    """The result as a page's table."""
    lines = [
        f"{result['build']} build, {result['cores']} cores, medians of {result['runs']} interleaved rounds of"
        f" {result['messages']:,} messages; in brackets the least and the most. One bare sync of 1 KiB:"
        f" {result['bare_sync_ms']:.2f} ms.",
        "",
        "| work | broker | a second | CPU each | loop each | ack p50/p99 | end to end p50/p99 |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for work, brokers in result["work"].items():
        for broker, found in brokers.items():
            rate, loop = found["rate"], f"{found['loop_us']['median']:.1f} µs" if "Polybus" in broker else ""
            lines.append(
                f"| {work} | {broker} | {rate['median']:,.0f} ({rate['least']:,.0f}-{rate['most']:,.0f})"
                f" | {found['cpu_us']['median']:.1f} µs | {loop} | {_pair(found, 'ack')} | {_pair(found, 'e2e')} |"
            )
    lines += ["", "Syncs for each 100 messages with one in flight:"]
    for broker, count in result["syncs_per_100"].items():
        lines.append(f"- {broker}: {'not counted, strace is not here' if count is None else f'{count:.0f}'}")
    lines += [f"- {name}: left out ({why})" for name, why in result["missing"].items()]
    return "\n".join(lines)


def _pair(found: dict[str, dict[str, float]], what: str) -> str:
    if f"{what}_p50_ms" not in found:
        return ""
    return f"{found[f'{what}_p50_ms']['median']:.2f}/{found[f'{what}_p99_ms']['median']:.2f} ms"


def plot(result: dict[str, Any]) -> str:
    """Bars of messages a second, by work and broker, as SVG."""
    bars: list[tuple[str, float]] = []
    for work, brokers in result["work"].items():
        bars += [(f"{work}: {broker}", found["rate"]["median"]) for broker, found in brokers.items()]
    most = max(rate for _, rate in bars)
    rows = []
    for place, (label, rate) in enumerate(bars):
        y, width, colour = 14 + 18 * place, 420 * rate / most, "#2a6fb0" if "Polybus" in label else "#a0a0a0"
        rows.append(f'<text x="300" y="{y + 9}" text-anchor="end">{label}</text>')
        rows.append(f'<rect x="306" y="{y}" width="{width:.1f}" height="12" fill="{colour}"/>')
        rows.append(f'<text x="{310 + width:.1f}" y="{y + 9}">{rate:,.0f}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="800" height="{20 + 18 * len(bars)}"'
    return head + ' font-family="sans-serif" font-size="10">' + "".join(rows) + "</svg>\n"


def page(result: dict[str, Any]) -> str:
    how = (__doc__ or "").split("`.", 1)[1].strip()
    return f"""# Performance

Measured by `scripts/bench peers` in one run on one machine, the load generator beside the brokers.

{how}

{report(result)}

![Messages a second](images/peers.svg)
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench peers", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="interleaved rounds (5)")
    parser.add_argument(
        "--messages", type=int, default=100_000, help="messages of a run of 1 KiB, others less (100,000)"
    )
    parser.add_argument("--peers", default=",".join(MAKERS), help="which brokers, by name (all)")
    parser.add_argument("--only", default="", help="only work whose name has this in it")
    parser.add_argument("--json", type=Path, help="writes everything that was measured there")
    parser.add_argument("--write", action="store_true", help="writes the page about performance and its plot")
    given = parser.parse_args()
    names = given.peers.split(",")
    if unknown := [name for name in names if name not in MAKERS]:
        parser.error(f"--peers: {', '.join(unknown)} unknown; there are {', '.join(MAKERS)}")
    chosen = [work for work in WORKLOADS if given.only in work.name]
    if not chosen:
        parser.error(f"--only: no work has '{given.only}' in its name")
    try:
        build_loadgen()
    except Unavailable as why:
        print(f"scripts/bench peers cannot run: {why}", file=sys.stderr)
        sys.exit(2)
    folder = Path(tempfile.mkdtemp(prefix="polybus-bench-"))
    try:
        result = run(folder, names, chosen, given.runs, given.messages)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(report(result))
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=1) + "\n")
    if given.write:
        docs = Path(__file__).resolve().parent.parent / "docs"
        (docs / "performance.md").write_text(page(result))
        (docs / "images" / "peers.svg").write_text(plot(result))


def run(folder: Path, names: list[str], chosen: list[Workload], runs: int, messages: int) -> dict[str, Any]:
    missing: dict[str, str] = {}
    with started(names, folder, missing) as peers:
        seen = rounds(peers, chosen, runs, messages)
        counted = {peer.name: syncs(peer, 100) for peer in peers}
        bare = bare_sync_ms(folder)
    return {
        "build": polybus.BUILD,
        "cores": os.cpu_count(),
        "runs": runs,
        "messages": messages,
        "bare_sync_ms": bare,
        "work": {work: {name: summary(found) for name, found in by.items()} for work, by in seen.items()},
        "syncs_per_100": counted,
        "missing": missing,
    }


if __name__ == "__main__":
    main()
