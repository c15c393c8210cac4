"""Reading in bulk: where logs begin and end, ranges of them, what is there now, and what happened (docs/reference/bulk.md).

Reading changes nothing and waits for nobody. A read is a stream that is made as fast as the client takes it, in steps
so small that other clients do not notice. It ends with a summary: up to where it is complete, and what was missing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol

from starlette.responses import Response, StreamingResponse

from polybus import limits
from polybus.asyncio_bridge import run
from polybus.errors import ArgumentError, PolybusError
from polybus.gateway.bulk.arrow import ARROW_TYPE, ArrowWriter, load_pyarrow, pieces
from polybus.gateway.bulk.call import BulkCall, answer, generation
from polybus.gateway.bulk.choices import DEAD, STATES, chosen
from polybus.gateway.bulk.record_stream import get_records
from polybus.gateway.bulk.rows import ColumnTable, chosen_columns, json_value
from polybus.gateway.durations import ms_from_date_time
from polybus.message.columns import READ_COLUMNS, Row, moment
from polybus.message.message import Message
from polybus.message.rendering import Marks
from polybus.namespace.jobs.walk import Walk
from polybus.namespace.pipeline.cursor import Cursor
from polybus.namespace.pipeline.ranges import (
    PartitionLog,
    RangeReader,
    partition_at,
    partition_logs,
    read_events,
)

LINES_TYPE = "application/x-ndjson"
_NAMES = {state: name for name, state in STATES.items()}


async def get_log(request: BulkCall) -> Response:
    """Where the log begins and ends, partition by partition; with `time` also where that time is."""
    entity, log_id = request.entity, request.log_id
    time_ms = _time(request.call.query.get("time"))
    logs = await run(partition_logs(entity, log_id, time_ms))
    return answer(
        {
            "entity": request.address.path,
            "entity_id": generation(entity),
            "partitions": [_partition(log) for log in logs],
            "cursors": [cursor.name for cursor in request.bus.cursors.of(entity, log_id)],
        }
    )


def _time(text: str | None) -> int | None:
    if text is None:
        return None
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else ms_from_date_time(text)


def _partition(log: PartitionLog) -> dict[str, object]:
    if log.problem is not None:
        return {"partition": log.index, "available": False, "earliest": None, "stable_end": None}
    shown: dict[str, object] = {
        "partition": log.index,
        "available": True,
        "earliest": log.earliest,
        "stable_end": log.stable_end,
        "messages": log.messages,
        "bytes": log.bytes,
    }
    if log.at_time is not None:
        shown["at_time"] = log.at_time
    return shown


# Streams


class Encoder(Protocol):
    """Columns to bytes, and the summary at the end."""

    def add(self, columns: dict[str, list[object]]) -> None: ...

    def batch(self) -> list[Any]: ...

    def end(self, summary: dict[str, object]) -> list[Any]: ...


class LineWriter:
    """One JSON object for each row, and one for the end."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, columns: dict[str, list[object]]) -> None:
        self._lines += [json.dumps(row, ensure_ascii=False) for row in _json_rows(columns)]

    def batch(self) -> list[Any]:
        lines, self._lines = self._lines, []
        return ["".join(f"{line}\n" for line in lines).encode("utf-8", "replace")]

    def end(self, summary: dict[str, object]) -> list[Any]:
        return [f"{json.dumps({'end': summary})}\n".encode()]


def _json_rows(columns: dict[str, list[object]]) -> Iterator[dict[str, object]]:
    kinds = [READ_COLUMNS[name][0] for name in columns]
    for values in zip(*columns.values(), strict=True):
        yield {name: json_value(kind, value) for name, kind, value in zip(columns, kinds, values, strict=True)}


class _RowSource(Protocol):
    """What is read step by step."""

    def done(self) -> bool: ...

    async def step(self) -> list[Row]: ...

    def summary(self) -> dict[str, object]: ...


async def _stream(request: BulkCall, source: _RowSource) -> Response:
    query = request.call.query
    columns = chosen_columns(
        query.get("columns"), body=request.flag("body", True), properties=request.flag("properties", True)
    )
    wants_lines = _wants_lines(request)
    if not wants_lines:
        await load_pyarrow(arrays=True)
    encoder: Encoder = LineWriter() if wants_lines else ArrowWriter(columns)
    headers = {"Cache-Control": "no-store"}
    kind = LINES_TYPE if wants_lines else ARROW_TYPE
    return StreamingResponse(_parts(source, encoder, ColumnTable(columns)), 200, headers, kind)


def _wants_lines(request: BulkCall) -> bool:
    form = request.call.query.get("format")
    if form not in (None, "arrow", "json"):
        raise ArgumentError("The parameter 'format' must be arrow or json, or records for a range.")
    return form == "json" or (form is None and request.call.prefers_json)


async def _parts(source: _RowSource, encoder: Encoder, table: ColumnTable) -> AsyncIterator[bytes | memoryview]:
    """The bytes of a read. A store that fails on the way ends it early, and the summary says so."""
    problem: str | None = None
    rows = size = 0
    try:
        while not source.done():
            table.add(await source.step())
            rows, size = rows + table.rows, size + table.bytes
            if table.rows:
                encoder.add(table.take())
            if rows >= limits.BULK_COLUMNS_ROWS or size >= limits.BULK_BATCH_BYTES:
                for piece in pieces(encoder.batch()):
                    yield piece
                    await asyncio.sleep(0)  # a socket may take all of them at once
                rows = size = 0
            # Reads may be answered at once: the loop must still get its turn.
            await asyncio.sleep(0)
    except PolybusError as error:
        problem = str(error)
    parts = encoder.batch() if rows else []
    summary = source.summary()
    parts += encoder.end(summary if problem is None else {**summary, "error": problem})
    for piece in pieces(parts):
        yield piece


# Ranges of a log


class _RangeRows:
    def __init__(self, reader: RangeReader) -> None:
        self._reader = reader

    def done(self) -> bool:
        return self._reader.done

    async def step(self) -> list[Row]:
        return await run(self._reader.read(limits.BULK_STEP_ROWS, limits.BULK_STEP_BYTES))

    def summary(self) -> dict[str, object]:
        return {"complete_to": self._reader.complete_to, "missing": self._reader.missing}


async def get_range(request: BulkCall) -> Response:
    """Messages by position, from `first` to `last`, both included, of one partition."""
    entity, log_id = request.entity, request.log_id
    if request.call.query.get("format") == "records":
        return await get_records(request)
    partition = partition_at(entity, request.number("partition"))
    first, last = request.number("first", 1), request.number("last", (1 << 62) - 1)
    reader = await run(RangeReader(partition, log_id, first, last).begin())
    return await _stream(request, _RangeRows(reader))


# What is there now


class _Browse:
    """Messages by number that a choice takes; it looks at each partition in turn."""

    def __init__(self, walk: Walk, dead: bool) -> None:
        self._walk = walk
        self._dead = dead

    def done(self) -> bool:
        return self._walk.done

    async def step(self) -> list[Row]:
        index, page = await run(self._walk.page())
        return [self._row(index, each.message, each.marks) for each in page]

    def _row(self, index: int, message: Message, marks: Marks) -> Row:
        expires_ms = marks.enqueued_ms + message.ttl_ms if message.ttl_ms >= 0 else 0
        return Row(index, None, message, marks, expires_ms, DEAD if self._dead else _NAMES[marks.state])

    def summary(self) -> dict[str, object]:
        return {"unreachable": self._walk.unreachable}


async def get_browse(request: BulkCall) -> Response:
    """Messages as they are now, by state, time and condition; of one partition or of all."""
    entity = request.entity
    address, choice = chosen(request, request.call.query)
    first = request.number("first", 1)
    indexes = list(range(len(entity.partitions)))
    if "partition" in request.call.query:
        indexes = [partition_at(entity, request.number("partition")).index]
        entity.partitions[indexes[0]].check_available()
    log_id = entity.log_id(address)
    walk = Walk(request.namespace, entity, log_id, choice, indexes, first)
    return await _stream(request, _Browse(walk, address.sub_queue is not None))


# Events


async def get_events(request: BulkCall) -> Response:
    """What happened to messages of a log, where the entity keeps events."""
    entity, log_id = request.entity, request.log_id
    partition = partition_at(entity, request.number("partition"))
    first = request.number("first", 1)
    limit = request.number("limit", 1_000, limits.EVENTS_PER_READ)
    events = await run(read_events(partition, log_id, first, max(limit, 1)))
    shown = [
        {
            "event": event.position,
            "sequence_number": event.sequence,
            "change": event.change,
            "time": moment(event.time_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "delivery_count": event.delivery_count,
            "reason": event.reason,
            "message_id": event.message_id,
            "trace": event.trace,
            "enqueued_time": moment(event.enqueued_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        for event in events
    ]
    following = events[-1].position + 1 if events else first
    return answer({"enabled": entity.settings.events, "events": shown, "next": following})


def cursor_lag(cursor: Cursor, logs: list[PartitionLog]) -> int:
    """Messages that the cursor has not read, over the partitions that can be reached."""
    return sum(max(log.stable_end - cursor.positions.get(log.index, 0), 0) for log in logs if log.problem is None)
