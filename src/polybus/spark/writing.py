"""What the writers of streams and of batches have in common: rows made ready and staged, in each kind of delivery."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from polybus.errors import ConfigError, PolybusError
from polybus.limits import SPARK_PUBLISH_STAGES
from polybus.spark.bus import BusClient, Stage
from polybus.spark.options import SinkOptions
from polybus.spark.rows import ContentIds, check_schema, with_ids
from polybus.spark.staging import Stager

TRANSACTIONAL = "transactional"
IDEMPOTENT = "idempotent"


@dataclass
class StagedRows(WriterCommitMessage):  # type: ignore[misc]
    """What a task hands to the driver: who wrote, and what waits to be published."""

    producer: str
    query: str
    stages: list[Stage]


class Writing:
    """Stages the rows of one task."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(schema, options.unknown_to_properties, options.id_columns)
        self.options = options
        self._names = schema.fieldNames()

    @property
    def _gives_ids(self) -> bool:
        """Whether the rows bring message ids of their own."""
        return "message_id" in self._names and not self.options.id_columns

    def write(self, batches: Iterator[Any], producer: str, query: str, task: str) -> StagedRows:
        """`task` tells this part of the batch from the others, the same on every attempt."""
        options = self.options
        transactional = options.delivery == TRANSACTIONAL
        claimed = {"producer": producer, "query": query} if transactional and producer else {}
        needs_id = options.delivery == IDEMPOTENT and self._gives_ids
        stager = Stager(options, dict(claimed), needs_id)
        content = ContentIds(task)
        try:
            for batch in batches:
                stager.write(self._with_ids(batch, content))
            stager.finish()
            if not transactional:
                stager.publish()
        finally:
            stager.close()
        return StagedRows(producer, query, stager.stages)

    def _with_ids(self, batch: Any, content: ContentIds) -> Any:
        if self.options.id_columns:
            return with_ids(batch, self.options.id_columns)
        if self.options.delivery == IDEMPOTENT and not self._gives_ids:
            return content.put(batch)
        return batch

    def bus(self) -> BusClient:
        place = self.options.place
        return BusClient(place.connect(), place.entity, place.retry_seconds)

    def publish(self, messages: list[StagedRows | None], names: dict[str, Any]) -> None:
        """Publishes what the tasks have staged, all or nothing; an empty batch publishes nothing."""
        stages = [stage for message in messages if message is not None for stage in message.stages]
        if len(stages) > SPARK_PUBLISH_STAGES:
            raise ConfigError(f"one batch may have {SPARK_PUBLISH_STAGES} stages, not {len(stages)}: make it smaller")
        if not stages:
            return
        bus = self.bus()
        try:
            bus.publish({**names, "stages": stages, "wait_seconds": self.options.wait_seconds})
        finally:
            bus.close()

    def abort(self, messages: list[StagedRows | None]) -> None:
        """Throws away what the tasks have staged; where that fails it expires."""
        stages = [stage for message in messages if message is not None for stage in message.stages]
        if not stages:
            return
        bus = self.bus()
        try:
            bus.abort(stages)
        except PolybusError:
            return
        finally:
            bus.close()
