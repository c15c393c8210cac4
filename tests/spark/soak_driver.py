"""A driver that copies a queue into files, a Delta table or another queue until it is told to stop, or killed.

`python -m tests.spark.soak_driver MASTER FOLDER ORIGIN SINK`, the bus in the environment variable BUS. It says
`started`, and after a line on its input it ends with the batch at hand and says `stopped`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.spark.kit import FORMAT, start_spark

BATCH = 5_000
APPLICATION = "soak"


def main(master: str, folder: Path, origin: str, sink: str) -> None:
    spark = start_spark(folder / "spark", master)
    spark.sparkContext.setLogLevel("ERROR")
    query = start_query(spark, folder, origin, sink)
    print("started", flush=True)
    sys.stdin.readline()
    query.processAllAvailable()
    query.stop()
    print("stopped", flush=True)


def start_query(spark: SparkSession, folder: Path, origin: str, sink: str) -> StreamingQuery:
    common = {"connectionString": os.environ["BUS"]}
    options = {**common, "entity": origin, "cursor": sink, "maxMessagesPerTrigger": str(BATCH)}
    frame = spark.readStream.format(FORMAT).options(**options).load()
    writer = frame.select("body", "partition_key").writeStream
    writer = writer.option("checkpointLocation", str(folder / "checkpoint" / sink))
    if sink == "bus":
        return writer.format(FORMAT).options(**common, entity=f"{origin}-copy").start()
    if sink == "delta":
        return writer.foreachBatch(lambda rows, batch: _to_delta(str(folder / sink), rows, batch)).start()
    return writer.format("parquet").option("path", str(folder / sink)).start()


def _to_delta(path: str, frame: DataFrame, batch: int) -> None:
    """One commit for each batch, which says which batch it is: a batch that is repeated is there already."""
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

    if DeltaTable.is_deltatable(path):
        done = DeltaTable(path).transaction_version(APPLICATION)
        if done is not None and done >= batch:
            return
    mark: Any = CommitProperties(app_transactions=[Transaction(APPLICATION, batch)])
    write_deltalake(path, frame.toArrow(), mode="append", commit_properties=mark)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4])
