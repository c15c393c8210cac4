"""Arrow's streaming format, both ways; the only file that knows pyarrow, and only when somebody asks for Arrow.

A stream of ours ends with an empty batch whose metadata says up to where it is complete: a stream that breaks off
has none. A stream of theirs is looked at before it is believed: what is compressed, or longer than it says, is
refused before memory is taken for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import struct
import sys
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from polybus import limits
from polybus.errors import ArgumentError, NotImplementedByBus
from polybus.message.columns import BINARY, INT, LONG, MAP, READ_COLUMNS, TEXT, TIME

ARROW_TYPE = "application/vnd.apache.arrow.stream"
END_KEY = b"polybus.end"
"""Name of the metadata, on the last batch, that tells how a read ended."""
INSTALL = "Arrow is not installed on this bus: pip install 'polybus[arrow]'"


def pyarrow() -> Any:
    """The library; NotImplementedByBus where it is not installed."""
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        raise NotImplementedByBus(INSTALL) from None
    return pyarrow


async def load_pyarrow(*, arrays: bool = False) -> None:
    """Imports the library, the first time, where it does not stop the loop.

    With `arrays` also what it imports when a list becomes an array: all of pandas, where that is installed.
    """
    if "pyarrow.ipc" not in sys.modules:
        await asyncio.to_thread(_load)
    if arrays and "pandas" not in sys.modules:
        await asyncio.to_thread(lambda: pyarrow().array([0]))


def _load() -> None:
    pyarrow()
    # Starlette's first stream would load it in the loop; by its name only, for it is anyio's own affair.
    with contextlib.suppress(ImportError):
        importlib.import_module("anyio._backends._asyncio")


class _Stream:
    """Batches to the bytes of a stream, which leave as they are made."""

    def __init__(self, pa: Any, schema: Any) -> None:
        self._schema = schema
        self._sink = _PieceBuffer()
        self._pa = pa
        self._writer = pa.ipc.new_stream(self._sink, schema)

    def write(self, arrays: list[Any]) -> list[Any]:
        self._writer.write_batch(self._pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        return self._sink.take()

    def end(self, summary: dict[str, object]) -> list[Any]:
        """The empty batch that ends the stream, and says how."""
        arrays = [self._pa.nulls(0, field.type) for field in self._schema]
        empty = self._pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._writer.write_batch(empty, custom_metadata={END_KEY: json.dumps(summary).encode()})
        self._writer.close()
        return self._sink.take()


class ArrowWriter:
    """Columns to the bytes of a stream. Rows are turned into Arrow as they come, so that no batch is a long step."""

    def __init__(self, columns: list[str]) -> None:
        self._pa = pyarrow()
        kinds = _arrow_kinds(self._pa)
        self._schema = self._pa.schema([(name, kinds[READ_COLUMNS[name][0]]) for name in columns])
        self._stream = _Stream(self._pa, self._schema)
        self._chunks: dict[str, list[Any]] = {name: [] for name in columns}

    def add(self, columns: dict[str, list[object]]) -> None:
        """Rows of the next batch."""
        for name, values in columns.items():
            self._chunks[name].append(self._array(name, values))

    def batch(self) -> list[Any]:
        """The batch of all rows that were added."""
        arrays = [self._pa.concat_arrays(chunks) for chunks in self._chunks.values()]
        self._chunks = {name: [] for name in self._chunks}
        return self._stream.write(arrays)

    def end(self, summary: dict[str, object]) -> list[Any]:
        return self._stream.end(summary)

    def _array(self, name: str, values: list[object]) -> Any:
        kind, arrow_type = READ_COLUMNS[name][0], self._schema.field(name).type
        if kind == TIME:
            values = [None if value is None else value * 1000 for value in values]  # type: ignore[operator]
        elif kind == MAP:
            return self._map(values, arrow_type)
        return self._pa.array(values, type=arrow_type)

    def _map(self, values: list[Any], arrow_type: Any) -> Any:
        """A column of maps from its keys and items side by side: several times as fast as pair by pair."""
        offsets = [0]
        for value in values:
            offsets.append(offsets[-1] + len(value))
        keys = self._pa.array([key for value in values for key in value], self._pa.string())
        items = self._pa.array([item for value in values for item in value.values()], self._pa.string())
        return self._pa.MapArray.from_arrays(self._pa.array(offsets, self._pa.int32()), keys, items, type=arrow_type)


class RecordWriter:
    """Stored records to the bytes of a stream. Nothing in them is looked at: the reader takes them apart."""

    def __init__(self) -> None:
        self._pa = pyarrow()
        schema = self._pa.schema([("record", self._pa.binary()), ("settled", self._pa.uint8())])
        self._stream = _Stream(self._pa, schema)
        self._values: list[bytes] = []
        self._sizes: list[int] = []
        self._settled: list[bytes] = []
        self._blank = b""
        self.bytes = 0

    @property
    def rows(self) -> int:
        return len(self._values)

    def add(self, values: list[bytes], settled: bytes) -> None:
        self._values += values
        self._settled.append(settled)
        sizes = list(map(len, values))
        self._sizes += sizes
        self.bytes += sum(sizes)

    def batch(self) -> list[Any]:
        """The parts of a batch. Records stay what they are until they leave: lists of them stand for their bytes.

        Arrow is shown as many blank bytes in their place. Put together all at once they would be moved twice.
        """
        values, sizes, settled, size = self._values, self._sizes, self._settled, self.bytes
        self._values, self._sizes, self._settled, self.bytes = [], [], [], 0
        if len(self._blank) < size:
            self._blank = bytes(size)  # never touched, so never given memory
        offsets = struct.pack(f"={len(values) + 1}i", *accumulate(sizes, initial=0))
        buffer, made = self._pa.py_buffer, self._pa.Array.from_buffers
        blank = buffer(self._blank)[:size]
        records = made(self._pa.binary(), len(values), [None, buffer(offsets), blank])
        marks = made(self._pa.uint8(), len(values), [None, buffer(b"".join(settled))])
        parts = self._stream.write([records, marks])
        place = next(place for place, part in enumerate(parts) if _is_same(part, blank))
        return [*parts[:place], *_groups(values, size), *parts[place + 1 :]]

    def end(self, summary: dict[str, object]) -> list[Any]:
        return self._stream.end(summary)


class _PieceBuffer:
    """A file that is emptied as it is written; what Arrow hands over is kept, not copied."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[Any] = []

    def write(self, data: Any) -> int:
        self._parts.append(data)
        return len(data)

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def take(self) -> list[Any]:
        parts, self._parts = self._parts, []
        return parts


def _is_same(part: Any, buffer: Any) -> bool:
    return not isinstance(part, bytes) and part.address == buffer.address and len(part) == len(buffer)


def _groups(values: list[bytes], size: int) -> Iterator[list[bytes]]:
    """Values in their order, in lists that a socket takes at once where they are about as long as each other."""
    step = max(limits.BULK_PIECE_BYTES * len(values) // size, 1)
    for at in range(0, len(values), step):
        yield values[at : at + step]


def pieces(parts: list[Any]) -> Iterator[bytes | memoryview]:
    """What a stream made, in pieces that a socket takes at once: what it does not is moved about again and again."""
    small: list[Any] = []
    size = 0
    for part in parts:
        if isinstance(part, list):
            part = b"".join(part)
        is_small = len(part) < limits.BULK_PIECE_BYTES // 2
        if size and not (is_small and size + len(part) <= limits.BULK_PIECE_BYTES):
            yield b"".join(small)
            small, size = [], 0
        if is_small:
            small.append(part)
            size += len(part)
            continue
        view = memoryview(part)
        step = limits.BULK_PIECE_BYTES if len(view) > 2 * limits.BULK_PIECE_BYTES else len(view)
        for at in range(0, len(view), step):
            yield view[at : at + step]
    if size:
        yield b"".join(small)


def _arrow_kinds(pa: Any) -> dict[str, Any]:
    return {
        INT: pa.int32(),
        LONG: pa.int64(),
        TEXT: pa.string(),
        TIME: pa.timestamp("us", tz="UTC"),
        BINARY: pa.binary(),
        MAP: pa.map_(pa.string(), pa.string()),
    }


class ArrowReader:
    """The rows of a stream that a client sent."""

    def __init__(self, body: bytes) -> None:
        self._pa = pyarrow()
        try:
            _refuse_compression(self._pa, body)
            self._reader = self._pa.ipc.open_stream(self._pa.BufferReader(body))
            self.names: list[str] = list(self._reader.schema.names)
        except (self._pa.ArrowException, OSError, ValueError, struct.error, IndexError) as error:
            raise _unreadable(error) from None
        if len(set(self.names)) != len(self.names):
            raise ArgumentError("A column of the Arrow stream comes twice.")

    def frames(self, rows: int) -> Iterator[list[dict[str, Any]]]:
        """Rows as dictionaries, so many at a time."""
        for batch in self._slices(rows):
            yield batch.to_pylist()

    def values(self, name: str, rows: int) -> Iterator[list[bytes]]:
        """The values of a column of bytes, so many at a time."""
        for batch in self._slices(rows):
            column = batch.column(name)
            if not self._pa.types.is_binary(column.type) or column.null_count:
                raise ArgumentError(f"The column '{name}' must be of bytes, and none may be missing.")
            yield column.to_pylist()

    def _slices(self, rows: int) -> Iterator[Any]:
        count = 0
        try:
            for batch in self._reader:
                count += batch.num_rows
                if count > limits.BULK_STAGE_ROWS:
                    raise ArgumentError(f"A stage may have {limits.BULK_STAGE_ROWS} rows.")
                batch.validate(full=True)
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows)
        except (self._pa.ArrowException, OSError, ValueError, OverflowError) as error:
            raise _unreadable(error) from None


def _unreadable(error: Exception) -> ArgumentError:
    return ArgumentError(f"The Arrow stream cannot be read: {str(error)[:200]}")


def _refuse_compression(pa: Any, body: bytes) -> None:
    """Raises where a batch is compressed: a few bytes could then stand for gigabytes."""
    messages = pa.ipc.MessageReader.open_stream(pa.BufferReader(body))
    while True:
        try:
            message = messages.read_next_message()
        except StopIteration:
            return
        if message.type != "schema" and _has_compression(bytes(message.metadata), message.type):
            raise ArgumentError("A compressed Arrow stream is not accepted.")


_HEADER, _COMPRESSION, _DATA = 2, 3, 1
"""Places of fields in the tables of Arrow's Message.fbs: Message.header, RecordBatch.compression,
DictionaryBatch.data."""


def _has_compression(metadata: bytes, kind: str) -> bool:
    root = struct.unpack_from("<I", metadata, 0)[0]
    header = _table_at(metadata, root, _HEADER)
    if kind == "dictionary":
        header = _table_at(metadata, header, _DATA)
    return _field_at(metadata, header, _COMPRESSION) != 0


def _table_at(data: bytes, table: int, field: int) -> int:
    """Where the table begins that a field of a table points to."""
    at = _field_at(data, table, field)
    if at == 0:
        raise ValueError("a message of the stream has no content")
    return at + int(struct.unpack_from("<I", data, at)[0])


def _field_at(data: bytes, table: int, field: int) -> int:
    """Where a field of a table of flatbuffers lies; 0 where the table does not have it."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if vtable < 0:
        raise ValueError("a message of the stream points outside of itself")
    size = struct.unpack_from("<H", data, vtable)[0]
    place = 4 + 2 * field
    if place + 2 > size:
        return 0
    offset = int(struct.unpack_from("<H", data, vtable + place)[0])
    return table + offset if offset else 0
