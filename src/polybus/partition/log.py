"""One log of a partition: the messages of a queue, of a subscription, or of a dead-letter queue.

The store holds the whole log; memory holds a window on its head, in order of rank, plus whatever is locked. Rank
is the sequence number, except in dead-letter logs, where numbers arrive out of order and rank is the position.
Rows above `paged_to` are only in the store until a page brings them in. Messages of a log with sessions are
reached through `sessions`, never through the window. No time and no reads live here: the broker passes them.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, Protocol

from polybus.limits import WINDOW_BYTES, WINDOW_ENTRIES
from polybus.partition import records
from polybus.partition.entry import Entry
from polybus.partition.removing import Removing
from polybus.partition.settings import LogSettings

if TYPE_CHECKING:
    from polybus.partition.sessions import SessionBook

MAIN: Final = 0
DEAD_LETTER: Final = 1
TRANSFER_DEAD_LETTER: Final = 2
KINDS: Final = 4
"""A log's id is its subscription's number times this, plus its kind."""
NO_FLOOR: Final = 1 << 62
"""No cursor: nothing is kept after it is settled."""


class Watcher(Protocol):
    """Whoever wants to know that a log has something to give: the fan-in of receives."""

    def available(self) -> None: ...


class Log:
    def __init__(self, prefix: bytes, log_id: int, settings: LogSettings) -> None:
        self.id = log_id
        self.kind = log_id % KINDS
        self.settings = settings
        self.by_position = self.kind != MAIN
        self.active_prefix = records.log_prefix(prefix, records.ACTIVE, log_id)
        self.deferred_prefix = records.log_prefix(prefix, records.DEFERRED, log_id)
        self.numbers_prefix = records.log_prefix(prefix, records.NUMBERS, log_id)
        self.settled_prefix = records.log_prefix(prefix, records.SETTLED, log_id)
        self.session_prefix = records.log_prefix(prefix, records.SESSION_MESSAGES, log_id)
        self.state_prefix = records.log_prefix(prefix, records.SESSION_STATE, log_id)
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
        self.stable_end = 0
        """The last position that is synced; only this one is not written: it follows from the commit."""
        # The window.
        self.ready: deque[Entry] = deque()
        self.returned: list[tuple[int, Entry]] = []
        self.order: deque[Entry] = deque()
        self.entering: deque[int] = deque()
        """Ranks that are written but not synced yet."""
        self.memory: dict[int, Entry] = {}
        self.deferred_memory: dict[int, Entry] = {}
        self.window_bytes = 0
        self.whole = True
        self.paged_to = 0
        self.skipped_to = 0
        self.reading = False
        self.removed = Removing()
        """By rank."""
        self.deferred_removed = Removing()
        """By sequence number."""
        # Locks, oldest first.
        self.locked = 0
        self.lock_queue: deque[tuple[int, int]] = deque()
        self.sessions: SessionBook | None = None
        self.watcher: Watcher | None = None
        self.floor = NO_FLOOR
        """The lowest cursor's position: what is settled above it is kept. NO_FLOOR where there is no cursor."""
        self.dirty = False

    # Ranks

    def rank_of(self, sequence: int, position: int) -> int:
        return position if self.by_position else sequence

    def low(self) -> int:
        """No active message has a smaller rank than this: where a scan may begin."""
        if self.sessions is not None:
            return 0
        order = self.order
        while order and order[0].gone:
            order.popleft()
        if order:
            return order[0].rank
        if self.whole and self.entering:
            return self.entering[0]
        if self.whole:
            return (self.positions if self.by_position else self.counter) + 1
        return self.paged_to + 1

    # The window

    def has_ready(self) -> bool:
        return bool(self.ready or self.returned)

    def remember(self, entry: Entry) -> None:
        """Takes an entry into the window's bookkeeping; entries come in order of rank."""
        self.memory[entry.rank] = entry
        self.order.append(entry)
        self.window_bytes += entry.size
        if entry.rank > self.paged_to:
            self.paged_to = entry.rank

    def forget(self, entry: Entry) -> None:
        """An entry leaves the active messages."""
        entry.gone = True
        if self.memory.pop(entry.rank, None) is not None:
            self.window_bytes -= entry.size
        order = self.order
        while order and order[0].gone:
            order.popleft()

    def arrive(self, entry: Entry) -> bool:
        """A committed entry becomes available; False where it stays in the store until a page brings it."""
        self.entering.popleft()
        if entry.rank <= self.paged_to:
            return False
        if not self.whole or self.window_bytes >= WINDOW_BYTES or len(self.memory) >= WINDOW_ENTRIES:
            self.whole = False
            self.skipped_to = entry.rank
            return False
        self.remember(entry)
        self.ready.append(entry)
        return True

    def give_back(self, entry: Entry) -> None:
        """A lock ended without settlement: the message returns to its old place."""
        heappush(self.returned, (entry.rank, entry))

    def pop_ready(self, wall_ms: int) -> Entry | None:
        """The next message in order, or None. Expired ones are passed over: the sweep removes them."""
        while True:
            ready, returned = self.ready, self.returned
            if returned and (not ready or returned[0][0] < ready[0].rank):
                entry = heappop(returned)[1]
            elif ready:
                entry = ready.popleft()
            else:
                return None
            if entry.gone or entry.lock:
                continue
            if entry.expires_ms and entry.expires_ms <= wall_ms:
                continue
            return entry

    def wants_page(self) -> bool:
        return (
            not self.whole
            and not self.reading
            and len(self.ready) < WINDOW_ENTRIES // 4
            and self.window_bytes < WINDOW_BYTES
        )

    # Counters

    def numbers(self) -> list[int]:
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
            self.low(),
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
            low,
        ) = numbers
        self.stable_end = self.positions
        self.paged_to = low - 1
        self.whole = self.active == 0
        if self.whole:
            self.paged_to = max(self.positions if self.by_position else self.counter, low - 1)
