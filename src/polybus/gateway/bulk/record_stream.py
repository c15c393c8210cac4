"""Ranges of a log as stored records: the cheapest read, for clients that take messages apart themselves.

Rendering a message costs the bus several times what reading it does, and the bus is one process; those who read in
bulk are many. So records leave as they lie in the store, several ranges in one answer, in the order in which they were
asked for (docs/reference/bulk.md).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from polybus import limits
from polybus.asyncio_bridge import run
from polybus.errors import ArgumentError, PolybusError
from polybus.gateway.bulk.arrow import ARROW_TYPE, RecordWriter, load_pyarrow, pieces
from polybus.gateway.bulk.call import BulkCall
from polybus.namespace.pipeline.ranges import RangeReader, partition_at

_RANGE = re.compile(r"([0-9]{1,5}):([0-9]{1,19})-([0-9]{1,19})")


async def get_records(request: BulkCall) -> Response:
    """Messages of several ranges, as they are stored."""
    ranges = [_range(request, text) for text in request.call.query.get("ranges", "").split(",")]
    if len(ranges) > limits.BULK_RANGES:
        raise ArgumentError(f"One request may have {limits.BULK_RANGES} ranges.")
    await load_pyarrow()
    parts = _Reading(ranges, RecordWriter()).parts()
    return StreamingResponse(parts, 200, {"Cache-Control": "no-store"}, ARROW_TYPE)


def _range(request: BulkCall, text: str) -> RangeReader:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise ArgumentError("The parameter 'ranges' must be PARTITION:FIRST-LAST, several with commas between.")
    return RangeReader(partition_at(request.entity, int(found[1])), request.log_id, int(found[2]), int(found[3]))


class _Reading:
    def __init__(self, ranges: list[RangeReader], writer: RecordWriter) -> None:
        self._ranges = ranges
        self._writer = writer
        self._ends: list[dict[str, object]] = []

    async def parts(self) -> AsyncIterator[bytes | memoryview]:
        """The bytes of the answer. A store that fails ends it early, and the summary says so."""
        summary: dict[str, object] = {"ranges": self._ends}
        try:
            for reader in self._ranges:
                await run(reader.begin())
                async for piece in self._range(reader):
                    yield piece
                self._ends.append({"partition": reader.index, "complete_to": reader.complete_to})
        except PolybusError as error:
            summary["error"] = str(error)
        rest = self._writer.batch() if self._writer.rows else []
        for piece in pieces(rest + self._writer.end(summary)):
            yield piece

    async def _range(self, reader: RangeReader) -> AsyncIterator[bytes | memoryview]:
        writer = self._writer
        while not reader.done:
            found = await run(reader.read_records(limits.BULK_RECORD_STEP_ROWS, limits.BULK_RECORD_STEP_BYTES))
            writer.add(found.values, found.settled)
            if writer.rows >= limits.BULK_BATCH_ROWS or writer.bytes >= limits.BULK_BATCH_BYTES:
                for piece in pieces(writer.batch()):
                    yield piece
                    await asyncio.sleep(0)  # a socket may take all of them at once
            # Reads may be answered at once: the loop must still get its turn.
            await asyncio.sleep(0)
