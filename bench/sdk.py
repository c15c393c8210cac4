"""What partitioning costs a user of the official SDK: the first message of an empty queue, and each of many.

Run through `scripts/bench sdk`. A receiver waits on an almost empty queue and one message is sent: plain and with 16
partitions in turn, so that a busy moment hits both alike. Then messages are sent one by one, received and completed,
and the server's CPU for each is compared. Both kinds of queue lie on the same stores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

import polybus
from bench.rivals import cpu_seconds
from bench.table import Table
from polybus.testing.server import ServerProcess

PLAIN, PARTITIONED = "plain", "partitioned"
WAIT_S = 60
BODY = b"b" * 1024


class Waiting:
    """A receiver in a thread of its own that says when each message came."""

    def __init__(self, client: ServiceBusClient, queue: str) -> None:
        self._receiver: Any = client.get_queue_receiver(queue)
        self._wanted = threading.Semaphore(0)
        self._came = threading.Semaphore(0)
        self._moment = 0.0
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            self._wanted.acquire()
            (message,) = self._receiver.receive_messages(max_message_count=1, max_wait_time=WAIT_S)
            self._moment = time.perf_counter()
            self._receiver.complete_message(message)
            self._came.release()

    def begin(self) -> None:
        self._wanted.release()

    def moment(self) -> float:
        if not self._came.acquire(timeout=WAIT_S):
            raise TimeoutError("no message came")
        return self._moment


def first_messages(client: ServiceBusClient, rounds: int) -> dict[str, list[float]]:
    """Milliseconds from a send's begin to the arrival at a receiver that waits."""
    queues = {name: (client.get_queue_sender(name), Waiting(client, name)) for name in (PLAIN, PARTITIONED)}
    seen: dict[str, list[float]] = {name: [] for name in queues}
    for number in range(-10, rounds):
        for name, (sender, waiting) in queues.items():
            waiting.begin()
            time.sleep(0.005)  # the receiver's credit is with the server before the message is
            started = time.perf_counter()
            sender.send_messages(ServiceBusMessage(BODY))
            took = (waiting.moment() - started) * 1000
            if number >= 0:
                seen[name].append(took)
        print(f"\r{number + 1}/{rounds} first messages", end="", file=sys.stderr, flush=True)
    print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
    return seen


def cpu_of_each(client: ServiceBusClient, pid: int, runs: int, messages: int) -> dict[str, float]:
    """Microseconds of the server's CPU for a message that is sent alone, received and completed."""
    seen: dict[str, list[float]] = {PLAIN: [], PARTITIONED: []}
    for number in range(runs):
        for name in seen:
            print(f"\r{number + 1}/{runs} {name:20}", end="", file=sys.stderr, flush=True)
            before = cpu_seconds(pid)
            _pass_through(client, name, messages)
            seen[name].append((cpu_seconds(pid) - before) / messages * 1e6)
    print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
    return {name: statistics.median(values) for name, values in seen.items()}


def _pass_through(client: ServiceBusClient, queue: str, messages: int) -> None:
    with client.get_queue_sender(queue) as sender:
        for _ in range(messages):
            sender.send_messages(ServiceBusMessage(BODY))
    with client.get_queue_receiver(queue, prefetch_count=100) as receiver:
        left = messages
        while left:
            for message in receiver.receive_messages(max_message_count=100, max_wait_time=WAIT_S):
                receiver.complete_message(message)
                left -= 1


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench sdk", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="first messages on each queue (200)")
    parser.add_argument("--runs", type=int, default=5, help="interleaved runs of the many (5)")
    parser.add_argument("--messages", type=int, default=1_000, help="messages in each run (1,000)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="polybus-bench-") as folder:
        report(Path(folder), arguments.rounds, arguments.runs, arguments.messages)


def report(folder: Path, rounds: int, runs: int, messages: int) -> None:
    table = Table(f"The Python SDK, {polybus.BUILD} build, {os.cpu_count()} cores, 4 synced stores, 16 partitions")
    with ServerProcess(folder / "data", "--stores", "4") as server:
        administration = ServiceBusAdministrationClient.from_connection_string(
            server.admin_connection_string, connection_verify=str(server.authority)
        )
        with administration:
            administration.create_queue(PLAIN)
            administration.create_queue(PARTITIONED, enable_partitioning=True)
        with ServiceBusClient.from_connection_string(server.connection_string) as client:
            first = first_messages(client, rounds)
            each = cpu_of_each(client, server.pid, runs, messages)
    medians = {name: statistics.median(values) for name, values in first.items()}
    allowed = max(1.2 * medians[PLAIN], medians[PLAIN] + 0.5)
    table.say(f"first message, plain, median of {rounds}", medians[PLAIN], "ms")
    table.at_most(
        f"first message, partitioned, median of {rounds} (C3)", medians[PARTITIONED], round(allowed, 2), "ms"
    )
    table.say("CPU of a message, plain", each[PLAIN], "µs")
    table.say("CPU of a message, partitioned (A10)", each[PARTITIONED], "µs")
    table.say("partitioned of plain (A10)", 100 * each[PARTITIONED] / each[PLAIN], "%")
    table.print()


if __name__ == "__main__":
    main()
