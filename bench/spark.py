"""What the pipeline costs beside Spark's own price: `scripts/bench spark [--messages N] [--batch N]`.

Each figure is a share of the same work done with the bus taken out: the same rows from local Arrow files through the
same Python API, the same query into a Python sink that does nothing, Spark's own rate source. So the figures say what
the bus costs and hardly depend on the machine. The bus runs in a process of its own and shares the cores with Spark.
Each part has a bus to itself with only the messages that it needs: what a store tidies up later is charged to nobody
else. Runs are interleaved, and each figure is a median; CPU is that of all processes of a side, for each row.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pyarrow as pa
from azure.servicebus.management import ServiceBusAdministrationClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

import polybus
from bench.stepped_bus import SteppedServer
from bench.table import Table
from polybus.spark.bus import BusClient
from polybus.spark.columns import COLUMNS, arrow_schema, spark_schema
from polybus.spark.connection import BusConnection
from polybus.spark.planning import Range, ranges
from polybus.spark.range_reading import RangesRead
from polybus.spark.staging import encoded
from polybus.testing.server import ServerProcess

PARTITIONS = 16
BODY_BYTES = 1_024
FILE_ROWS = 5_000
TASKS = 2
ROUNDS = 5
TINY_BATCHES = 25
LOAD = 50_000


class FilePart(InputPartition):
    def __init__(self, files: list[str]) -> None:
        super().__init__(None)
        self.files = files


class BareReader(DataSourceReader):
    """Arrow files, handed on as they are: what any source in Python has to pay."""

    def __init__(self, folder: str, columns: tuple[str, ...]) -> None:
        self._folder = folder
        self._columns = columns

    def partitions(self) -> list[FilePart]:
        files = sorted(str(path) for path in Path(self._folder).iterdir())
        return [FilePart(files[task::TASKS]) for task in range(TASKS)]

    def read(self, partition: FilePart) -> Iterator[Any]:
        return _file_batches(partition.files, self._columns)


class BareStreamReader(DataSourceStreamReader):
    """The same files as a stream, so many at a time."""

    def __init__(self, folder: str, columns: tuple[str, ...], files: int) -> None:
        self._files = sorted(str(path) for path in Path(folder).iterdir())
        self._columns = columns
        self._step = files

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"at": min(start["at"] + self._step, len(self._files))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[FilePart]:
        files = self._files[start["at"] : end["at"]]
        return [FilePart(files[task::TASKS]) for task in range(TASKS)]

    def read(self, partition: FilePart) -> Iterator[Any]:
        return _file_batches(partition.files, self._columns)


def _file_batches(files: list[str], columns: tuple[str, ...]) -> Iterator[Any]:
    for file in files:
        with pa.OSFile(file) as source, pa.ipc.open_stream(source) as reader:
            for batch in reader:
                yield batch.select(list(columns))


class NullWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[Any], batchId: int) -> None:
        pass


class BareSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "bare"

    def schema(self) -> StructType:
        return spark_schema(self._columns)

    @property
    def _columns(self) -> tuple[str, ...]:
        return tuple(self.options["columns"].split(","))

    def reader(self, schema: StructType) -> BareReader:
        return BareReader(self.options["folder"], self._columns)

    def streamReader(self, schema: StructType) -> BareStreamReader:
        return BareStreamReader(self.options["folder"], self._columns, int(self.options["files"]))

    def streamWriter(self, schema: StructType, overwrite: bool) -> NullWriter:
        return NullWriter()


@dataclass
class Work:
    """What a run did: all its rows, and rows a second where the run itself knows better than a clock around it."""

    rows: int
    rate: float | None = None


@dataclass
class Run:
    """What one run took: rows a second, and seconds of processors in the bus and in Spark."""

    rows: int
    rate: float
    bus: float
    spark: float


def _cpu(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    # With those of children that have ended: Spark starts and ends processes as it goes.
    return float(times.user + times.system + times.children_user + times.children_system)


class SparkBench:
    def __init__(self, spark: SparkSession, folder: Path, messages: int, batch: int, rounds: int = ROUNDS) -> None:
        self._server: ServerProcess
        self._spark = spark
        self._folder = folder
        self._messages = messages
        self._batch = batch
        self._rounds = rounds
        self._runs = 0
        self._all = tuple(COLUMNS)
        self._lean = tuple(name for name in COLUMNS if name != "properties")
        build = "compiled" if polybus.BUILD == "compiled" else "plain"
        title = f"Spark, {build} build, {messages:,} messages of 1 KiB in {PARTITIONS} partitions, {TASKS} tasks"
        self.table = Table(f"{title}, medians of {rounds}")

    # What is read

    @contextmanager
    def serving(self, name: str, kind: type[ServerProcess] = ServerProcess, **queues: int) -> Iterator[None]:
        """A bus of its own with these queues, each with so many messages."""
        from tests.sdk.python.bus import admin_client

        admin: ServiceBusAdministrationClient
        with kind(self._folder / f"bus-{name}", "--stores", "4") as self._server:
            with admin_client(self._server) as admin:
                for queue in queues:
                    admin.create_queue(queue, enable_partitioning=True, max_size_in_megabytes=5120)
            for queue, count in queues.items():
                if count:
                    self._fill(queue, count)
            yield

    def save_files(self) -> None:
        """What the sides without a bus read: the rows that the bus would give."""
        with self.serving("files", source=self._messages):
            self._save_files()

    def _bus(self, entity: str) -> BusClient:
        return BusClient(BusConnection(self._server.connection_string), entity, 60)

    def _fill(self, queue: str, count: int) -> None:
        bus = self._bus(queue)
        stages = []
        for start in range(0, count, FILE_ROWS):
            numbers = range(start, min(start + FILE_ROWS, count))
            rows = {
                "body": [number.to_bytes(8, "big") * (BODY_BYTES // 8) for number in numbers],
                "partition_key": [f"key {number % 1000}" for number in numbers],
                "message_id": [str(number) for number in numbers],
                "tenant": [f"tenant {number % 7}" for number in numbers],
            }
            stages.append(bus.stage(encoded(pa.RecordBatch.from_pydict(rows)), {"unknown": "properties"}))
        visible = bus.publish({"stages": stages, "wait_seconds": 60})["visible"]
        while not visible:
            visible = sum(end.stable_end for end in bus.log().ends) >= count
        bus.close()

    def _save_files(self) -> None:
        bus = self._bus("source")
        files = self._folder / "files"
        files.mkdir()
        schema = arrow_schema(self._all)
        number = 0
        wanted = [Range(end.index, 1, end.stable_end) for end in bus.log().ends]
        for batch in RangesRead(bus, self._all, wanted, None).batches():
            with (
                pa.OSFile(str(files / f"{number:05}.arrow"), "wb") as sink,
                pa.ipc.new_stream(sink, schema) as out,
            ):
                out.write_batch(batch)
            number += 1
        bus.close()
        self._files_per_batch = max(number * self._batch // self._messages, 1)
        self._save_tiny(batch.slice(0, PARTITIONS))

    def _save_tiny(self, batch: Any) -> None:
        """A few rows in each of many files: small batches from no bus at all."""
        folder = self._folder / "tiny"
        folder.mkdir()
        for number in range(4 * TINY_BATCHES):
            with (
                pa.OSFile(str(folder / f"{number:05}.arrow"), "wb") as sink,
                pa.ipc.new_stream(sink, batch.schema) as out,
            ):
                out.write_batch(batch)

    # Frames

    def _bus_options(self, columns: tuple[str, ...], entity: str = "source") -> dict[str, str]:
        self._runs += 1
        common = {"connectionString": self._server.connection_string, "entity": entity}
        return {**common, "columns": ",".join(columns), "targetTasks": str(TASKS)}

    def _bare_options(self, columns: tuple[str, ...], folder: str = "files", files: int = 0) -> dict[str, str]:
        step = str(files or self._files_per_batch)
        return {"folder": str(self._folder / folder), "columns": ",".join(columns), "files": step}

    def _read(self, form: str, options: dict[str, str]) -> DataFrame:
        return self._spark.read.format(form).options(**options).load()

    def _stream(self, form: str, options: dict[str, str], **more: str) -> DataFrame:
        return self._spark.readStream.format(form).options(**options, **more).load()

    # Measuring

    def _measured(self, work: Callable[[], Work]) -> Run:
        bus, started = psutil.Process(self._server.pid), time.perf_counter()
        before = (_cpu(bus), self._spark_cpu())
        done = work()
        rate = done.rate or done.rows / (time.perf_counter() - started)
        return Run(done.rows, rate, _cpu(bus) - before[0], self._spark_cpu() - before[1])

    def _spark_cpu(self) -> float:
        """Of this process and all that it has started but the bus."""
        here = psutil.Process()
        processes = [here, *(each for each in here.children(recursive=True) if each.pid != self._server.pid)]
        return sum(map(_cpu, processes))

    def _compare(
        self,
        name: str,
        goal: float,
        bare: Callable[[], Work],
        ours: Callable[[], Work],
        labels: tuple[str, str] = ("without the bus", "with the bus"),
    ) -> None:
        """Both in turn, after one of each that warms up; the share is the median of the pairs."""
        bare()
        ours()
        pairs = [(self._measured(bare), self._measured(ours)) for _ in range(self._rounds)]
        for side, label in enumerate(labels):
            runs = [pair[side] for pair in pairs]
            self.table.say(f"{name}, {label}", median(run.rate for run in runs), "rows/s")
            self.table.say(
                f"{name}, {label}: CPU of Spark", 1e6 * median(run.spark / run.rows for run in runs), "us/row"
            )
        self.table.say(f"{name}: CPU of the bus", 1e6 * median(run.bus / run.rows for _, run in pairs), "us/row")
        self.table.at_least(name, 100 * median(run.rate / alone.rate for alone, run in pairs), goal, "%")
        spent = [(run.bus + run.spark) / run.rows / (alone.spark / alone.rows) for alone, run in pairs]
        self.table.say(f"{name}: the same by CPU", 100 / median(spent), "%")

    # Figures

    def batch_reads(self) -> None:
        with self.serving("batch", source=self._messages):
            self._batch_reads()

    def _batch_reads(self) -> None:
        for name, columns, goal in (("all columns", self._all, 35), ("without properties", self._lean, 60)):
            self._compare(
                f"batch read, {name}",
                goal,
                lambda c=columns: self._count(self._read("bare", self._bare_options(c))),
                lambda c=columns: self._count(self._read("servicebus", self._bus_options(c))),
            )

    def _count(self, frame: DataFrame) -> Work:
        frame.write.format("noop").mode("overwrite").save()
        return Work(self._messages)

    def streams(self) -> None:
        with self.serving("stream", source=self._messages):
            self._streams()

    def _streams(self) -> None:
        for name, columns, goal in (("all columns", self._all, 35), ("without properties", self._lean, 60)):
            self._compare(
                f"stream, {name}",
                goal,
                lambda c=columns: self._run(self._stream("bare", self._bare_options(c)), "noop", {}),
                lambda c=columns: self._run(self._tap(c), "noop", {}),
            )

    def _tap(self, columns: tuple[str, ...]) -> DataFrame:
        options = self._bus_options(columns)
        return self._stream("servicebus", options, cursor=f"run{self._runs}", maxMessagesPerTrigger=str(self._batch))

    def _run(self, frame: DataFrame, sink: str, options: dict[str, str]) -> Work:
        """Rows a second are those of the batches after the first, which starts the processes."""
        self._runs += 1
        checkpoint = self._folder / f"checkpoint{self._runs}"
        writer = frame.writeStream.format(sink).options(**options).option("checkpointLocation", str(checkpoint))
        query = writer.start()
        query.processAllAvailable()
        query.stop()
        batches = [each for each in query.recentProgress if each["numInputRows"]]
        rows = sum(each["numInputRows"] for each in batches[1:])
        seconds = sum(each["durationMs"]["triggerExecution"] for each in batches[1:]) / 1000
        return Work(sum(each["numInputRows"] for each in batches), rows / seconds)

    def sink(self) -> None:
        columns = ("message_id", "partition_key", "body")
        options = self._bare_options(columns)
        with self.serving("sink", target=0):
            target = {"connectionString": self._server.connection_string, "entity": "target"}
            self._compare(
                "sink, transactional",
                40,
                lambda: self._run(self._stream("bare", options), "bare", options),
                lambda: self._run(self._stream("bare", options), "servicebus", target),
            )

    def fixed_cost(self) -> None:
        with self.serving("fixed", source=4 * TINY_BATCHES * PARTITIONS):
            self._fixed_cost()

    def _fixed_cost(self) -> None:
        rate = self._spark.readStream.format("rate").option("rowsPerSecond", "20").load()
        files = self._stream("bare", self._bare_options(self._all, "tiny", 1))
        options = {**self._bus_options(self._all), "targetTasks": "1"}
        times: dict[str, list[float]] = {"rate": [], "files": [], "bus": []}
        for number in range(2):
            ours = self._stream("servicebus", options, cursor=f"tiny{number}", maxMessagesPerTrigger=str(PARTITIONS))
            for name, frame in (("rate", rate), ("files", files), ("bus", ours)):
                times[name] += self._tiny(frame)
        rates, bare, bus = (median(each) for each in times.values())
        self.table.say("fixed cost of a batch: Spark's rate source", rates, "ms")
        self.table.say("fixed cost of a batch: a Python source of files", bare, "ms")
        self.table.say("fixed cost of a batch: from the bus", bus, "ms")
        self.table.at_most("fixed cost of a batch", bus / rates, 1.5, "x")

    def _tiny(self, frame: DataFrame) -> list[float]:
        """Milliseconds of batches with next to nothing in them, without the first few."""
        self._runs += 1
        checkpoint = str(self._folder / f"checkpoint{self._runs}")
        query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        times: dict[int, float] = {}
        while len(times) < TINY_BATCHES:
            for each in query.recentProgress:
                if each["numInputRows"]:
                    times[each["batchId"]] = each["durationMs"]["triggerExecution"]
            time.sleep(0.2)
        query.stop()
        return list(times.values())[5:]

    # What the bus pays

    def bus_cost(self) -> None:
        """CPU of the bus for each message that is sent and received: alone, with a cursor, and read through it."""
        from bench.rivals import Unavailable, build_loadgen

        try:
            build_loadgen()
        except Unavailable as why:
            self.table.note(f"CPU of the bus: not measured ({why})")
            return
        with self.serving("bus", alone=0, idle=0, read=0):
            self._bus_cost()

    def _bus_cost(self) -> None:
        from bench.amqp import PLAIN, load

        port = int(self._server.addresses["amqp"].rsplit(":", 1)[1])
        for name in ("idle", "read"):
            self._bus(name).create_cursor("c", {"start": "earliest"})
        costs: dict[str, list[float]] = {"alone": [], "idle": [], "read": []}
        for _ in range(ROUNDS):
            for name, seen in costs.items():
                before = _cpu(psutil.Process(self._server.pid))
                load(port, name, LOAD, *PLAIN)
                if name == "read":
                    self._read_through(name)
                seen.append(1e6 * (_cpu(psutil.Process(self._server.pid)) - before) / LOAD)
                if name == "idle":
                    self._read_through(name)
        alone, idle, read = (median(each) for each in costs.values())
        self.table.say("CPU of the bus for a message, no cursor", alone, "us")
        self.table.at_most("CPU of the bus with an idle cursor", 100 * (idle / alone - 1), 5, "% more")
        self.table.at_most("CPU of the bus with every message read once", 100 * (read / alone - 1), 40, "% more")

    def _read_through(self, queue: str) -> None:
        """Reads what the cursor has not, as a task does, and lets go of it, as the driver does."""
        bus = self._bus(queue)
        cursor = bus.cursor("c")
        assert cursor is not None
        ends = {end.index: end.stable_end for end in bus.log().ends}
        wanted = ranges(cursor.positions, ends)
        for _ in RangesRead(bus, self._all, wanted, None).batches():
            pass
        bus.advance("c", ends, cursor.fencing)
        while any(end.stable_end >= end.earliest for end in bus.log().ends):
            time.sleep(0.05)
        bus.close()

    def longest_step(self) -> None:
        """How long a bulk read holds the loop at most, by the processor's time: others' load does not count."""
        with self.serving("steps", SteppedServer, source=LOAD):
            server = self._server
            assert isinstance(server, SteppedServer)
            server.longest_step_ms()
            for form in ("records", "arrow"):
                for columns in (self._all, self._lean):
                    self._read_once(form, columns)
                cpu_ms, wall_ms = server.longest_step_ms()
                self.table.at_most(f"longest step of the loop, {form}", cpu_ms, 20, "ms")
                self.table.say(f"longest step of the loop, {form}, on the clock", wall_ms, "ms")

    def _read_once(self, form: str, columns: tuple[str, ...]) -> None:
        bus = self._bus("source")
        wanted = [Range(end.index, 1, end.stable_end) for end in bus.log().ends]
        if form == "records":
            for _ in RangesRead(bus, columns, wanted, None).batches():
                pass
        else:
            for each in wanted:
                query = {"partition": each.partition, "last": each.last, "columns": ",".join(columns)}
                bus.open_rows(query).read()  # type: ignore[arg-type]
        bus.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench spark")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=50_000)
    only = ["batch", "stream", "sink", "fixed", "bus", "steps", "store", "typed", "hot", "ten-million"]
    parser.add_argument("--only", choices=only)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    from tests.spark.kit import start_spark

    from bench.spark_lake import LakeBench

    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = Path(tempfile.mkdtemp(prefix="polybus-bench-"))
    try:
        spark = start_spark(folder / "spark")
        spark.sparkContext.setLogLevel("ERROR")
        spark.dataSource.register(BareSource)
        bench = LakeBench(spark, folder, arguments.messages, arguments.batch, arguments.rounds)
        parts = {
            "batch": bench.batch_reads,
            "stream": bench.streams,
            "sink": bench.sink,
            "fixed": bench.fixed_cost,
            "bus": bench.bus_cost,
            "steps": bench.longest_step,
            "store": bench.store,
            "typed": bench.typed,
            "hot": bench.hot,
        }
        if arguments.only == "ten-million":
            parts = {"ten-million": bench.ten_million}
        if arguments.only in (None, "batch", "stream", "sink", "fixed"):
            bench.save_files()
        for name, measure in parts.items():
            if arguments.only in (None, name):
                measure()
        spark.stop()
        bench.table.print()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
