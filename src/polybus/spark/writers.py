"""The sink: each task stages its rows, and the driver publishes them, once for a DataFrame or once for each batch of a
query."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from polybus.errors import BugError
from polybus.spark.options import SinkOptions
from polybus.spark.writing import TRANSACTIONAL, StagedRows, Writing


class ServiceBusBatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Published all at once at the end; running the job again sends again."""

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


class ServiceBusStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """The number of the batch is the epoch: a batch that is repeated after a crash publishes nothing a second time.
    Epochs belong to the query, which Spark knows by its checkpoint; a new checkpoint under the same producer's name takes
    the producer over, and whoever still writes under the old one is fenced."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._writing = Writing(options, schema)

    def write(self, iterator: Iterator[Any]) -> StagedRows:
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        epoch = context.getLocalProperty("streaming.sql.batchId") if context else None
        if context is None or not query or epoch is None:
            raise BugError("a task of a stream must know its query and its batch")
        producer = self._writing.options.producer or query
        return self._writing.write(iterator, producer, query, f"{query}:{epoch}:{context.partitionId()}")

    def commit(self, messages: list[StagedRows | None], batchId: int) -> None:  # noqa: N803
        first = next((message for message in messages if message is not None), None)
        if first is not None and self._writing.options.delivery == TRANSACTIONAL:
            names = {"producer": first.producer, "query": first.query, "epoch": batchId}
            self._writing.publish(messages, names)

    def abort(self, messages: list[StagedRows | None], batchId: int) -> None:  # noqa: N803, ARG002
        self._writing.abort(messages)
