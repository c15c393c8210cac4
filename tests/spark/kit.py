"""What tests of the pipeline need: a session of Spark, entities of a bus, queries that run to their end."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from polybus.spark.bus import BusClient
from polybus.spark.connection import BusConnection
from polybus.spark.staging import encoded
from polybus.spark.transport import BulkTransport
from polybus.testing.server import ServerProcess
from tests.sdk.python.bus import admin_client

QUERY_SECONDS = 60
FORMAT = "servicebus"
CONNECTION_VARIABLE = "POLYBUS_TEST_BUS"
"""Holds the connection string, in Spark's processes too."""


def start_spark(folder: Path, master: str = "local[2,4]") -> SparkSession:
    """Spark as the tests want it: two cores, four attempts, nothing to be seen from outside."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        SparkSession.builder.master(master)
        .appName("polybus-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={folder}")
        .getOrCreate()
    )


class Kit:
    def __init__(self, server: ServerProcess, spark: SparkSession, folder: Path, test: str) -> None:
        self.server = server
        self.spark = spark
        self.folder = folder
        self._name = re.sub(r"[^A-Za-z0-9-]", "-", test).strip("-")[-60:]
        self._sdk = ServiceBusClient.from_connection_string(server.connection_string)
        self.admin = admin_client(server)

    def __enter__(self) -> Kit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for query in self.spark.streams.active:
            query.stop()
        self._sdk.close()
        self.admin.close()

    # Entities

    def queue(self, suffix: str = "", **description: Any) -> str:
        name = self._name + suffix
        self.admin.create_queue(name, **{"enable_partitioning": True, **description})
        return name

    def topic(self, subscription: str) -> str:
        self.admin.create_topic(self._name, enable_partitioning=True)
        self.admin.create_subscription(self._name, subscription)
        return self._name

    def send(self, entity: str, messages: Iterable[ServiceBusMessage]) -> None:
        """One by one, in a window: batches of a partitioned entity must have one key."""
        with self._sdk.get_queue_sender(entity) as sender:
            for message in messages:
                sender.send_messages(message)

    def fill(self, entity: str, count: int, first: int = 0) -> set[str]:
        """Puts so many messages there, staged and published at once, without Spark; gives their bodies."""
        numbers = range(first, first + count)
        bodies = [f"message {number}" for number in numbers]
        rows = {
            "body": [body.encode() for body in bodies],
            "partition_key": [f"key {number % 50}" for number in numbers],
            "message_id": [str(number) for number in numbers],
        }
        bus = self.bus(entity)
        try:
            stage = bus.stage(encoded(pa.RecordBatch.from_pydict(rows)), {})
            assert bus.publish({"stages": [stage], "wait_seconds": 30})["visible"]
        finally:
            bus.close()
        return set(bodies)

    def drain(self, entity: str, count: int) -> list[ServiceBusMessage]:
        """Receives so many and completes them."""
        found: list[ServiceBusMessage] = []
        with self._sdk.get_queue_receiver(entity) as receiver:
            while len(found) < count:
                for message in receiver.receive_messages(max_message_count=100, max_wait_time=10):
                    receiver.complete_message(message)
                    found.append(message)
        return found

    @property
    def sdk(self) -> ServiceBusClient:
        return self._sdk

    def bus(self, entity: str) -> BusClient:
        return BusClient(BusConnection(self.server.connection_string), entity, 10)

    def fault(self, name: str) -> None:
        """Breaks something of the bus on purpose, or heals it."""
        BulkTransport(BusConnection(self.server.connection_string), 10).json("POST", f"/$polybus/faults/{name}")

    # Frames

    def _options(self, entity: str, options: dict[str, Any]) -> dict[str, str]:
        given = {"connectionString": self.server.connection_string, "entity": entity}
        return {**given, **{name: str(value) for name, value in options.items()}}

    def read(self, entity: str, **options: Any) -> DataFrame:
        return self.spark.read.format(FORMAT).options(**self._options(entity, options)).load()

    def stream(self, entity: str, **options: Any) -> DataFrame:
        return self.spark.readStream.format(FORMAT).options(**self._options(entity, options)).load()

    def write(self, frame: DataFrame, entity: str, **options: Any) -> None:
        options = {"waitSeconds": 30, **options}
        frame.write.format(FORMAT).options(**self._options(entity, options)).mode("append").save()

    # Queries

    def run(self, frame: DataFrame, sink: str, checkpoint: str = "checkpoint", **options: str) -> StreamingQuery:
        """Runs a query over what there is now and waits for its end."""
        started = (
            frame.writeStream.format(sink)
            .options(**options)
            .option("checkpointLocation", str(self.folder / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert started.awaitTermination(QUERY_SECONDS), "the query did not end"
        return started

    def to_files(self, frame: DataFrame, name: str = "out", checkpoint: str = "checkpoint") -> StreamingQuery:
        return self.run(frame, "parquet", checkpoint, path=str(self.folder / name))

    def to_bus(self, frame: DataFrame, entity: str, checkpoint: str = "checkpoint", **options: Any) -> StreamingQuery:
        return self.run(frame, FORMAT, checkpoint, **self._options(entity, {"waitSeconds": 30, **options}))

    def files(self, name: str = "out") -> list[str]:
        """The bodies that were written to files, each as often as it is there."""
        rows = self.spark.read.parquet(str(self.folder / name)).select("body").collect()
        return sorted(bytes(row.body).decode() for row in rows)
