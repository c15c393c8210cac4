"""Messages of a range or of a browse, as the Arrow batches that Spark takes.

A read of the bus ends with a summary; one that breaks off has none, and is taken up again after the last message that
arrived. The summary names positions at which nothing was. Some never had anything to give: what was settled before
the cursor began. What the cursor should have held and does not is lost, and that is said loudly.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa

from polybus.errors import CursorTruncated, ServerBusy
from polybus.spark.bus import Bus
from polybus.spark.columns import arrow_schema
from polybus.spark.planning import Range
from polybus.spark.transport import Query

END_KEY: Final = b"polybus.end"
POSITION: Final = "position"
Gap = tuple[int, int]
"""Positions with nothing at them, both ends included."""


class Summary:
    """How a read ended: up to where it is complete, and what was missing on the way."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.complete_to: int = told.get("complete_to", 0)
        self.missing: list[Gap] = [(first, last) for first, last in told.get("missing", [])]
        self.unreachable: list[int] = told.get("unreachable", [])
        self.error: str | None = told.get("error")


class RangeRead:
    """One range, read from its first position to its last, however often the bus goes away meanwhile."""

    def __init__(self, bus: Bus, columns: tuple[str, ...], wanted: Range, entity_id: str | None) -> None:
        self._bus = bus
        self._schema = arrow_schema(columns)
        self._range = wanted
        self._next = wanted.first
        asked = columns if POSITION in columns else (*columns, POSITION)
        self._query: Query = {"partition": wanted.partition, "last": wanted.last, "columns": ",".join(asked)}
        if entity_id is not None:
            self._query["entity_id"] = entity_id
        self.missing: list[Gap] = []

    def batches(self) -> Iterator[Any]:
        failed_at = -1
        while self._next <= self._range.last:
            try:
                yield from self._attempt()
            except (OSError, http.client.HTTPException, pa.ArrowException, ServerBusy):
                self._bus.close()
                if failed_at == self._next:
                    raise
                failed_at = self._next

    def _attempt(self) -> Iterator[Any]:
        """What one request gives; it ends in the middle where the connection does."""
        query = {**self._query, "first": self._next}
        response = self._bus.repeat(lambda: self._bus.open_range(query))
        summary: Summary | None = None
        for batch, told in _parts(response):
            summary = told
            if batch.num_rows:
                self._next = batch.column(POSITION)[-1].as_py() + 1
                yield _fitted(batch, self._schema)
        if summary is None:
            raise ServerBusy(f"The read of partition {self._range.partition} broke off.")
        self.missing += summary.missing
        self._next = max(self._next, summary.complete_to + 1)
        if summary.error is not None or self._next <= self._range.last:
            raise ServerBusy(
                f"Partition {self._range.partition} could be read only up to position {self._next - 1} of"
                f" {self._range.last}: {summary.error or 'there is no more'}"
            )


def browse(bus: Bus, columns: tuple[str, ...], query: Query) -> Iterator[Any]:
    """What is there now, in the states that the query names; partitions that are out are an error."""
    schema = arrow_schema(columns)
    response = bus.repeat(lambda: bus.open_browse({**query, "columns": ",".join(columns)}))
    summary: Summary | None = None
    for batch, told in _parts(response):
        summary = told
        if batch.num_rows:
            yield _fitted(batch, schema)
    if summary is None or summary.error is not None or summary.unreachable:
        why = "it broke off" if summary is None else summary.error or f"partitions {summary.unreachable} are out"
        raise ServerBusy(f"Browsing '{bus.entity}' did not come to its end: {why}.")


def _parts(response: Any) -> Iterator[tuple[Any, Summary | None]]:
    """The batches of a stream, and with the last one its summary."""
    with pa.ipc.open_stream(response) as reader:
        while True:
            try:
                batch, metadata = reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                break
            told = None if metadata is None else metadata.get(END_KEY)
            yield batch, None if told is None else Summary(json.loads(told))
    response.read()


def _fitted(batch: Any, schema: Any) -> Any:
    """The batch with exactly the columns that Spark expects."""
    if batch.schema.equals(schema):
        return batch
    return pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)


def losses(missing: list[Gap], lost_to: int) -> list[Gap]:
    """Of positions with nothing at them, those that a cursor should have kept: up to where it was cut off."""
    return [(first, min(last, lost_to)) for first, last in missing if first <= lost_to]


def report_losses(wanted: Range, lost: list[Gap], entity: str, fail: bool, warn: Callable[[str], None]) -> None:
    """Raises, or warns where the user has said that losses are no failure."""
    count = sum(last - first + 1 for first, last in lost)
    if not count:
        return
    shown = ", ".join(f"{first}-{last}" for first, last in lost[:5])
    text = (
        f"{count} messages of '{entity}', partition {wanted.partition}, positions {shown}, are no longer there: the"
        " cursor lagged over its limit, or the checkpoint is older than the cursor."
    )
    if fail:
        raise DataLoss(f"{text} With failOnDataLoss=false the query goes on without them.")
    warn(text)


class DataLoss(CursorTruncated):
    """Messages that a query had not read are gone."""
