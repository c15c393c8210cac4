"""A DataFrame sent as one epoch of a named producer: tasks stage its rows, the driver publishes them, once.

This is what the streaming sink does, for work that is not a streaming query of Spark and numbers its steps itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from polybus.errors import EntityNotFound
from polybus.pipelines.places import EntityReference
from polybus.spark.options import sink_options
from polybus.spark.transport import BulkTransport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RETRY_SECONDS: Final = 30


@dataclass(frozen=True)
class Epoch:
    """The number of a step, of a run, of a producer. A new run takes the producer over from the one before."""

    producer: str
    run: str
    number: int

    def names(self) -> dict[str, Any]:
        return {"producer": self.producer, "query": self.run, "epoch": self.number}


@dataclass(frozen=True)
class StageTask:
    """For `DataFrame.mapInArrow`: rows in, what the bus said of the stages out. Options are resolved in the worker."""

    options: dict[str, str]
    schema: Any
    epoch: Epoch

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        from polybus.spark.writing import Writing

        context = TaskContext.get()
        assert context is not None
        writing = Writing(sink_options(self.options), self.schema)
        task = f"{self.epoch.run}:{self.epoch.number}:{context.partitionId()}"
        staged = writing.write(batches, self.epoch.producer, self.epoch.run, task)
        yield pa.RecordBatch.from_pydict({"task": [context.partitionId()], "stages": [json.dumps(staged.stages)]})

    def __repr__(self) -> str:
        return f"StageTask({self.epoch})"


def send_epoch(frame: DataFrame, target: EntityReference, epoch: Epoch) -> bool:
    """Sends the rows of a frame, all or nothing and once; False where the bus had published this epoch before."""
    writing = StageTask(target.options(), frame.schema, epoch)
    told = frame.mapInArrow(writing, "task long, stages string").collect()
    stages = [stage for row in sorted(told, key=lambda row: row.task) for stage in json.loads(row.stages)]
    if not stages:
        return False
    wait = sink_options(target.options()).wait_seconds
    bus = target.open(_RETRY_SECONDS)
    try:
        return bool(bus.publish({**epoch.names(), "stages": stages, "wait_seconds": wait})["published"])
    finally:
        bus.close()


def last_epoch(target: EntityReference, producer: str, run: str) -> int:
    """The last epoch of the run that the bus has published, -1 where there is none."""
    transport = BulkTransport(target.bus.connection(), _RETRY_SECONDS)
    path = f"/$polybus/entities/{quote(target.entity, safe='')}/producers/{quote(producer, safe='')}"
    try:
        told = transport.json("GET", path)
    except EntityNotFound:
        return -1
    finally:
        transport.close()
    return int(told["epoch"]) if told["query"] == run else -1
