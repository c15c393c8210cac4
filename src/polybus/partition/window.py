"""The entries in memory that receivers can have next, in order of rank: the head of a log, or of one session.

Rows above `paged_to` are only in the store until a page brings them in. What arrives joins the window as long as
the window holds everything that there is (`whole`) and has room; else it is skipped, and a page finds it later.
Entries that were given out and come back keep their old place.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from polybus.partition.entry import Entry


class Window:
    def __init__(self, most_entries: int, most_bytes: int) -> None:
        self._most_entries = most_entries
        self._most_bytes = most_bytes
        self.ready: deque[Entry] = deque()
        self.returned: list[tuple[int, Entry]] = []
        self.ready_bytes = 0
        """Of what is in `ready` and `returned`; what is locked has left the window."""
        self.whole = True
        self.paged_to = 0
        self.skipped_to = 0
        self.reading = False

    def has_ready(self) -> bool:
        return bool(self.ready or self.returned)

    def admits(self, entry: Entry) -> bool:
        """Whether a committed entry joins the window; where it does not, a page brings it or has brought it."""
        if entry.rank <= self.paged_to:
            return False
        if not self.whole or self.ready_bytes >= self._most_bytes or len(self.ready) >= self._most_entries:
            self.skip(entry.rank)
            return False
        return True

    def skip(self, rank: int) -> None:
        """What was committed up to this rank is only in the store: a page brings it, if none has already."""
        if rank > self.paged_to:
            self.whole = False
            self.skipped_to = max(self.skipped_to, rank)

    def append(self, entry: Entry) -> None:
        """Takes in an entry; they come in order of rank."""
        self.ready.append(entry)
        self.ready_bytes += entry.size
        self.paged_to = entry.rank

    def give_back(self, entry: Entry) -> None:
        """A lock ended without settlement: the message returns to its old place."""
        heappush(self.returned, (entry.rank, entry))
        self.ready_bytes += entry.size

    def first(self, wall_ms: int) -> Entry | None:
        """The next message in order, or None. Expired ones are passed over: the sweep removes them."""
        ready, returned = self.ready, self.returned
        while ready or returned:
            back = bool(returned) and (not ready or returned[0][0] < ready[0].rank)
            entry = returned[0][1] if back else ready[0]
            if not (entry.gone or entry.lock or (entry.expires_ms and entry.expires_ms <= wall_ms)):
                return entry
            self._drop(back)
        return None

    def pop_ready(self, wall_ms: int) -> Entry | None:
        """Takes the next message in order out of the window."""
        if not self.returned:
            return self._pop_first(wall_ms)
        entry = self.first(wall_ms)
        if entry is not None:
            returned = self.returned
            self._drop(bool(returned) and returned[0][1] is entry)
        return entry

    def _pop_first(self, wall_ms: int) -> Entry | None:
        """The same where nothing was given back, as is nearly always so."""
        ready = self.ready
        while ready:
            entry = ready.popleft()
            self.ready_bytes -= entry.size
            if not (entry.gone or entry.lock or (entry.expires_ms and entry.expires_ms <= wall_ms)):
                return entry
        return None

    def _drop(self, back: bool) -> None:
        entry = heappop(self.returned)[1] if back else self.ready.popleft()
        self.ready_bytes -= entry.size

    def drain(self) -> list[Entry]:
        """Empties the window; gives what was in it and is still there."""
        entries = [entry for entry in self.ready if not entry.gone]
        entries += [entry for _, entry in self.returned if not entry.gone]
        self.ready.clear()
        self.returned.clear()
        self.ready_bytes = 0
        return entries

    def wants_page(self) -> bool:
        return (
            not self.whole
            and not self.reading
            and len(self.ready) < max(self._most_entries // 4, 1)
            and self.ready_bytes < self._most_bytes
        )

    def page_ends(self, skipped_to: int, last_rank: int, at_end: bool) -> None:
        """A page was taken in. `skipped_to` is what it was when the read began: the read saw all up to there."""
        if last_rank > self.paged_to:
            self.paged_to = last_rank
        if at_end:
            if skipped_to > self.paged_to:
                self.paged_to = skipped_to
            self.whole = self.skipped_to <= self.paged_to

    def bytes_left(self) -> int:
        """How much a page may add; at least something, so that the largest message gets through."""
        return max(self._most_bytes - self.ready_bytes, 1)
