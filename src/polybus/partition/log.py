"""One log of a partition: the messages of a queue, of a subscription, or of a dead-letter queue.

The store holds the whole log; memory holds a window on its head, in order of rank, plus whatever is locked. Rank
is the sequence number, except in dead-letter logs, where numbers arrive out of order and rank is the position.
Messages of a log with sessions are reached through `sessions`, never through the window. No time and no reads live
here: the broker passes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from polybus.partition import records
from polybus.partition.bodies import Bodies
from polybus.partition.deferrals import Deferrals
from polybus.partition.entry import Entry
from polybus.partition.kinds import KINDS, MAIN, NO_FLOOR
from polybus.partition.settings import Bounds, LogSettings
from polybus.partition.unsynced import Unsynced
from polybus.partition.window import Window

if TYPE_CHECKING:
    from polybus.partition.sessions import SessionBook


class Watcher(Protocol):
    """Whoever wants to know that a log has something to give: the fan-in of receives."""

    def available(self) -> None: ...


class Log(Window):
    def __init__(self, prefix: bytes, log_id: int, settings: LogSettings, bounds: Bounds, bodies: Bodies) -> None:
        super().__init__(bounds.window_entries, bounds.window_bytes)
        self.id = log_id
        self.kind = log_id % KINDS
        self.settings = settings
        self.bounds = bounds
        self.bodies = bodies
        self.by_position = self.kind != MAIN
        self.active_prefix = records.log_prefix(prefix, records.ACTIVE, log_id)
        self.deferred_prefix = records.log_prefix(prefix, records.DEFERRED, log_id)
        self.numbers_prefix = records.log_prefix(prefix, records.NUMBERS, log_id)
        self.settled_prefix = records.log_prefix(prefix, records.SETTLED, log_id)
        self.session_prefix = records.log_prefix(prefix, records.SESSION_MESSAGES, log_id)
        self.state_prefix = records.log_prefix(prefix, records.SESSION_STATE, log_id)
        self.events_prefix = records.log_prefix(prefix, records.EVENTS, log_id)
        self.meta_key = records.log_prefix(prefix, records.LOG_META, log_id)
        # Durable counters, written with every batch that changes them.
        self.counter = 0
        self.positions = 0
        self.active = 0
        self.active_bytes = 0
        self.deferred = 0
        self.deferred_bytes = 0
        self.retained = 0
        self.retained_bytes = 0
        self.events = 0
        # What is synced; it follows from the commits and is not written.
        self.stable_end = 0
        """The last position that is synced."""
        self.stable_events = 0
        """The last event that is synced."""
        self.stable_low = 0
        """No active message in the store has a smaller rank: where a scan of what is there may begin."""
        self.memory: dict[int, Entry] = {}
        """By rank: what the window holds and what was taken from it and is locked, the lowest rank first."""
        self.deferrals = Deferrals(bodies)
        self.removed = Unsynced()
        """Ranks of active messages that were removed."""
        self.trimmed = Unsynced()
        """Ranks of settled messages that were kept for a cursor and are no longer."""
        self.locked = 0
        self.sessions: SessionBook | None = None
        self.watcher: Watcher | None = None
        self.floor = NO_FLOOR
        """The lowest cursor's position: what is settled above it is kept. NO_FLOOR where there is no cursor."""
        self.trimmed_to = 0
        """No mark in the settled index has a smaller rank, nor this one."""
        self.trimming = False
        self.dirty = False
        self.woken = False
        """Something has arrived, and its watcher hears of it as soon as everything has."""

    def rank_of(self, sequence: int, position: int) -> int:
        return position if self.by_position else sequence

    def low(self) -> int:
        """No active message has a smaller rank than this, as soon as everything is synced."""
        if self.sessions is not None:
            return 0
        for rank in self.memory:
            return rank
        return self.paged_to + 1

    def remember(self, entry: Entry) -> None:
        """Takes an entry into the window; entries come in order of rank."""
        self.memory[entry.rank] = entry
        self.append(entry)

    def forget(self, entry: Entry) -> None:
        """An entry leaves the active messages for good."""
        entry.gone = True
        self.memory.pop(entry.rank, None)

    def arrive(self, entry: Entry) -> None:
        """A committed entry becomes available, at once or when a page brings it."""
        if self.memory.get(entry.rank) is entry:
            self.give_back(entry)
        elif entry.rank in self.removed:  # somebody found its row before we were told that it is there
            self.bodies.detach(entry)
        elif self.admits(entry):
            self.remember(entry)
        else:
            self.bodies.detach(entry)

    def numbers(self, low: int) -> list[int]:
        return [
            self.counter,
            self.positions,
            self.active,
            self.active_bytes,
            self.deferred,
            self.deferred_bytes,
            self.retained,
            self.retained_bytes,
            self.events,
            low,
        ]

    def restore(self, numbers: list[int]) -> None:
        (
            self.counter,
            self.positions,
            self.active,
            self.active_bytes,
            self.deferred,
            self.deferred_bytes,
            self.retained,
            self.retained_bytes,
            self.events,
            self.stable_low,
        ) = numbers
        self.stable_end = self.positions
        self.stable_events = self.events
        self.paged_to = max(self.stable_low - 1, 0)
        self.whole = self.active == 0
