"""What the pipeline costs beside Spark's own price: `scripts/bench spark [--messages N] [--batch N]`.

Each figure is a share of the same work done with the bus taken out: the same rows from local Arrow files through the
same Python API, the same query into a Python sink that does nothing, Spark's own rate source. So the figures say what
the bus costs and hardly depend on the machine. The bus runs in a process of its own and shares the cores with Spark.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

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

from bench.table import Table
from polybus.spark.bus import Bus
from polybus.spark.columns import COLUMNS, arrow_schema, spark_schema
from polybus.spark.connection import Connection
from polybus.spark.planning import Range
from polybus.spark.reading import RangesRead
from polybus.spark.staging import encoded
from polybus.testing.server import ServerProcess

PARTITIONS = 16
BODY_BYTES = 1_024
FILE_ROWS = 5_000
TASKS = 2
ROUNDS = 3


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


class SparkBench:
    def __init__(self, server: ServerProcess, spark: SparkSession, folder: Path, messages: int, batch: int) -> None:
        self._server = server
        self._spark = spark
        self._folder = folder
        self._messages = messages
        self._batch = batch
        self._runs = 0
        self._all = tuple(COLUMNS)
        self._lean = tuple(name for name in COLUMNS if name != "properties")
        self.table = Table(f"Spark, {messages:,} messages of 1 KiB in {PARTITIONS} partitions, {TASKS} tasks")

    # What is read

    def prepare(self) -> None:
        from tests.sdk.python.bus import admin_client

        admin: ServiceBusAdministrationClient
        with admin_client(self._server) as admin:
            for name in ("source", "target"):
                admin.create_queue(name, enable_partitioning=True)
        self._fill("source", self._messages)
        self._save_files()

    def _fill(self, queue: str, count: int) -> None:
        bus = Bus(Connection(self._server.connection_string), queue, 60)
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
        bus = Bus(Connection(self._server.connection_string), "source", 60)
        files = self._folder / "files"
        files.mkdir()
        schema = arrow_schema(self._all)
        number = 0
        for end in bus.log().ends:
            wanted = Range(end.index, 1, end.stable_end)
            for batch in RangesRead(bus, self._all, [wanted], None).batches():
                with (
                    pa.OSFile(str(files / f"{number:05}.arrow"), "wb") as sink,
                    pa.ipc.new_stream(sink, schema) as out,
                ):
                    out.write_batch(batch)
                number += 1
        self._files_per_batch = max(number * self._batch // self._messages, 1)

    # Frames

    def _bus_options(self, columns: tuple[str, ...], entity: str = "source") -> dict[str, str]:
        self._runs += 1
        common = {"connectionString": self._server.connection_string, "entity": entity}
        return {**common, "columns": ",".join(columns), "targetTasks": str(TASKS)}

    def _bare_options(self, columns: tuple[str, ...]) -> dict[str, str]:
        folder = str(self._folder / "files")
        return {"folder": folder, "columns": ",".join(columns), "files": str(self._files_per_batch)}

    def _read(self, form: str, options: dict[str, str]) -> DataFrame:
        return self._spark.read.format(form).options(**options).load()

    def _stream(self, form: str, options: dict[str, str], **more: str) -> DataFrame:
        return self._spark.readStream.format(form).options(**options, **more).load()

    # Figures

    def batch_reads(self) -> None:
        for name, columns, goal in (("all columns", self._all, 35), ("without properties", self._lean, 60)):
            bare = self._rate(lambda c=columns: self._count(self._read("bare", self._bare_options(c))))
            ours = self._rate(lambda c=columns: self._count(self._read("servicebus", self._bus_options(c))))
            self.table.say(f"batch read, {name}: from files", bare, "rows/s")
            self.table.say(f"batch read, {name}: from the bus", ours, "rows/s")
            self.table.at_least(f"batch read, {name}", 100 * ours / bare, goal, "%")

    def _count(self, frame: DataFrame) -> int:
        frame.write.format("noop").mode("overwrite").save()
        return self._messages

    def _rate(self, work: Callable[[], int]) -> float:
        """The best of a few runs after one that warms up: noise only ever makes it slower."""
        work()
        best = 0.0
        for _ in range(ROUNDS):
            started = time.perf_counter()
            rows = work()
            best = max(best, rows / (time.perf_counter() - started))
        return best

    def streams(self) -> None:
        for name, columns, goal in (("all columns", self._all, 35), ("without properties", self._lean, 60)):
            bare = self._stream_rate(self._stream("bare", self._bare_options(columns)), "noop", {})
            ours = self._stream_rate(self._tap(columns), "noop", {})
            self.table.say(f"stream, {name}: from files", bare, "rows/s")
            self.table.say(f"stream, {name}: from the bus", ours, "rows/s")
            self.table.at_least(f"stream, {name}", 100 * ours / bare, goal, "%")

    def _tap(self, columns: tuple[str, ...]) -> DataFrame:
        options = self._bus_options(columns)
        return self._stream("servicebus", options, cursor=f"run{self._runs}", maxMessagesPerTrigger=str(self._batch))

    def _stream_rate(self, frame: DataFrame, sink: str, options: dict[str, str]) -> float:
        """Rows a second over the batches after the first, which starts the processes."""
        progress = self._run(frame, sink, options)[1:]
        rows = sum(each["numInputRows"] for each in progress)
        return 1000 * rows / sum(each["durationMs"]["triggerExecution"] for each in progress)

    def _run(self, frame: DataFrame, sink: str, options: dict[str, str]) -> list[Any]:
        self._runs += 1
        checkpoint = self._folder / f"checkpoint{self._runs}"
        writer = frame.writeStream.format(sink).options(**options).option("checkpointLocation", str(checkpoint))
        query = writer.start()
        query.processAllAvailable()
        query.stop()
        return [each for each in query.recentProgress if each["numInputRows"]]

    def sink(self) -> None:
        columns = ("message_id", "partition_key", "body")
        options = self._bare_options(columns)
        null = self._stream_rate(self._stream("bare", options), "bare", options)
        target = {"connectionString": self._server.connection_string, "entity": "target"}
        ours = self._stream_rate(self._stream("bare", options), "servicebus", target)
        self.table.say("sink: into nothing, in Python", null, "rows/s")
        self.table.say("sink: into the bus, transactional", ours, "rows/s")
        self.table.at_least("sink, transactional", 100 * ours / null, 40, "%")

    def fixed_cost(self) -> None:
        rate = self._spark.readStream.format("rate").option("rowsPerSecond", "10").load()
        theirs = self._tiny(rate)
        options = {**self._bus_options(self._all), "targetTasks": "1", "cursor": "tiny"}
        ours = self._tiny(self._stream("servicebus", options, maxMessagesPerTrigger=str(PARTITIONS)))
        self.table.say("fixed cost of a batch: Spark's rate source", theirs, "ms")
        self.table.say("fixed cost of a batch: from the bus", ours, "ms")
        self.table.at_most("fixed cost of a batch", ours / theirs, 1.5, "x")

    def _tiny(self, frame: DataFrame) -> float:
        """Milliseconds of a batch with next to nothing in it, by the median of twenty."""
        self._runs += 1
        checkpoint = str(self._folder / f"checkpoint{self._runs}")
        query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        times: dict[int, int] = {}
        while len(times) < 25:
            for each in query.recentProgress:
                if each["numInputRows"]:
                    times[each["batchId"]] = each["durationMs"]["triggerExecution"]
            time.sleep(0.2)
        query.stop()
        return median(list(times.values())[5:])


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench spark")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=50_000)
    parser.add_argument("--only", choices=["batch", "stream", "sink", "fixed"])
    arguments = parser.parse_args()
    from tests.spark.kit import start_spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = Path(tempfile.mkdtemp(prefix="polybus-bench-"))
    try:
        with ServerProcess(folder / "bus", "--stores", "4") as server:
            spark = start_spark(folder / "spark")
            spark.sparkContext.setLogLevel("ERROR")
            spark.dataSource.register(BareSource)
            bench = SparkBench(server, spark, folder, arguments.messages, arguments.batch)
            bench.prepare()
            parts = {
                "batch": bench.batch_reads,
                "stream": bench.streams,
                "sink": bench.sink,
                "fixed": bench.fixed_cost,
            }
            for name, measure in parts.items():
                if arguments.only in (None, name):
                    measure()
            spark.stop()
            bench.table.print()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
