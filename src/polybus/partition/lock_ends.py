"""When message locks end: a queue for each lock duration, for among equal durations the first locked ends first.

Locks that were settled or renewed stay in their queue until they come to its head, where each new lock clears away
what it finds; a queue with too many of them is cleaned, so that one lock held for minutes does not keep the memory of
all that came after it.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from polybus.partition.entry import Entry
from polybus.partition.timetable import NOT_DUE

SLACK: Final = 1_024
"""Ended locks that a queue may hold beside as many as there are live ones: cleaning then costs little for each."""


class LockEnds:
    def __init__(self, locks: dict[int, Entry]) -> None:
        self._locks = locks
        self._queues: dict[int, deque[tuple[int, int]]] = {}

    def add(self, lock_ms: int, until_ms: int, number: int) -> None:
        queue = self._queues.get(lock_ms)
        if queue is None:
            queue = self._queues[lock_ms] = deque()
        cleared = 0
        while cleared < 2 and queue and self._live(queue[0][0], queue[0][1]) is None:
            queue.popleft()
            cleared += 1
        if len(queue) > 2 * len(self._locks) + SLACK:
            self._clean(queue)
        queue.append((until_ms, number))

    def _live(self, until_ms: int, number: int) -> Entry | None:
        entry = self._locks.get(number)
        return entry if entry is not None and entry.locked_until_ms == until_ms else None

    def _clean(self, queue: deque[tuple[int, int]]) -> None:
        live = [item for item in queue if self._live(item[0], item[1]) is not None]
        queue.clear()
        queue.extend(live)

    def first_ms(self) -> int:
        """When the first lock ends; NOT_DUE where there is none."""
        first = NOT_DUE
        for queue in self._queues.values():
            while queue and self._live(queue[0][0], queue[0][1]) is None:
                queue.popleft()
            if queue and queue[0][0] < first:
                first = queue[0][0]
        return first

    def ended(self, mono_ms: int) -> list[Entry]:
        """The entries whose locks have run out, each once, however often its lock was renewed to the same end."""
        found: dict[int, Entry] = {}
        for queue in self._queues.values():
            while queue and queue[0][0] <= mono_ms:
                until_ms, number = queue.popleft()
                entry = self._live(until_ms, number)
                if entry is not None:
                    found[number] = entry
        return list(found.values())
