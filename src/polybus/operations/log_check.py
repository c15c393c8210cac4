"""One log of a partition: its messages in every table, their order, their index rows, and its counters.

The active and the settled table are walked side by side, so memory holds a page of them at a time; of the deferred
messages it holds two numbers each.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING

from polybus.message.overlay import overlay_from_bytes
from polybus.numbering import before_first, counter_of, partition_of
from polybus.operations.message_tables import BROKEN, PAST_ALL, SettledIndex, read_message, session_of
from polybus.operations.order import LogOrder
from polybus.partition import events, records
from polybus.partition.kinds import KINDS, MAIN
from polybus.partition.records import SettledMark, Stored
from polybus.rows import Row

if TYPE_CHECKING:
    from polybus.operations.partition_check import PartitionCheck


class LogCheck:
    def __init__(self, partition: PartitionCheck, log_id: int, sessions: bool) -> None:
        self.id = log_id
        self.kind = log_id % KINDS
        self.active = 0
        self.active_bytes = 0
        self.deferred = 0
        self.deferred_bytes = 0
        self.retained = 0
        self.retained_bytes = 0
        self.live_bytes = 0
        """Bytes that count against the entity's size, without those in body records."""
        self.incomplete = False
        """A record could not be read: the counters cannot be compared."""
        self._partition = partition
        self._reader = partition.reader
        self._sessions = sessions and self.kind == MAIN
        self._by_position = self.kind != MAIN
        self._last_number = partition.last_number(log_id)
        self._counters = partition.counters_of(log_id)
        self._first_live = PAST_ALL
        self._order = LogOrder(before_first(partition.index), self._by_position)

    def run(self) -> None:
        self._walk_deferred()
        self._walk_active()
        self._look_for_strays()
        self._walk_states()
        self._walk_events()
        self._compare_counters()

    def count_only(self) -> None:
        """For the log of a subscription that is being removed: its indexes and counters are half gone already."""
        self._walk_deferred(whole=False)
        self._walk_active(whole=False)
        self._walk_states()

    def _prefix(self, table: bytes) -> bytes:
        return records.log_prefix(self._partition.prefix, table, self.id)

    def _rows(self, table: bytes) -> Iterator[Row]:
        return self._partition.table(self._prefix(table))

    def _report(self, key: bytes, problem: str) -> None:
        self._partition.report(key, problem)

    # Messages

    def _walk_deferred(self, whole: bool = True) -> None:
        ranks, positions = array("Q"), array("Q")
        for key, value in self._rows(records.DEFERRED):
            stored = self._stored(key, value)
            if stored is None:
                continue
            self.deferred += 1
            self.deferred_bytes += stored.size
            self._account(key, stored, live=True)
            if not whole:
                continue
            if stored.sequence != records.number_of(key):
                self._report(key, f"the message in it has the number {stored.sequence}")
            self._check_message(key, stored, deferred=True)
            ranks.append(stored.sequence)
            positions.append(stored.position)
        self._order.expect(ranks, positions)

    def _walk_active(self, whole: bool = True) -> None:
        marks = SettledIndex(self._rows(records.SETTLED), self._report if whole else _say_nothing)
        for key, value in self._rows(records.ACTIVE):
            rank = records.number_of(key)
            mark = marks.at(rank)
            stored = self._stored(key, value)
            if stored is None:
                continue
            self._count(rank, stored, mark)
            self._account(key, stored, live=mark is None)
            if whole:
                self._check_active(key, rank, stored, mark)
        marks.at(PAST_ALL)
        self.incomplete |= marks.broken
        for problem in self._order.finish():
            self._report(self._prefix(records.DEFERRED), problem)

    def _count(self, rank: int, stored: Stored, mark: SettledMark | None) -> None:
        if mark is None:
            self.active += 1
            self.active_bytes += stored.size
            self._first_live = min(self._first_live, rank)
        else:
            self.retained += 1
            self.retained_bytes += stored.size

    def _check_active(self, key: bytes, rank: int, stored: Stored, mark: SettledMark | None) -> None:
        if rank != (stored.position if self._by_position else stored.sequence):
            place = f"the number {stored.sequence} and the position {stored.position}"
            self._report(key, f"the message in it has {place}")
            return
        for problem in self._order.step(rank, stored.position, settled=mark is not None):
            self._report(key, problem)
        if mark is None:
            self._check_message(key, stored, deferred=False)
        elif (mark.position, mark.size, mark.body) != (stored.position, stored.size, stored.body):
            self._report(key, "its mark in the settled index says something else about it")

    def _check_message(self, key: bytes, stored: Stored, deferred: bool) -> None:
        if partition_of(stored.sequence) != self._partition.index:
            self._report(key, f"its number {stored.sequence} belongs to partition {partition_of(stored.sequence)}")
        elif not 0 < counter_of(stored.sequence) <= self._last_number:
            self._report(key, f"its number is above the counter, {self._last_number}: it would be given again")
        if not 0 < stored.position <= self._counters.positions:
            self._report(key, f"its position {stored.position} is above the counter, {self._counters.positions}")
        try:
            wanted = list(self.index_rows(stored, deferred))
        except BROKEN:
            return  # its body, which is reported already, would have said which session it belongs to
        for prefix, index_key, value in wanted:
            self._partition.lookups.expect(prefix, index_key, value, key)

    def _stored(self, key: bytes, value: bytes) -> Stored | None:
        try:
            return read_message(value)
        except BROKEN as error:
            self._report(key, str(error))
            self.incomplete = True
            return None

    def _account(self, key: bytes, stored: Stored, live: bool) -> None:
        if stored.body:
            self._partition.bodies.refer(key, stored.body, stored.size, live)
            if stored.raw:
                self._report(key, "it has bytes of its own and refers to a body as well")
            return
        if live:
            self.live_bytes += stored.size
        if len(stored.raw) != stored.size:
            self._report(key, f"says it has {stored.size} bytes, {len(stored.raw)} are there")

    # Indexes

    def index_rows(self, stored: Stored, deferred: bool) -> Iterator[tuple[bytes, bytes, bytes]]:
        """(index, key, value) of every index row that a live message must have."""
        partition = self._partition
        if stored.expires_ms:
            key = records.expiry_key(partition.prefix, stored.expires_ms, self.id, stored.sequence)
            yield partition.prefix + records.EXPIRY, key, b""
        if deferred:
            retry_ms = overlay_from_bytes(stored.overlay).retry_ms if stored.overlay else 0
            if retry_ms:
                key = records.expiry_key(partition.prefix, retry_ms, self.id, stored.sequence)
                yield partition.prefix + records.EXPIRY, key, b""
            return
        if self._by_position:
            prefix = self._prefix(records.NUMBERS)
            yield prefix, records.number_key(prefix, stored.sequence), records.sealed_number(stored.position)
        elif self._sessions:
            prefix = self._prefix(records.SESSION_MESSAGES)
            session = session_of(stored, partition.bodies)
            if session is None:
                key = records.number_key(self._prefix(records.ACTIVE), stored.sequence)
                self._report(key, "a message without a session id where sessions are required")
                return
            yield prefix, records.number_key(records.session_prefix(prefix, session), stored.sequence), b""

    def owns(self, key: bytes, sequence: int) -> bool:
        """Whether a live message with this number asks for this index row, or might, being unreadable."""
        rank = sequence
        if self._by_position:
            row = self._reader.get([records.number_key(self._prefix(records.NUMBERS), sequence)])[0]
            rank = 0 if row is None else int.from_bytes(row[-8:], "big")
        active, deferred, settled = self._reader.get(
            [
                records.number_key(self._prefix(records.ACTIVE), rank),
                records.number_key(self._prefix(records.DEFERRED), sequence),
                records.number_key(self._prefix(records.SETTLED), rank),
            ]
        )
        return self._asks_for(key, deferred, True) or (settled is None and self._asks_for(key, active, False))

    def _asks_for(self, key: bytes, value: bytes | None, deferred: bool) -> bool:
        if value is None:
            return False
        try:
            return any(row[1] == key for row in self.index_rows(read_message(value), deferred))
        except BROKEN:
            return True

    def _look_for_strays(self) -> None:
        for table in (records.NUMBERS, records.SESSION_MESSAGES):
            self._partition.lookups.look_for_strays(
                self._prefix(table), lambda key: self.owns(key, records.number_of(key))
            )

    # Other tables and counters

    def _walk_states(self) -> None:
        for key, value in self._rows(records.SESSION_STATE):
            self.live_bytes += len(value)
            try:
                if len(records.unsealed(value, "a session's state")) < 8:
                    self._report(key, "a session's state without its time")
            except BROKEN as error:
                self._report(key, str(error))

    def _walk_events(self) -> None:
        for row in self._rows(records.EVENTS):
            try:
                event = events.read(row)
            except BROKEN as error:
                self._report(row[0], str(error))
                continue
            if event.position > self._counters.events:
                self._report(row[0], f"its number is above the counter, {self._counters.events}")

    def _compare_counters(self) -> None:
        key = self._prefix(records.LOG_META)
        said = self._counters
        if said.missing:
            if self.active + self.deferred + self.retained:
                self._report(key, "the log's counters are missing")
            return
        if self.incomplete:
            return
        for what, counter, there in (
            ("active messages", said.active, self.active),
            ("active bytes", said.active_bytes, self.active_bytes),
            ("deferred messages", said.deferred, self.deferred),
            ("deferred bytes", said.deferred_bytes, self.deferred_bytes),
            ("retained messages", said.retained, self.retained),
            ("retained bytes", said.retained_bytes, self.retained_bytes),
        ):
            if counter != there:
                self._report(key, f"the counter says {counter} {what}, there are {there}")
        if said.low > self._first_live:
            self._report(key, f"scans begin at {said.low}, but {self._first_live} is active")


def _say_nothing(key: bytes, problem: str) -> None:
    """Marks outlive their messages while a subscription is being removed."""
