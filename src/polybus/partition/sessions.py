"""The sessions of one log: which have messages, who holds them, and what they hold next.

A session's messages are found by an index row for each (session, number). In memory are only the sessions that
are held, and the ids of sessions that wait for a receiver: those that got a message since the scan passed them,
and a page of what the scan finds next. So accepting costs the same with ten sessions and with a million.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from polybus.limits import SESSIONS_IN_MEMORY, WINDOW_ENTRIES
from polybus.partition import records
from polybus.partition.bodies import Bodies
from polybus.partition.entry import Entry

if TYPE_CHECKING:
    from polybus.partition.log import Log


class Session:
    """A session that a receiver holds."""

    def __init__(
        self, session_id: str, prefix: bytes, holder: object, until_ms: int, until_wall_ms: int
    ) -> None:
        self.id = session_id
        self.prefix = prefix
        self.holder = holder
        self.until_ms = until_ms
        self.until_wall_ms = until_wall_ms
        self.ready: deque[Entry] = deque()
        self.returned: list[tuple[int, Entry]] = []
        self.outstanding: dict[int, Entry] = {}
        self.whole = False
        self.paged_to = 0
        self.skipped_to = 0
        self.reading = False
        self.lost = False

    def has_ready(self) -> bool:
        return bool(self.ready or self.returned)

    def wants_page(self) -> bool:
        return not self.whole and not self.reading and len(self.ready) < WINDOW_ENTRIES // 4

    def arrive(self, entry: Entry) -> None:
        if entry.sequence in self.outstanding:
            del self.outstanding[entry.sequence]
            heappush(self.returned, (entry.sequence, entry))
        elif entry.sequence <= self.paged_to:
            return
        elif not self.whole or len(self.ready) >= WINDOW_ENTRIES:
            self.whole = False
            self.skipped_to = entry.sequence
        else:
            self.ready.append(entry)
            self.paged_to = entry.sequence
            entry.log.memory[entry.rank] = entry

    def pop_ready(self, wall_ms: int) -> Entry | None:
        while True:
            ready, returned = self.ready, self.returned
            if returned and (not ready or returned[0][0] < ready[0].sequence):
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


class SessionBook:
    def __init__(self, log: Log, bodies: Bodies) -> None:
        self.log = log
        self._bodies = bodies
        self.held: dict[str, Session] = {}
        self.waiting: dict[str, None] = {}
        """Ids of sessions known to have messages and no holder, the longest waiting first."""
        self.scanned_to = b""
        """The scan for sessions has passed everything up to this key; empty before the first scan."""
        self.scan_done = True
        self.scanning = False
        self.touched: dict[str, Session] = {}
        """Held sessions that got messages since somebody last looked."""

    def restore(self) -> None:
        """The log has messages from before: a scan must find their sessions."""
        self.scan_done = self.log.active == 0
        self.scanned_to = b""

    def arrive(self, entry: Entry) -> None:
        """A message of a session is committed, or returned after its lock ended."""
        session_id = entry.session_id()
        assert session_id is not None, "a log with sessions has only messages with a session id"
        session = self.held.get(session_id)
        if session is not None:
            session.arrive(entry)
            self.touched[session_id] = session
        else:
            if self.log.memory.pop(entry.rank, None) is not None and entry.body:
                self._bodies.detach(entry)
            self.note(session_id)

    def note(self, session_id: str) -> None:
        """A session without a holder has messages."""
        if session_id in self.waiting or session_id in self.held:
            return
        behind = records.session_prefix(self.log.session_prefix, session_id) <= self.scanned_to
        if self.scan_done or behind:
            if len(self.waiting) >= SESSIONS_IN_MEMORY:
                self.scan_done = False
                self.scanned_to = b""
            else:
                self.waiting[session_id] = None

    def has_waiting(self) -> bool:
        return bool(self.waiting) or not self.scan_done

    def wants_scan(self) -> bool:
        return not self.waiting and not self.scan_done and not self.scanning

    def found(self, session_id: str) -> None:
        """The scan came upon a session."""
        if session_id not in self.held:
            self.waiting[session_id] = None

    def hold(self, session_id: str, holder: object, until_ms: int, until_wall_ms: int) -> Session:
        prefix = records.session_prefix(self.log.session_prefix, session_id)
        session = Session(session_id, prefix, holder, until_ms, until_wall_ms)
        self.held[session_id] = session
        self.waiting.pop(session_id, None)
        return session

    def let_go(self, session: Session) -> list[Entry]:
        """Ends a hold; gives the entries that were in memory for it."""
        session.lost = True
        del self.held[session.id]
        entries = [entry for entry in session.ready if not entry.gone]
        entries += [entry for _, entry in session.returned if not entry.gone]
        for entry in entries:
            self.log.memory.pop(entry.rank, None)
        if entries or not session.whole:
            self.waiting[session.id] = None
        return entries

    def expired(self, mono_ms: int) -> list[Session]:
        return [session for session in self.held.values() if session.until_ms <= mono_ms]
