"""A client of Spark Connect: reads a queue in a batch, copies it into another as a stream, and says what it saw.

`python -m tests.spark.connect_driver ADDRESS FOLDER FROM TO`, the bus in the environment variable BUS. The last line
of its output is JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.kit import FORMAT


def main(address: str, folder: Path, origin: str, target: str) -> None:
    spark = SparkSession.builder.remote(address).getOrCreate()
    place = {"connectionString": os.environ["BUS"]}
    count = spark.read.format(FORMAT).options(**place, entity=origin).load().count()
    query = (
        spark.readStream.format(FORMAT)
        .options(**place, entity=origin)
        .load()
        .select("body", "partition_key")
        .writeStream.format(FORMAT)
        .options(**place, entity=target, checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(json.dumps({"count": count, "module": type(spark).__module__}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4])
