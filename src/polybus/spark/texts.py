"""Columns of texts and bytes made from places in a larger buffer, without a Python object for each.

Places that lie one behind the other, as those of one column do in messages that do, are copied out by Arrow itself:
what lies between two of them counts as a value too, and every second value is taken. Columns never refer to the
buffer afterwards, so its owner may use it again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from polybus.spark.walking import Flags, Numbers, Octets


class Texts:
    """One text of each row, as a place in a buffer; none where its length is negative."""

    def __init__(self, at: Numbers, length: Numbers) -> None:
        self.at = at
        self.length = length

    @classmethod
    def none_of(cls, rows: Numbers) -> Texts:
        """For rows that begin at these places and have nothing yet."""
        return cls(rows.copy(), np.full(len(rows), -1, np.int64))

    def put(self, rows: Numbers, at: Numbers, length: Numbers) -> None:
        self.at[rows] = at
        self.length[rows] = length

    def of(self, rows: Numbers | slice) -> Texts:
        return Texts(self.at[rows], self.length[rows])

    @property
    def present(self) -> Flags:
        return self.length >= 0

    def column(self, data: Octets, kind: Any) -> Any:
        """The column of these texts, all of which are in `data`."""
        present = self.present
        if not present.any():
            return pa.nulls(len(self.at), kind)
        if present.all():
            return _copied(data, self.at, self.length, kind)
        found = _copied(data, self.at, np.maximum(self.length, 0), kind)
        return pa.Array.from_buffers(kind, len(found), [_mask(present), *found.buffers()[1:]])


def _copied(data: Octets, at: Numbers, length: Numbers, kind: Any) -> Any:
    """The values at these places; those that lie in disorder byte by byte, for Arrow's values follow each other."""
    bounds = np.empty(2 * len(at), np.int32)
    bounds[0::2], bounds[1::2] = at, at + length
    if (bounds[1:] < bounds[:-1]).any():
        offsets = offsets_of(length)
        places = np.repeat(at - offsets[:-1], length) + np.arange(offsets[-1])
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data.take(places, mode="clip"))]
        return pa.Array.from_buffers(kind, len(at), buffers)
    values = pa.Array.from_buffers(kind, len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    return values.take(pa.array(np.arange(0, len(bounds), 2, dtype=np.int32)))


def _mask(present: Flags) -> Any:
    return pa.py_buffer(np.packbits(present, bitorder="little"))


def offsets_of(lengths: Numbers) -> Numbers:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def joined(texts: list[str]) -> tuple[Octets, Numbers, Numbers]:
    """Texts one after the other: their bytes, and where each begins and how long it is."""
    parts = [text.encode() for text in texts]
    lengths = np.array([len(part) for part in parts], np.int64)
    return np.frombuffer(b"".join(parts), np.uint8), offsets_of(lengths)[:-1], lengths
