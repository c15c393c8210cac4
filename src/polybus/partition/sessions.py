"""The sessions of one log: which have messages, who holds them, and what they hold next.

A session's messages are found by an index row for each (session, number). In memory are only the sessions that
are held, and the ids of sessions that wait for a receiver: those that got a message since the scan passed them,
and a page of what the scan finds next. So accepting costs the same with ten sessions and with a million.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polybus.partition import records
from polybus.partition.entry import Entry
from polybus.partition.timetable import NOT_DUE
from polybus.partition.unsynced import Unsynced
from polybus.partition.window import Window

if TYPE_CHECKING:
    from polybus.partition.log import Log
    from polybus.partition.settings import Bounds


class Session(Window):
    """A session that a receiver holds."""

    def __init__(
        self, session_id: str, prefix: bytes, holder: object, until_ms: int, until_wall_ms: int, bounds: Bounds
    ) -> None:
        super().__init__(bounds.session_entries, bounds.session_bytes)
        self.id = session_id
        self.prefix = prefix
        self.holder = holder
        self.until_ms = until_ms
        self.until_wall_ms = until_wall_ms
        self.outstanding: dict[int, Entry] = {}
        """Delivered and not settled, by number; what is on its way back stays here until that is synced."""
        self.returning: dict[int, Entry] = {}
        """Those of them that are on their way back: nothing behind them may be delivered before."""
        self.whole = False
        self.lost = False

    def wants_page(self) -> bool:
        return not self.lost and super().wants_page()

    def next(self, wall_ms: int) -> Entry | None:
        """The message that is to be delivered next; None where there is none, or one before it is on its way back."""
        entry = self.first(wall_ms)
        if entry is None or (self.returning and min(self.returning) < entry.sequence):
            return None
        return entry

    def awaits(self, entry: Entry) -> None:
        """A message is on its way back from an earlier holder: it is the next, and not there yet."""
        self.outstanding[entry.sequence] = self.returning[entry.sequence] = entry

    def arrive(self, entry: Entry) -> bool:
        """A message of the session is there, or there again; False where it stays in the store."""
        if self.outstanding.pop(entry.sequence, None) is not None:
            self.returning.pop(entry.sequence, None)
            self.give_back(entry)
            return True
        if self.admits(entry):
            self.append(entry)
            return True
        return False


class SessionStates(Unsynced):
    """States that were set and that a read may not show yet, by session id."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, bytes | None] = {}

    def forgotten(self, row: object) -> None:
        assert isinstance(row, str)
        del self.values[row]


class SessionBook:
    def __init__(self, log: Log) -> None:
        self.log = log
        self.held: dict[str, Session] = {}
        self.soonest_ms = NOT_DUE
        """No held session's lock ends before this."""
        self.states = SessionStates()
        self.waiting: dict[str, None] = {}
        """Ids of sessions known to have messages and no holder, the longest waiting first."""
        self.scanned_to = b""
        """The scan for sessions has passed everything up to this key; empty before the first scan."""
        self.scan_done = True
        self.scanning = False
        self.restarted = False
        """The scan begins anew: there were more waiting sessions than memory holds."""
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
        log = self.log
        entry.returning = False
        known = log.memory.get(entry.rank) is entry
        if not known and entry.rank in log.removed:  # somebody found its row before we were told that it is there
            log.bodies.detach(entry)
            return
        session = self.held.get(session_id)
        if session is not None:
            self.touched[session_id] = session
            if session.arrive(entry):
                log.memory[entry.rank] = entry
            elif not known:
                log.bodies.detach(entry)
            return
        if not known:
            log.bodies.detach(entry)
        else:
            self._forget(entry)
        self.note(session_id)

    def _forget(self, entry: Entry) -> None:
        """Memory need not hold the entry; where a read under way may show it as it was, memory knows better."""
        if not self.log.removed.has_reads():
            del self.log.memory[entry.rank]
            self.log.bodies.detach(entry)

    def _holding(self, entry: Entry) -> Session | None:
        session_id = entry.session_id()
        return None if session_id is None else self.held.get(session_id)

    def returns(self, entry: Entry) -> None:
        """A message that was delivered is on its way back."""
        session = self._holding(entry)
        if session is not None and entry.sequence in session.outstanding:
            session.returning[entry.sequence] = entry

    def settled(self, entry: Entry) -> None:
        """A message that was delivered is settled, or lies deferred again."""
        session = self._holding(entry)
        if session is not None:
            session.outstanding.pop(entry.sequence, None)
            if session.returning.pop(entry.sequence, None) is not None:
                self.touched[session.id] = session

    def note(self, session_id: str) -> None:
        """A session without a holder has messages."""
        if session_id in self.waiting or session_id in self.held:
            return
        ahead = records.session_prefix(self.log.session_prefix, session_id) > self.scanned_to
        if not self.scan_done and not self.scanning and ahead:
            return  # the scan will find it
        if len(self.waiting) < self.log.bounds.sessions:
            self.waiting[session_id] = None
        else:
            self.scan_done = False
            self.scanned_to = b""
            self.restarted = True

    def has_waiting(self) -> bool:
        return bool(self.waiting) or not self.scan_done

    def has_more(self) -> bool:
        """Whether there are sessions to look at, or to look for, at once."""
        return bool(self.waiting) or self.wants_scan()

    def wants_scan(self) -> bool:
        return not self.waiting and not self.scan_done and not self.scanning

    def found(self, session_id: str) -> None:
        """The scan came upon a session."""
        if session_id not in self.held:
            self.waiting[session_id] = None

    def hold(self, session_id: str, holder: object, until_ms: int, until_wall_ms: int) -> Session:
        log = self.log
        prefix = records.session_prefix(log.session_prefix, session_id)
        session = Session(session_id, prefix, holder, until_ms, until_wall_ms, log.bounds)
        self.held[session_id] = session
        self.soonest_ms = min(self.soonest_ms, until_ms)
        self.waiting.pop(session_id, None)
        return session

    def let_go(self, session: Session) -> None:
        """Ends a hold; what was in memory for it and is not outstanding leaves memory."""
        session.lost = True
        del self.held[session.id]
        self.touched.pop(session.id, None)
        entries = session.drain()
        for entry in entries:
            self._forget(entry)
        if entries or not session.whole:
            self.waiting[session.id] = None

    def renewed(self, session: Session) -> None:
        """A lock's end has moved; with a shorter duration than before it may have moved closer."""
        self.soonest_ms = min(self.soonest_ms, session.until_ms)

    def expired(self, mono_ms: int) -> list[Session]:
        """The held sessions whose locks have run out."""
        if mono_ms < self.soonest_ms:
            return []
        found = [session for session in self.held.values() if session.until_ms <= mono_ms]
        self.soonest_ms = min([s.until_ms for s in self.held.values() if s.until_ms > mono_ms], default=NOT_DUE)
        return found
