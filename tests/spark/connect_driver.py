"""A client of Spark Connect: reads a queue, copies it in streams and in a batch, and says what it saw.

`python -m tests.spark.connect_driver ADDRESS FOLDER FROM TO BY_BATCHES ONCE`, the bus in the environment variable BUS.
A second run with the same folder goes on where the first ended. The last line of its output is JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from polybus.errors import ConfigError
from polybus.pipelines.declaration import parse
from polybus.pipelines.runner import run_once
from tests.spark.kit import FORMAT

FILE = """
bus: {connectionStringEnv: BUS}
checkpoints: state
pipelines: [{name: lake, kind: capture, from: q, to: {path: lake}}]
"""


class Client:
    def __init__(self, address: str, folder: Path, origin: str) -> None:
        self.spark = SparkSession.builder.remote(address).getOrCreate()
        self._folder = folder
        self._place = {"connectionString": os.environ["BUS"]}
        self._origin = origin

    def read(self) -> DataFrame:
        return self.spark.read.format(FORMAT).options(**self._place, entity=self._origin).load()

    def copy(self, target: str) -> None:
        """A stream from queue to queue: everything happens in the server."""
        writing = self._stream("copy").writeStream.format(FORMAT).options(**self._place, entity=target)
        self._run(writing, "copy")

    def copy_by_batches(self, target: str) -> None:
        """A function of the client, which the server calls for each batch."""
        place = {**self._place, "entity": target}

        def write(frame: DataFrame, _: int) -> None:
            frame.write.format("servicebus").options(**place).mode("append").save()

        self._run(self._stream("by-batches").writeStream.foreachBatch(write), "by-batches")

    def write_once(self, target: str) -> None:
        """Rows of the client, all at once."""
        frame = self.spark.createDataFrame(
            [(f"row {number}", "k") for number in range(10)], "body string, session_id string"
        )
        columns = frame.selectExpr("body", "session_id as partition_key")
        columns.write.format(FORMAT).options(**self._place, entity=target).mode("append").save()

    def _stream(self, cursor: str) -> DataFrame:
        frame = self.spark.readStream.format(FORMAT).options(**self._place, entity=self._origin, cursor=cursor).load()
        return frame.select("body", "partition_key")

    def _run(self, writing: object, name: str) -> None:
        query = (
            writing.option("checkpointLocation", str(self._folder / name))  # type: ignore[attr-defined]
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def pipelines(self) -> str:
        """What a runner of pipelines says to such a session."""
        try:
            run_once(parse(FILE, "pipelines.yml", self._folder), self.spark)
        except ConfigError as error:
            return str(error)
        return "they ran"


def main(address: str, folder: Path, origin: str, copied: str, by_batches: str, once: str) -> None:
    client = Client(address, folder, origin)
    told = {
        "module": type(client.spark).__module__,
        "count": client.read().count(),
        "some": client.read().where("partition_key = 'key 7'").count(),
        "pipelines": client.pipelines(),
    }
    client.copy(copied)
    client.copy_by_batches(by_batches)
    client.write_once(once)
    print(json.dumps(told), flush=True)
    client.spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:7])
