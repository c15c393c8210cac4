"""Messages that are alike are walked once: the others of their kind are known by what the walk looked at.

A walk goes by the length of a message and by the bytes that it looks at, and by nothing else. So messages of one
length with the same bytes at these places have their texts, pairs and body at the same places too. Producers send
messages of few kinds: one look at the front of each tells its kind, and only what is of no known kind is walked.

Kinds are remembered by the process, for a task of a stream reads too little to learn them anew. Messages with
numbers for properties are not learned: the texts that are made of them lie elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from polybus.limits import SPARK_LAYOUT_BYTES, SPARK_LAYOUT_ROWS, SPARK_LAYOUTS, SPARK_LAYOUTS_LEARNED
from polybus.spark.sections import Sections
from polybus.spark.texts import Texts
from polybus.spark.walking import Numbers, Octets, SectionWalk, TracedWalk

_READS: Final = 8
"""Choices of columns whose kinds of messages a process remembers."""


class RecordLayout:
    """One kind of messages: their length, the bytes that a walk looks at, and where it finds what."""

    def __init__(self, data: Octets, at: int, end: int, columns: tuple[str, ...]) -> None:
        walk = TracedWalk(data[at:end], np.array([0]), np.array([end - at]))
        # What was found, without the data that it was found in: that is memory of a read, and large.
        self._found = Sections.empty(data[:0].copy(), np.array([0]), columns)
        self._found.put_walked(Sections(walk, columns), np.array([0]))
        self.length = end - at
        seen = np.unique(np.concatenate(walk.seen))
        # Where it looked behind the end of the message it took no notice: it got to the very end.
        self._places = seen[seen < self.length]
        self.front = int(self._places[-1]) + 1
        self._bytes = data[at + self._places]

    def among(self, data: Octets, at: Numbers) -> Numbers:
        """Which of the messages of this length that begin here are of this kind."""
        fronts = Texts(at, np.full(len(at), self.front)).column(data, pa.binary())
        table = np.frombuffer(fronts.buffers()[2], np.uint8).reshape(len(at), self.front)
        return np.nonzero((table[:, self._places] == self._bytes).all(axis=1))[0]

    def put(self, into: Sections, rows: Numbers, at: Numbers) -> None:
        """Everything that was found in one of them, for all of these."""
        into.put_alike(self._found, rows, at)


class Layouts:
    """The kinds of messages that are known, the most frequent first."""

    def __init__(self, columns: tuple[str, ...], worth_rows: int = SPARK_LAYOUT_ROWS) -> None:
        """A kind with fewer messages in a batch than `worth_rows` is not learned."""
        self._columns = columns
        self._worth_rows = worth_rows
        self._known: list[RecordLayout] = []
        self._counts: dict[RecordLayout, int] = {}
        """How many messages of the latest batch were of which kind."""

    def __iter__(self) -> Iterator[RecordLayout]:
        return iter(self._known)

    @property
    def kinds(self) -> int:
        return len(self._known)

    def sections(self, data: Octets, at: Numbers, end: Numbers) -> Sections:
        """What the columns need of these messages."""
        found = Sections.empty(data, at, self._columns)
        rest = self._put_known(found, data, at, end - at)
        if len(rest):
            walked = Sections(SectionWalk(data, at[rest], end[rest]), self._columns)
            found.put_walked(walked, rest)
            self._learn(walked, data, at[rest], end[rest])
        return found

    def _put_known(self, found: Sections, data: Octets, at: Numbers, lengths: Numbers) -> Numbers:
        """The messages that are of no known kind."""
        left = np.ones(len(at), np.bool_)
        counts: dict[RecordLayout, int] = {}
        for layout in self._known:  # never changed, only replaced: threads may share it
            some = np.nonzero(left & (lengths == layout.length))[0]
            rows = some[layout.among(data, at[some])] if len(some) else some
            counts[layout] = len(rows)
            if len(rows):
                layout.put(found, rows, at[rows])
                left[rows] = False
        self._known, self._counts = sorted(counts, key=counts.__getitem__, reverse=True), counts
        return np.nonzero(left)[0]

    def _learn(self, walked: Sections, data: Octets, at: Numbers, end: Numbers) -> None:
        """Remembers the most frequent kinds among messages that had to be walked."""
        lengths = np.where(walked.plain & ~walked.converted, end - at, 0)
        for length, count in _most_frequent(lengths)[:SPARK_LAYOUTS_LEARNED]:
            if count < self._worth_rows or not self._has_room(count):
                return
            row = int(np.nonzero(lengths == length)[0][0])
            layout = RecordLayout(data, int(at[row]), int(end[row]), self._columns)
            if layout.front <= SPARK_LAYOUT_BYTES:
                self._known = [layout, *self._known[: SPARK_LAYOUTS - 1]]

    def _has_room(self, count: int) -> bool:
        """Whether a kind with so many messages may be added: the rarest goes for it only if it is much rarer, or
        kinds would push each other out with each batch."""
        return len(self._known) < SPARK_LAYOUTS or 2 * self._counts.get(self._known[-1], 0) < count


def _most_frequent(lengths: Numbers) -> list[tuple[int, int]]:
    values, counts = np.unique(lengths[lengths > 0], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return list(zip(values[order].tolist(), counts[order].tolist(), strict=True))


@lru_cache(_READS)
def layouts_of(columns: tuple[str, ...]) -> Layouts:
    """Those that this process knows for a read of these columns."""
    return Layouts(columns)
