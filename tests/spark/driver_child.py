"""A driver that copies one queue to another until it is killed: `driver_child.py FOLDER FROM TO BATCHES`.

It tells on its output when batches are done, and once as many as asked for are, goes on until somebody ends it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.spark.kit import start_spark


def main(folder: Path, origin: str, target: str) -> None:
    spark = start_spark(folder / "child")
    common = {"connectionString": os.environ["BUS"]}
    frame = (
        spark.readStream.format("servicebus")
        .options(**common, entity=origin, maxMessagesPerTrigger="100")
        .load()
        .select("body", "partition_key")
    )
    query = (
        frame.writeStream.format("servicebus")
        .options(**common, entity=target)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    print("started", flush=True)
    query.awaitTermination()
    print("ended", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
