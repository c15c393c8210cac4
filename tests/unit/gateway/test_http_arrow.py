"""Stored records as an Arrow stream: what Arrow itself would write, though it never sees the records."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.gateway.bulk.arrow import END_KEY, RecordWriter, pieces
from polybus.limits import BULK_PIECE_BYTES

small = st.binary(min_size=1, max_size=300)
large = st.builds(lambda size, byte: bytes((byte,)) * size, st.integers(1, 3 * BULK_PIECE_BYTES), st.integers(0, 255))
steps = st.lists(st.lists(st.tuples(small | large, st.booleans()), min_size=1, max_size=5), min_size=1, max_size=3)


def _written(batches: list[list[list[tuple[bytes, bool]]]]) -> list[bytes | memoryview]:
    """The pieces of a stream of these batches, each of which comes in steps."""
    writer = RecordWriter()
    found: list[bytes | memoryview] = []
    for batch in batches:
        for step in batch:
            writer.add([value for value, _ in step], bytes(settled for _, settled in step))
        assert writer.rows == sum(map(len, batch))
        found += pieces(writer.batch())
        assert writer.rows == writer.bytes == 0
    return found + list(pieces(writer.end({"ranges": []})))


def _read(stream: bytes) -> tuple[list[Any], Any]:
    reader = pa.ipc.open_stream(stream)
    batches: list[Any] = []
    while True:
        batch, metadata = reader.read_next_batch_with_custom_metadata()
        if metadata is not None:
            return batches, json.loads(metadata[END_KEY])
        batch.validate(full=True)
        batches.append(batch)


@given(st.lists(steps, max_size=3))
def test_records_come_out_as_they_went_in(batches: list[list[list[tuple[bytes, bool]]]]) -> None:
    found, end = _read(b"".join(_written(batches)))
    assert end == {"ranges": []}
    expected = [[row for step in batch for row in step] for batch in batches]
    assert [batch.column("record").to_pylist() for batch in found] == [
        [value for value, _ in rows] for rows in expected
    ]
    assert [batch.column("settled").to_pylist() for batch in found] == [
        [mark for _, mark in rows] for rows in expected
    ]


@given(st.lists(steps, min_size=1, max_size=2))
def test_no_piece_is_too_large_for_a_socket(batches: list[list[list[tuple[bytes, bool]]]]) -> None:
    for piece in _written(batches):
        assert isinstance(piece, bytes | memoryview)
        assert 0 < len(piece) <= 2 * BULK_PIECE_BYTES


def test_records_that_become_shorter_and_shorter_leave_in_pieces_of_a_good_size() -> None:
    rows = [(b"x" * (BULK_PIECE_BYTES // (1 + number)), False) for number in range(200)]
    rows += [(b"y" * 70, False)] * 20_000
    written = _written([[rows]])
    assert max(map(len, written)) <= 2 * BULK_PIECE_BYTES
    assert len(written) < 20
    assert _read(b"".join(written))[0][0].column("record").to_pylist() == [value for value, _ in rows]


@pytest.mark.parametrize(
    "size", [1, BULK_PIECE_BYTES // 2, BULK_PIECE_BYTES, 2 * BULK_PIECE_BYTES, 5 * BULK_PIECE_BYTES]
)
def test_parts_of_arrow_leave_whole_whatever_their_size(size: int) -> None:
    data = bytes(number % 251 for number in range(size))
    found = list(pieces([b"head", pa.py_buffer(data), b"tail"]))
    assert b"".join(found) == b"head" + data + b"tail"
    assert all(isinstance(piece, bytes | memoryview) and len(piece) <= 2 * BULK_PIECE_BYTES for piece in found)
