"""The data pipeline on Spark: queues, topics and subscriptions as a source and a sink of DataFrames.

Everything here is a client of a running bus and speaks its bulk API over HTTP (docs/reference/bulk.md); nothing here
knows the inside of a bus. Spark finds the source by itself through the module `pyspark_polybus`.
"""

from polybus.spark.frames import by_reason, dead_letters, decode, send_again
from polybus.spark.starting import session

__all__ = ["by_reason", "dead_letters", "decode", "send_again", "session"]
