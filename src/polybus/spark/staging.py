"""What a task writes: rows go to the bus in requests of a few megabytes and wait there to be published.

Requests are made beside the task, one at a time: while the bus syncs one, Spark hands over the rows of the next.

A row that cannot be a message fails the task with the row in the error, or is put aside: then it becomes a message of
another entity, with the reason as a property, published together with the good rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import pyarrow as pa

from polybus.errors import ArgumentError, BusError, QuotaExceeded
from polybus.limits import SPARK_SHOWN_ROW_CHARACTERS, SPARK_STAGE_BYTES, SPARK_STAGE_ROWS
from polybus.spark.bus import BusClient, Stage
from polybus.spark.encoding import encoded_messages
from polybus.spark.options import SinkOptions
from polybus.spark.rows import faults, row_text
from polybus.spark.transport import Query

_ROW: Final = re.compile(r"\bRow (\d+)\b")


class RowRefused(ArgumentError):
    """A row that cannot be a message."""


class Stager:
    def __init__(self, options: SinkOptions, query: Query, needs_id: bool) -> None:
        place = options.place
        self._entity = place.entity
        self._needs_id = needs_id
        self._wait_seconds = options.wait_seconds
        self._query: Query = dict(query)
        if options.unknown_to_properties:
            self._query["unknown"] = "properties"
        self._bus = BusClient(place.connect(), place.entity, place.retry_seconds)
        self._bad: BusClient | None = None
        if options.bad_rows is not None:
            self._bad = BusClient(place.connect(), options.bad_rows, place.retry_seconds)
        self._bad_query = query
        self._waiting: list[Any] = []
        self._beside = ThreadPoolExecutor(1, "polybus-stage")
        self._request: Future[None] | None = None
        self.stages: list[Stage] = []
        """What the bus has; complete after `finish`."""

    def close(self) -> None:
        self._beside.shutdown()
        self._bus.close()
        if self._bad is not None:
            self._bad.close()

    def publish(self) -> None:
        """Makes visible what was staged so far, without an epoch."""
        if self.stages:
            self._bus.publish({"stages": self.stages, "wait_seconds": self._wait_seconds})
            self.stages = []

    def write(self, batch: Any) -> None:
        """Takes rows; they leave when a request is full."""
        for part in slices(batch):
            full = sum(each.nbytes for each in self._waiting) + part.nbytes > SPARK_STAGE_BYTES
            if full or sum(each.num_rows for each in self._waiting) + part.num_rows > SPARK_STAGE_ROWS:
                self.flush()
            self._waiting.append(part)

    def flush(self) -> None:
        """Makes a request of what waits, as soon as the one before has been answered."""
        parts, self._waiting = self._waiting, []
        self._answered()
        if parts:
            self._request = self._beside.submit(self._stage_all, parts)

    def finish(self) -> None:
        """All rows have been taken in by the bus."""
        self.flush()
        self._answered()

    def _answered(self) -> None:
        request, self._request = self._request, None
        if request is not None:
            request.result()

    def _stage_all(self, parts: list[Any]) -> None:
        self._stage(pa.Table.from_batches(parts).combine_chunks().to_batches()[0])

    def _stage(self, batch: Any) -> None:
        wrong = faults(batch, self._needs_id)
        if wrong:
            batch = self._without(batch, wrong)
        while batch.num_rows:
            try:
                self.stages.append(self._bus.stage(_content(batch), self._query))
                return
            except (ArgumentError, QuotaExceeded) as error:
                batch = self._without(batch, _named(error, batch.num_rows))

    def _without(self, batch: Any, wrong: dict[int, str]) -> Any:
        """The rows that are left; what is wrong with the others is told, or put aside."""
        if self._bad is None:
            row, reason = min(wrong.items())
            shown = row_text(batch, row, SPARK_SHOWN_ROW_CHARACTERS)
            raise RowRefused(f"A row cannot be a message of '{self._entity}': {reason}. The row: {shown}")
        self._put_aside(self._bad, batch, wrong)
        return batch.filter(pa.array([row not in wrong for row in range(batch.num_rows)]))

    def _put_aside(self, bad: BusClient, batch: Any, wrong: dict[int, str]) -> None:
        rows = {
            "body": [row_text(batch, row) for row in wrong],
            "content_type": ["application/json"] * len(wrong),
            "reason": list(wrong.values()),
            "entity": [self._entity] * len(wrong),
        }
        content = encoded(pa.RecordBatch.from_pydict(rows))
        self.stages.append(bad.stage(content, {**self._bad_query, "unknown": "properties"}))


def _named(error: BusError, rows: int) -> dict[int, str]:
    """The row that a refusal is about; raises it again where it is about none."""
    found = _ROW.search(str(error))
    if found is None or int(found[1]) >= rows:
        raise error
    return {int(found[1]): str(error)}


def slices(batch: Any) -> Iterator[Any]:
    """Parts of a batch, each small enough for one request."""
    if not batch.num_rows:
        return
    by_size = max(SPARK_STAGE_BYTES * batch.num_rows // max(batch.nbytes, 1), 1)
    rows = min(by_size, SPARK_STAGE_ROWS)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _content(batch: Any) -> bytes:
    """Whole messages where they can be made here; else the rows, and the bus makes them."""
    messages = encoded_messages(batch)
    return encoded(batch if messages is None else pa.RecordBatch.from_arrays([messages], names=["message"]))


def encoded(batch: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())
