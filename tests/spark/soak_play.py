"""One play of the pipeline's crash test: a producer, receivers of the same queue, a driver, and something that kills.

The producer sends every message until the bus has acknowledged it, and the queue drops what comes twice, so each of
its messages is in the log exactly once. Receivers complete what they get, so a message that Spark has not read yet
is held by the cursor alone. After each kill the sink must come to hold everything that was acknowledged before it,
each message once; in the end it holds what was sent, and the cursor is at the end of the log.
"""

from __future__ import annotations

import datetime
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psutil
import pyarrow.parquet as pq
from azure.servicebus import ServiceBusMessage

from polybus.spark.bus import BusClient
from polybus.spark.connection import BusConnection
from polybus.spark.planning import Range
from polybus.spark.range_reading import RangesRead
from polybus.testing.server import ServerProcess
from tests.sdk.python.bus import admin_client
from tests.support.sdk_load import Client, Round

SINKS = ("parquet", "delta", "bus")
VICTIMS = ("driver", "executor", "bus")
BATCH = 20
KEYS = 40
PACE_S = 0.1
WAIT_S = 0.5
PATIENCE_S = 300.0
START_S = 180.0
STARTS = 20
EXECUTOR = "CoarseGrainedExecutorBackend"


class Producer(Client):
    """Sends batch after batch; one that was not acknowledged goes out again over the next connection."""

    def __init__(self, run: Round, queue: str) -> None:
        super().__init__(f"producer of {queue}", run)
        self._queue = queue
        self._pending: list[str] = []
        self.acknowledged_ids: list[str] = []

    def over(self) -> bool:
        return self.round.stopping.is_set() and not self._pending

    def work(self, sdk: Any) -> None:
        with suppress(Exception), sdk.get_queue_sender(self._queue) as sender:
            while not self.over():
                self._pending = self._pending or [self.next_id() for _ in range(BATCH)]
                key = f"key {self.sent // BATCH % KEYS}"
                sender.send_messages(
                    [ServiceBusMessage(each, message_id=each, partition_key=key) for each in self._pending]
                )
                self.acknowledged_ids += self._pending
                self._pending = []
                self.round.note_progress()
                self.round.stopping.wait(PACE_S)


class Taker(Client):
    """Receives and completes, as any worker of the queue does."""

    def __init__(self, number: int, run: Round, queue: str) -> None:
        super().__init__(f"receiver {number} of {queue}", run)
        self._queue = queue

    def over(self) -> bool:
        return self.round.ended.is_set()

    def work(self, sdk: Any) -> None:
        with suppress(Exception), sdk.get_queue_receiver(self._queue) as receiver:
            while not self.over():
                for message in receiver.receive_messages(max_message_count=50, max_wait_time=WAIT_S):
                    receiver.complete_message(message)


class Driver:
    """A driver in a process group of its own, started again whenever it has ended."""

    def __init__(self, master: str, folder: Path, bus: str, origin: str, sink: str) -> None:
        self._command = [sys.executable, "-m", "tests.spark.soak_driver", master, str(folder), origin, sink]
        self._environment = {**os.environ, "BUS": bus}
        self._log = folder / f"driver-{sink}.log"
        self._process: subprocess.Popen[str] | None = None
        self.starts = 0

    def start(self) -> None:
        self.starts += 1
        if self.starts > STARTS:
            raise RuntimeError(f"the driver ends again and again:\n{self._log.read_text()[-4000:]}")
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment,
                start_new_session=True,
            )

    def wait_started(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "started":
            raise RuntimeError(f"the driver did not start:\n{self._log.read_text()[-4000:]}")

    def keep_alive(self) -> None:
        """As a supervisor does: a query that failed is started again from its checkpoint."""
        if self._process is not None and self._process.poll() is not None:
            self._forget()
            self.start()

    def kill(self) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._forget()

    def kill_executor(self, rng: random.Random) -> bool:
        """Ends a process that runs tasks; False where there is none yet."""
        assert self._process is not None
        with suppress(psutil.Error):
            found = [each for each in psutil.Process(self._process.pid).children(recursive=True) if _runs_tasks(each)]
            if found:
                rng.choice(found).kill()
                return True
        return False

    def stop(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        try:
            self._process.wait(PATIENCE_S)
        finally:
            self.end()

    def end(self) -> None:
        if self._process is not None:
            self.kill()

    def _forget(self) -> None:
        process, self._process = self._process, None
        for stream in () if process is None else (process.stdin, process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


def _runs_tasks(process: psutil.Process) -> bool:
    try:
        return any(EXECUTOR in word for word in process.cmdline())
    except psutil.Error:
        return False  # it has ended


class Play:
    """One sink and everything around it, on one bus."""

    def __init__(self, server: ServerProcess, folder: Path, sink: str, master: str, seed: int) -> None:
        self.sink = sink
        self._server = server
        self._folder = folder
        self._rng = random.Random(f"{seed} {sink}")
        self._origin = f"origin-{sink}"
        self._round = Round(server, seed)
        self._round.up.set()
        self._producer = Producer(self._round, self._origin)
        self._takers = [Taker(number, self._round, self._origin) for number in range(2)]
        self.driver = Driver(master, folder, server.connection_string, self._origin, sink)

    @contextmanager
    def running(self) -> Iterator[Play]:
        with admin_client(self._server) as admin:
            window = datetime.timedelta(hours=1)
            lasting = {"enable_partitioning": True, "max_delivery_count": 1000}
            admin.create_queue(
                self._origin,
                requires_duplicate_detection=True,
                duplicate_detection_history_time_window=window,
                **lasting,
            )
            if self.sink == "bus":
                admin.create_queue(f"{self._origin}-copy", **lasting)
        # From here on the cursor holds what receivers complete before the driver is there.
        self._bus(self._origin).create_cursor(self.sink, {"start": "earliest"})
        self.driver.start()
        clients = [self._producer, *self._takers]
        for client in clients:
            client.start()
        try:
            self.driver.wait_started()
            yield self
        finally:
            self._round.stopping.set()
            self._round.ended.set()
            self.driver.end()
            for client in clients:
                client.join(60)

    # Kills

    def kill(self, victim: str) -> int:
        """Kills it at some moment while work is going on; gives how many messages the sink then holds, all right."""
        self._round.wait_for(self._round.acknowledged + self._rng.randint(5, 60))
        time.sleep(self._rng.uniform(0, 1.5))
        self._kill(victim)
        due = set(self._producer.acknowledged_ids)
        rows = self._wait(lambda found: due <= found.keys())
        self._judge(rows)
        return len(rows)

    def _kill(self, victim: str) -> None:
        if victim == "driver":
            self.driver.kill()
            self.driver.start()
        elif victim == "bus":
            self._round.up.clear()
            self._server.restart(kill=True)
            self._round.up.set()
        else:
            deadline = time.monotonic() + START_S
            while not self.driver.kill_executor(self._rng):
                if time.monotonic() > deadline:
                    raise RuntimeError("there is no executor to kill")
                self.driver.keep_alive()
                time.sleep(0.2)

    def finish(self) -> int:
        """Nothing more is sent: everything must arrive, and the cursor must come to the end of the log."""
        self._round.stopping.set()
        self._producer.join(60)
        sent = set(self._producer.acknowledged_ids)
        rows = self._wait(lambda found: sent <= found.keys())
        self._judge(rows)
        if rows.keys() != sent:
            raise AssertionError(f"{self.sink}: {len(rows.keys() - sent)} rows that nobody sent")
        self._wait_drained()
        self.driver.stop()
        self._judge(self.rows())
        if self._round.crashes:
            raise AssertionError("; ".join(self._round.crashes))
        return len(rows)

    def _judge(self, rows: Counter[str]) -> None:
        doubled = [each for each, count in rows.items() if count > 1]
        if doubled:
            raise AssertionError(f"{self.sink}: {len(doubled)} rows twice, such as {doubled[:3]}")

    def _wait(self, enough: Callable[[Counter[str]], bool]) -> Counter[str]:
        deadline = time.monotonic() + PATIENCE_S
        while not enough(rows := self.rows()):
            if time.monotonic() > deadline:
                lost = set(self._producer.acknowledged_ids) - rows.keys()
                raise AssertionError(f"{self.sink}: {len(lost)} rows did not arrive, such as {sorted(lost)[:3]}")
            self.driver.keep_alive()
            time.sleep(WAIT_S)
        return rows

    def _wait_drained(self) -> None:
        """The cursor is where the log ends: an idle query has acknowledged all that it has read."""
        deadline = time.monotonic() + PATIENCE_S
        bus = self._bus(self._origin)
        while True:
            cursor = bus.cursor(self.sink)
            ends = {end.index: end.stable_end for end in bus.log().ends}
            if cursor is not None and cursor.positions == ends:
                bus.close()
                return
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.sink}: the cursor is at {cursor}, the log ends at {ends}")
            self.driver.keep_alive()
            time.sleep(WAIT_S)

    # What the sink holds

    def rows(self) -> Counter[str]:
        if self.sink == "bus":
            return self._messages()
        return _delta_rows(self._folder / "delta") if self.sink == "delta" else _file_rows(self._folder / "parquet")

    def _bus(self, entity: str) -> BusClient:
        return BusClient(BusConnection(self._server.connection_string), entity, 60)

    def _messages(self) -> Counter[str]:
        bus = self._bus(f"{self._origin}-copy")
        try:
            wanted = [Range(end.index, 1, end.stable_end) for end in bus.log().ends if end.stable_end]
            found: Counter[str] = Counter()
            for batch in RangesRead(bus, ("body",), wanted, None).batches():
                found.update(body.decode() for body in batch.column("body").to_pylist())
            return found
        finally:
            bus.close()


def _delta_rows(path: Path) -> Counter[str]:
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(str(path)):
        return Counter()
    bodies = DeltaTable(str(path)).to_pyarrow_table(columns=["body"]).column("body")
    return Counter(body.decode() for body in bodies.to_pylist())


def _file_rows(path: Path) -> Counter[str]:
    """The rows of the files that Spark's own journal names: others are leftovers of batches that were repeated."""
    found: Counter[str] = Counter()
    for file in _journaled(path / "_spark_metadata"):
        found.update(body.decode() for body in pq.read_table(file, columns=["body"]).column("body").to_pylist())
    return found


def _journaled(journal: Path) -> list[str]:
    entries = {path.name: path for path in journal.iterdir()} if journal.is_dir() else {}
    batches = {
        int(name.removesuffix(".compact")): name for name in entries if name.removesuffix(".compact").isdigit()
    }
    compacted = [batch for batch, name in batches.items() if name.endswith(".compact")]
    first = max(compacted, default=0)
    lines = [
        line
        for batch in sorted(batches)
        if batch >= first
        for line in entries[batches[batch]].read_text().splitlines()[1:]
    ]
    return [unquote(urlsplit(json.loads(line)["path"]).path) for line in lines]
