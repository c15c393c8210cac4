"""When message locks end: a line for each lock duration, for among equal durations the first locked ends first.

A lock that is settled leaves its line at once, one that is renewed goes to the end of it: what is first ends first.
"""

from __future__ import annotations

from polybus.partition.entry import Entry
from polybus.partition.timetable import NOT_DUE


class LockEnds:
    def __init__(self) -> None:
        self._lines: dict[int, dict[int, Entry]] = {}
        """By lock duration: locked entries by the numbers of their locks."""

    def add(self, lock_ms: int, entry: Entry) -> None:
        """An entry was locked for so long, from now."""
        line = self._lines.get(lock_ms)
        if line is None:
            line = self._lines[lock_ms] = {}
        line[entry.lock] = entry

    def remove(self, lock_ms: int, number: int) -> None:
        """A lock ends, or is about to be given again; its duration was probably this."""
        line = self._lines.get(lock_ms)
        if line is not None and line.pop(number, None) is not None:
            return
        for line in self._lines.values():
            line.pop(number, None)

    def first_ms(self) -> int:
        """When the first lock ends; NOT_DUE where there is none."""
        first = NOT_DUE
        for line in self._lines.values():
            for entry in line.values():
                first = min(first, entry.locked_until_ms)
                break
        return first

    def ended(self, mono_ms: int) -> list[Entry]:
        """The entries whose locks have run out; they leave their lines."""
        found: list[Entry] = []
        for line in self._lines.values():
            for entry in line.values():
                if entry.locked_until_ms > mono_ms:
                    break
                found.append(entry)
        for entry in found:
            self.remove(entry.log.settings.lock_ms, entry.lock)
        return found
