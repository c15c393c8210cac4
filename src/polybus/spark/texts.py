"""Columns of texts and bytes made from places in a larger buffer, without a Python object for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from polybus.spark.walking import Flags, Numbers, Octets


class Texts:
    """One text of each row, as a place in a buffer; none where its length is negative."""

    def __init__(self, rows: int) -> None:
        self.at: Numbers = np.zeros(rows, np.int64)
        self.length: Numbers = np.full(rows, -1, np.int64)

    def put(self, rows: Numbers, at: Numbers, length: Numbers) -> None:
        self.at[rows] = at
        self.length[rows] = length

    def of(self, rows: Numbers) -> Texts:
        some = Texts(0)
        some.at, some.length = self.at[rows], self.length[rows]
        return some

    @property
    def present(self) -> Flags:
        return self.length >= 0

    def column(self, data: Octets, kind: Any) -> Any:
        """The column of these texts, all of which are in `data`."""
        present = self.present
        if not present.any():
            return pa.nulls(len(self.at), kind)
        length = np.maximum(self.length, 0)
        offsets = offsets_of(length)
        places = np.repeat(self.at - offsets[:-1], length) + np.arange(offsets[-1])
        return made(kind, offsets, data.take(places, mode="clip"), present)

    def long_column(self, data: memoryview, kind: Any) -> Any:
        """The same for values that are long, where copying each in one piece is quicker."""
        ends = (self.at + self.length).tolist()
        parts = [data[start:end] for start, end in zip(self.at.tolist(), ends, strict=True)]
        return made(kind, offsets_of(np.maximum(self.length, 0)), b"".join(parts), self.present)


def offsets_of(lengths: Numbers) -> Numbers:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def made(kind: Any, offsets: Numbers, data: Any, present: Flags) -> Any:
    mask = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    buffers = [mask, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)


def joined(texts: list[str]) -> tuple[Octets, Numbers, Numbers]:
    """Texts one after the other: their bytes, and where each begins and how long it is."""
    parts = [text.encode() for text in texts]
    lengths = np.array([len(part) for part in parts], np.int64)
    return np.frombuffer(b"".join(parts), np.uint8), offsets_of(lengths)[:-1], lengths
