"""Bodies that have a record of their own: their counts beside the copies that are really there.

A body costs the checker a few bytes in packed arrays, in order of its number, so that a million of them can be
counted in one walk over the messages.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from polybus.errors import PolybusError, StoreCorrupt
from polybus.message.message import Message
from polybus.partition import records
from polybus.partition.bodies import Bodies

if TYPE_CHECKING:
    from polybus.operations.partition_check import PartitionCheck

_BROKEN: Final = (PolybusError, struct.error)
_END: Final = (b"", b"")


class BodyBook:
    """The bodies of one partition."""

    def __init__(self, partition: PartitionCheck, counter: int) -> None:
        self.live_bytes = 0
        """What counts against the entity's size: each body once, while one copy of it is not settled."""
        self.incomplete = False
        self._partition = partition
        self._counter = counter
        self._body_prefix = partition.prefix + records.BODIES
        self._count_prefix = partition.prefix + records.BODY_COUNTS
        self._decoder = Bodies(partition.prefix)
        self._numbers = array("Q")
        self._sizes = array("Q")
        self._copies = array("q")
        self._live = array("q")
        self._load()

    def __len__(self) -> int:
        return len(self._numbers)

    def _load(self) -> None:
        """Walks bodies and counts side by side."""
        counts = self._partition.table(self._count_prefix)
        count_key, count = next(counts, _END)
        for key, value in self._partition.table(self._body_prefix):
            while count_key and count_key[-8:] < key[-8:]:
                self._report(count_key, "counts copies of a body that is missing")
                count_key, count = next(counts, _END)
            if count_key[-8:] != key[-8:]:
                self._report(key, "a body whose copies are not counted")
                continue
            self._take(key, value, count_key, count)
            count_key, count = next(counts, _END)
        while count_key:
            self._report(count_key, "counts copies of a body that is missing")
            count_key, count = next(counts, _END)

    def _report(self, key: bytes, problem: str) -> None:
        self._partition.report(key, problem)

    def _take(self, key: bytes, value: bytes, count_key: bytes, count: bytes) -> None:
        number = records.number_of(key)
        if number > self._counter:
            self._report(key, f"its number is above the counter, {self._counter}: it would be given again")
        try:
            self._decoder.load([number], [value, count])
            body = self._decoder.memory.pop(number)
        except _BROKEN as error:
            broken = key if _is_broken(value) else count_key
            self._report(broken, str(error))
            self.incomplete = True
            return
        self._numbers.append(number)
        self._sizes.append(body.message.size)
        self._copies.append(body.copies)
        self._live.append(body.live)
        if body.live:
            self.live_bytes += body.message.size

    def refer(self, key: bytes, number: int, size: int, live: bool) -> None:
        """A stored copy refers to a body."""
        at = bisect_left(self._numbers, number)
        if at == len(self._numbers) or self._numbers[at] != number:
            if not self.incomplete:
                self._report(key, f"refers to body {number}, which is missing")
            return
        self._copies[at] -= 1
        self._live[at] -= live
        if self._sizes[at] != size:
            self._report(key, f"says it has {size} bytes, its body {number} has {self._sizes[at]}")

    def message(self, number: int) -> Message:
        """The message in a body; StoreCorrupt where there is none to be read."""
        value = self._partition.reader.get([records.number_key(self._body_prefix, number)])[0]
        return Message(records.unsealed(value or b"", "a body"), True)

    def finish(self) -> None:
        """Every copy has been seen: what is left of the counts is wrong."""
        if any(self._copies) or any(self._live):
            for at, number in enumerate(self._numbers):
                if self._copies[at] or self._live[at]:
                    text = f"counts {self._copies[at]:+} copies and {self._live[at]:+} live ones too many"
                    self._report(records.number_key(self._count_prefix, number), text)


def _is_broken(value: bytes) -> bool:
    try:
        records.unsealed(value, "a body")
    except StoreCorrupt:
        return True
    return False
