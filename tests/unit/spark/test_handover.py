"""Small batches that leave with their plan, as Spark's own planning process asks for them."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.python_streaming_source_runner import partitions_func, report_latest_offset_func
from pyspark.sql.types import LongType, StructField, StructType

from polybus.errors import ServerBusy
from polybus.spark.handover import Handover

SCHEMA = StructType([StructField("n", LongType())])
NOT_FOUND, ROWS = 0, 1
"""What Spark is told behind the partitions: that tasks must read, or that rows follow."""


class Reader(Handover, DataSourceStreamReader):  # type: ignore[misc]
    def __init__(self, batches: list[Any], most_bytes: int = 1_000) -> None:
        super().__init__()
        self.batches = batches
        self.most_bytes = most_bytes

    def read(self, partition: InputPartition) -> Iterator[Any]:
        for batch in self.batches:
            if isinstance(batch, Exception):
                raise batch
            yield batch

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        part = InputPartition(None)
        self.hand_over(lambda: self.read(part), self.most_bytes)
        return [part]

    def reportLatestOffset(self) -> dict[str, Any]:
        return {"at": 7}


def batch(*numbers: int) -> Any:
    return pa.RecordBatch.from_pydict({"n": list(numbers)})


def planned(reader: Reader) -> tuple[int, list[int] | None]:
    """How many partitions Spark's planning process sends, and the rows behind them."""
    out = io.BytesIO()
    text = b'{"at": 1}'
    partitions_func(reader, DataSource({}), SCHEMA, 100, io.BytesIO(2 * (struct.pack(">i", len(text)) + text)), out)
    sent = io.BytesIO(out.getvalue())
    (count,) = struct.unpack(">i", sent.read(4))
    for _ in range(count):
        sent.read(struct.unpack(">i", sent.read(4))[0])
    (status,) = struct.unpack(">i", sent.read(4))
    if status == NOT_FOUND:
        return count, None
    assert status == ROWS
    sent.read(4)
    return count, pa.ipc.open_stream(sent).read_all().column("n").to_pylist()


def test_rows_leave_with_the_plan_of_their_batch() -> None:
    reader = Reader([batch(1, 2), batch(3)])
    assert planned(reader) == (1, [1, 2, 3])
    assert planned(reader) == (1, [1, 2, 3])


@pytest.mark.parametrize(
    "batches",
    [[], [batch(*range(1_000))], [batch(1), ServerBusy("It is away.")], [batch(1), ConnectionResetError()]],
    ids=["nothing", "too much", "busy", "broken off"],
)
def test_tasks_read_what_cannot_be_handed_over(batches: list[Any]) -> None:
    reader = Reader([batch(1)])
    assert planned(reader) == (1, [1])
    reader.batches = batches
    assert planned(reader) == (1, None)


def test_a_reader_is_an_ordinary_one_before_and_after() -> None:
    reader = Reader([batch(1)])
    assert type(reader) is reader.__class__
    planned(reader)
    assert type(reader) is reader.__class__
    out = io.BytesIO()
    report_latest_offset_func(reader, out)
    assert out.getvalue()[4:] == b'{"at": 7}'
