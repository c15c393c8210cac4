"""The message broker of one partition: its state, and how that state is written.

A deterministic machine: verbs (in the modules beside this one) are given the time, change this state and write
rows to the sink's open output; nothing here reads a clock, a disk or a source of randomness. What a verb must
know and memory does not hold it asks for by yielding a read; whoever drives it sends the rows back in.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, Protocol, TypeVar
from uuid import UUID

from polybus.clock import Now
from polybus.errors import EntityNotFound, MessageLockLost, SessionLockLost
from polybus.message.overlay import Overlay
from polybus.numbering import before_first
from polybus.partition import records
from polybus.partition.bodies import Bodies
from polybus.partition.duplicates import DuplicateHistory
from polybus.partition.entry import Entry
from polybus.partition.kinds import KINDS, MAIN
from polybus.partition.lock_ends import LockEnds
from polybus.partition.log import Log
from polybus.partition.output import Output, Sink
from polybus.partition.sessions import SessionBook
from polybus.partition.settings import EntitySettings, LogSettings
from polybus.partition.stages import Stages
from polybus.partition.timetable import NOT_DUE, Timetable
from polybus.partition.tokens import token_head
from polybus.partition.unsynced import Rescheduled, Unsynced
from polybus.rows import Get, Read, Row, Scan

__all__ = ["NOT_DUE", "Answer", "Broker", "Router", "Steps"]

Answer = list[object]
Result = TypeVar("Result")
Steps = Generator[Read, Answer, Result]
"""A verb that may need rows: it yields reads, is sent their answers, and returns its result."""

_OPEN_ROWS: Final = 1_000


class Router(Protocol):
    """Chooses the partition that a message goes to at another entity; the namespace knows them all."""

    def route(self, destination: str, entry: Entry) -> tuple[int, int]:
        """(entity id, partition index); raises BusError where the destination cannot take it for good."""

    def outbox_grew(self, broker: Broker) -> None:
        """Messages wait to be moved on."""


class Broker:
    def __init__(
        self,
        entity_id: int,
        index: int,
        settings: EntitySettings,
        sink: Sink,
        router: Router,
        incarnation: int,
    ) -> None:
        self.entity_id = entity_id
        self.index = index
        self.settings = settings
        self.bounds = settings.bounds
        self.sink = sink
        self.router = router
        self.incarnation = incarnation
        self.token_head = token_head(entity_id, index, incarnation)
        """What the tokens of all its locks begin with."""
        self.prefix = records.partition_prefix(entity_id, index)
        self.meta_key = self.prefix + records.META
        self.number_base = before_first(index)
        self.logs: dict[int, Log] = {}
        self.session_logs: dict[int, Log] = {}
        """Those of the logs that have sessions."""
        self.bodies = Bodies(self.prefix)
        self.duplicates = DuplicateHistory(self.prefix, self.bounds.recent_ids)
        self.stages = Stages()
        self.locks: dict[int, Entry] = {}
        self.lock_ends = LockEnds()
        self.next_lock = 1
        self.ids = 0
        # Durable counters.
        self.scheduled = 0
        self.scheduled_bytes = 0
        self.size = 0
        """Bytes of everything stored, against the entity's quota."""
        self.wall_ms = 0
        """The latest wall time that was used; stamps never go behind it."""
        self.transfers = 0
        """Messages in the outbox."""
        self.transfer_counter = 0
        """The last number given to a message in the outbox, whatever its destination."""
        # When something must happen by itself.
        self.schedule = Timetable()
        self.expiry = Timetable()
        self.highest_subscription = 0
        """The highest number of a subscription that the store held rows of when it was opened."""
        self.scheduled_removed = Unsynced()
        self.rescheduled = Rescheduled()
        self.inbox: dict[tuple[int, int], int] = {}
        """Source to the last number taken over from it."""
        self.outbox: dict[tuple[int, int], int] = {}
        """Destination to the last number that has left the outbox since the broker was opened."""
        self.written = False
        self.dirty_logs: list[Log] = []
        self.log(MAIN)

    # Logs

    def log(self, log_id: int) -> Log:
        """The log with this id, made when first named."""
        log = self.logs.get(log_id)
        if log is None:
            settings = self._settings_of(log_id // KINDS)
            log = Log(self.prefix, log_id, settings, self.bounds, self.bodies)
            if log.kind == MAIN and settings.requires_session:
                log.sessions = SessionBook(log)
                self.session_logs[log_id] = log
            self.logs[log_id] = log
        return log

    def _settings_of(self, number: int) -> LogSettings:
        if number == 0:
            return self.settings.own
        found = self.settings.subscriptions.get(number)
        if found is None:
            raise EntityNotFound(f"A subscription of '{self.settings.name}' could not be found.")
        return found

    def next_sequence(self, log: Log) -> int:
        """A number that was never given before and never will be again, also after a crash."""
        if not log.dirty:
            self.out(log)
        log.counter += 1
        return self.number_base | log.counter

    def wall(self, now: Now) -> int:
        """Wall time that never goes back, also over restarts."""
        if now.wall_ms > self.wall_ms:
            self.wall_ms = now.wall_ms
        return self.wall_ms

    # Time

    @property
    def due_ms(self) -> int:
        """When the next scheduled message is due."""
        return self.schedule.due_ms

    @property
    def expiry_due_ms(self) -> int:
        return self.expiry.due_ms

    @property
    def activating(self) -> bool:
        return self.schedule.walking

    @property
    def sweeping(self) -> bool:
        return self.expiry.walking

    # Writing

    def out(self, log: Log | None = None) -> Output:
        """The open output, with this broker (and the log) noted as changed."""
        batch = self.sink.batch
        if not self.written:
            self.written = True
            batch.brokers.append(self)
            self.sink.touch()
        if log is not None and not log.dirty:
            log.dirty = True
            self.dirty_logs.append(log)
        return batch

    def seal(self, batch: Output) -> None:
        """Writes the counters beside the rows they count."""
        main = self.logs[MAIN]
        main_low = main.low()
        numbers = self._numbers(self.schedule.seal(), self.expiry.seal())
        batch.put(self.meta_key, records.broker_record(numbers, main.numbers(main_low)))
        for log in self.dirty_logs:
            log.dirty = False
            low = main_low
            if log is not main:
                low = log.low()
                batch.put(log.meta_key, records.log_record(log.numbers(low)))
            batch.ends.append((log, log.positions, log.events, low))
        self.dirty_logs.clear()
        self.duplicates.evict()
        self.written = False

    def _numbers(self, due_low: int, expiry_low: int) -> list[int]:
        return [
            self.bodies.counter,
            due_low,
            expiry_low,
            self.scheduled,
            self.scheduled_bytes,
            self.size,
            self.wall_ms,
            self.transfers,
            self.transfer_counter,
        ]

    def synced(self) -> None:
        """The oldest output that this broker sealed is on disk."""
        self.schedule.synced()
        self.expiry.synced()

    def record(self, entry: Entry) -> bytes:
        """The stored form of an entry as it is now."""
        raw = b"" if entry.body else entry.loaded().raw
        overlay = b""
        if entry.overlay is not None:
            overlay = entry.overlay.to_bytes(entry.retry_ms)
        elif entry.retry_ms:
            overlay = Overlay().to_bytes(entry.retry_ms)
        return records.message_record(
            entry.sequence,
            entry.position,
            entry.enqueued_ms,
            entry.expires_ms,
            entry.delivery_count,
            entry.original,
            entry.body,
            entry.size,
            overlay,
            raw,
        )

    def key_of(self, entry: Entry) -> bytes:
        if entry.deferred:
            return records.number_key(entry.log.deferred_prefix, entry.sequence)
        return records.number_key(entry.log.active_prefix, entry.rank)

    # Opening

    def open(self) -> Steps[None]:
        """Reads the counters and the first due times; the backlog stays where it is."""
        answer = yield Get([self.meta_key])
        value = answer[0]
        if not isinstance(value, bytes):
            return
        own, main = records.broker_numbers(value)
        (
            self.bodies.counter,
            self.schedule.low,
            self.expiry.low,
            self.scheduled,
            self.scheduled_bytes,
            self.size,
            self.wall_ms,
            self.transfers,
            self.transfer_counter,
        ) = own
        self._restore_log(MAIN, main)
        self.duplicates.restore(self.wall_ms)
        for key, row in (yield from self._table(records.LOG_META)):
            self._restore_log(int.from_bytes(key[-4:], "big"), records.log_numbers(row))
        for key, row in (yield from self._table(records.INBOX)):
            self.inbox[records.inbox_of(key)] = records.unsealed_number(row, "an inbox row")
        for key, row in (yield from self._table(records.STAGES)):
            self.stages.restore(key[len(self.prefix) + 1 :], row)
        yield from self._open_due()

    def _table(self, table: bytes) -> Steps[list[Row]]:
        """All rows of a table that is small: one row for each log, source or stage."""
        prefix = self.prefix + table
        start = prefix
        found: list[Row] = []
        while True:
            rows = yield Scan(start, records.after(prefix), _OPEN_ROWS)
            for row in rows:
                assert isinstance(row, tuple)
                found.append(row)
            if len(rows) < _OPEN_ROWS:
                return found
            start = found[-1][0] + b"\x00"

    def _restore_log(self, log_id: int, numbers: list[int]) -> None:
        self.highest_subscription = max(self.highest_subscription, log_id // KINDS)
        if log_id // KINDS == 0 or log_id // KINDS in self.settings.subscriptions:
            log = self.log(log_id)
            log.restore(numbers)
            if log.sessions is not None:
                log.sessions.restore()

    def _open_due(self) -> Steps[None]:
        start = records.due_key(self.prefix, self.schedule.low, 0)
        for row in (yield Scan(start, records.after(self.prefix + records.DUE), 1)):
            assert isinstance(row, tuple)
            self.schedule.wake(records.due_of(row[0])[0])
        start = records.expiry_key(self.prefix, self.expiry.low, 0, 0)
        for row in (yield Scan(start, records.after(self.prefix + records.EXPIRY), 1)):
            assert isinstance(row, tuple)
            self.expiry.wake(records.expiry_of(row[0])[0])

    # Locks

    def lock(self, entry: Entry, now: Now, holder: object | None) -> None:
        """Locks an entry that was just taken from its log."""
        log = entry.log
        number = self.next_lock
        self.next_lock = number + 1
        lock_ms = log.settings.lock_ms
        until_ms = now.mono_ms + lock_ms
        entry.lock = number
        entry.holder = holder
        entry.locked_until_ms = until_ms
        entry.locked_until_wall_ms = now.wall_ms + lock_ms
        self.locks[number] = entry
        log.locked += 1
        if log.sessions is None:  # in a session the locks of messages end with the session's own
            self.lock_ends.add(lock_ms, entry)

    def unlock(self, entry: Entry) -> None:
        log = entry.log
        del self.locks[entry.lock]
        if log.sessions is None:
            self.lock_ends.remove(log.settings.lock_ms, entry.lock)
        entry.lock = 0
        entry.holder = None
        entry.locked_until_wall_ms = 0
        entry.transaction = None
        log.locked -= 1
        if entry.expires_ms and entry.expires_ms <= self.wall_ms:
            self.expiry.wake(entry.expires_ms)  # the sweep had to leave it
        if entry.retry_ms and entry.retry_ms <= self.wall_ms:
            self.expiry.wake(entry.retry_ms)

    def locked(self, log: Log, number: int, now: Now) -> Entry:
        """The entry that this lock holds; MessageLockLost where the lock has ended or never was."""
        entry = self.locks.get(number)
        if entry is None or entry.log is not log or entry.locked_until_ms <= now.mono_ms:
            if log.sessions is not None:
                raise SessionLockLost("The session lock has expired. Accept the session again.")
            raise MessageLockLost(
                "The lock supplied is invalid. Either the lock expired, or the message has already been"
                " removed from the queue."
            )
        return entry

    def token(self, number: int) -> bytes:
        """A lock's token: it names the entity, the partition and this incarnation of its broker."""
        return self.token_head + number.to_bytes(6, "big")

    def new_id(self) -> UUID:
        """A fresh id for rules that ask for one: unique, and the same again when the same history is replayed."""
        self.ids += 1
        return UUID(bytes=self.token(1 << 47 | self.ids))
