"""The sections of many AMQP messages, found for all of them side by side (AMQP 1.0 §1.6, §3.2).

A walk has a place in each message and goes on by whole values. It knows the values by the upper half of their
constructor, which tells how long they are, and it gives up on a message (`plain` becomes false) as soon as anything
in it is not as nearly all messages have it. What it has found in a message that it gave up on means nothing.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
Octets = np.ndarray[Any, np.dtype[np.uint8]]

NULL: Final = 0x40
TEXTS: Final = (0xA1, 0xB1, 0xA3, 0xB3)
"""Strings and symbols, short and long."""
BYTES: Final = (0xA0, 0xB0)
LISTS: Final = (0xC0, 0xD0)
MAPS: Final = (0xC1, 0xD1)

_LEAD: Final = np.array([0] * 10 + [1, 4] * 3, np.int64)
"""Bytes of the length after a constructor, by its upper half."""
_WIDTH: Final = np.array([0, 0, 0, 0, 0, 1, 2, 4, 8, 16] + [0] * 6, np.int64)
"""Bytes of the value where the constructor alone tells."""
_LARGEST: Final = 1 << 40
"""Further than any message reaches; keeps sums of wrong lengths harmless."""


class Value:
    """One value of each message: its constructor, its first byte, its length."""

    __slots__ = ("at", "kind", "length")

    def __init__(self, kind: Octets, at: Numbers, length: Numbers) -> None:
        self.kind = kind
        self.at = at
        self.length = length

    @property
    def after(self) -> Numbers:
        return self.at + self.length

    def moved(self, away: Numbers) -> Value:
        """The value at this offset, for many messages at once."""
        return Value(self.kind, self.at + away, np.repeat(self.length, len(away)))

    def is_one_of(self, kinds: tuple[int, ...]) -> Flags:
        found: Flags = self.kind == kinds[0]
        for kind in kinds[1:]:
            found |= self.kind == kind
        return found


class SectionWalk:
    """Where each message has been read up to, and which of them are still as expected."""

    def __init__(self, data: Octets, at: Numbers, end: Numbers) -> None:
        self.data = data
        self.at = at
        self.end = end
        self.plain: Flags = np.ones(len(at), np.bool_)

    def byte(self, at: Numbers) -> Octets:
        return self.data.take(at, mode="clip")

    def number(self, at: Numbers) -> Numbers:
        """Four bytes as a whole number."""
        number = self.byte(at).astype(np.int64)
        for place in (1, 2, 3):
            number = (number << 8) | self.byte(at + place)
        return number

    def equal(self, at: Numbers, text: bytes) -> Flags:
        """Whether these bytes are there."""
        places = at[:, None] + np.arange(len(text))
        return np.asarray((self.byte(places) == np.frombuffer(text, np.uint8)).all(axis=1), np.bool_)

    def value(self, at: Numbers) -> Value:
        kind = self.byte(at)
        half = kind >> 4
        lead = _LEAD[half]
        length = np.where(lead == 1, self.byte(at + 1), _WIDTH[half])
        long = lead == 4
        if long.any():
            length = np.where(long, self.number(at + 1), length)
        # A constructor below 0x40 is a described value, or none at all: its end is not known here.
        return Value(kind, at + 1 + lead, np.where(half >= 4, length, _LARGEST))

    # Sections

    def section(self, code: int) -> Numbers:
        """The messages whose next section is this one; they now stand at its value."""
        at = self.at
        here = (self.byte(at) == 0) & (self.byte(at + 1) == 0x53) & (self.byte(at + 2) == code) & (at < self.end)
        rows = np.nonzero(here)[0]
        self.at[rows] += 3
        return rows

    def skip_section(self, code: int) -> None:
        rows = self.section(code)
        if len(rows):
            self.at[rows] = self.value(self.at[rows]).after

    def leave(self, rows: Numbers, wrong: Flags) -> None:
        """Gives up on those of the rows for which something is wrong."""
        if wrong.any():
            self.plain[rows[wrong]] = False

    def compound(self, rows: Numbers, kinds: tuple[int, int]) -> tuple[Numbers, Numbers, Numbers]:
        """Where the items of a list or map begin, how many they are, and where it ends."""
        at = self.at[rows]
        value = self.value(at)
        self.leave(rows, ~value.is_one_of(kinds))
        if (value.kind == kinds[1]).any():
            long = value.kind == kinds[1]
            count = np.where(long, self.number(value.at), self.byte(value.at))
            return value.at + np.where(long, 4, 1), count, value.after
        return value.at + 1, self.byte(value.at).astype(np.int64), value.after

    def ended(self) -> Flags:
        """The messages that were walked to their very end."""
        ended: Flags = self.plain & (self.at == self.end)
        return ended


class TracedWalk(SectionWalk):
    """A walk that remembers where it looked."""

    def __init__(self, data: Octets, at: Numbers, end: Numbers) -> None:
        super().__init__(data, at, end)
        self.seen: list[Numbers] = []

    def byte(self, at: Numbers) -> Octets:
        self.seen.append(at.flatten())  # a copy: a walk moves its places on
        return super().byte(at)
