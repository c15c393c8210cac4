"""Spark looks for modules called `pyspark_*` and registers what they offer: here `format("servicebus")`."""

from __future__ import annotations

from polybus.spark.source import ServiceBusDataSource as DefaultSource

__all__ = ["DefaultSource"]
