"""A DataFrame written once: tasks stage it, and at the end it is published all at once.

Running the job again sends again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter
from pyspark.sql.types import StructType

from polybus.spark.options import SinkOptions
from polybus.spark.writing import StagedRows, Writing


class ServiceBusBatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._writing = Writing(options, schema)
        self._job = uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> StagedRows:
        context = TaskContext.get()
        split = context.partitionId() if context else 0
        return self._writing.write(iterator, "", self._job, f"{self._job}:{split}")

    def commit(self, messages: list[StagedRows | None]) -> None:
        """No producer and no epoch: a job is done once, and a stage is published once, however often one asks."""
        self._writing.publish(messages, {})

    def abort(self, messages: list[StagedRows | None]) -> None:
        self._writing.abort(messages)
