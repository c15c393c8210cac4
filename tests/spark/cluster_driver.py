"""A driver on a cluster: reads a queue in a batch, copies it into another as a stream, and says what it saw.

`python -m tests.spark.cluster_driver MASTER FOLDER FROM TO`, the bus in the environment variable BUS. The last line
of its output is JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.spark.kit import FORMAT, start_spark


def main(master: str, folder: Path, origin: str, target: str) -> None:
    spark = start_spark(folder / "spark", master)
    spark.sparkContext.setLogLevel("ERROR")
    options = {"connectionString": os.environ["BUS"], "targetTasks": "4"}
    rows = spark.read.format(FORMAT).options(**options, entity=origin).load()
    count = rows.select("partition", "position").distinct().count()
    frame = spark.readStream.format(FORMAT).options(**options, entity=origin, maxMessagesPerTrigger="300").load()
    query = (
        frame.select("body", "partition_key")
        .writeStream.format(FORMAT)
        .options(connectionString=os.environ["BUS"], entity=target, waitSeconds="30")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    hosts = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1  # the driver is one of them
    print(json.dumps({"count": count, "executors": hosts, "batches": len(query.recentProgress)}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4])
