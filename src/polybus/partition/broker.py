"""The message broker of one partition: its state, and how that state is written.

A deterministic machine: verbs (in the modules beside this one) are given the time, change this state and write
rows to the sink's open output; nothing here reads a clock, a disk or a source of randomness. What a verb must
know and memory does not hold it asks for by yielding a read; whoever drives it sends the rows back in.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Final, Protocol, TypeVar
from uuid import UUID

from polybus.clock import Now
from polybus.errors import EntityNotFound, MessageLockLost, SessionLockLost
from polybus.message.message import Message
from polybus.partition import records
from polybus.partition.bodies import Bodies
from polybus.partition.duplicates import DuplicateHistory
from polybus.partition.entry import Entry
from polybus.partition.log import KINDS, MAIN, Log
from polybus.partition.output import Output, Sink
from polybus.partition.removing import Removing
from polybus.partition.sessions import SessionBook
from polybus.partition.settings import EntitySettings, LogSettings
from polybus.rows import NO_LIMIT, Get, Read, Scan

Answer = list[object]
Result = TypeVar("Result")
Steps = Generator[Read, Answer, Result]
"""A verb that may need rows: it yields reads, is sent their answers, and returns its result."""

_TOKEN: Final = struct.Struct(">IHIHI")
NOT_DUE: Final = 1 << 62


class Router(Protocol):
    """Chooses the partition that a message goes to at another entity; the namespace knows them all."""

    def route(self, destination: str, message: Message, session_id: str | None) -> tuple[int, int]:
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
        self.sink = sink
        self.router = router
        self.incarnation = incarnation
        self.prefix = records.partition_prefix(entity_id, index)
        self.meta_key = self.prefix + records.META
        self.number_base = index << 48
        self.logs: dict[int, Log] = {}
        self.bodies = Bodies(self.prefix)
        self.duplicates = DuplicateHistory(self.prefix)
        self.locks: dict[int, Entry] = {}
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
        self.due_low = 0
        self.expiry_low = 0
        # When something must happen by itself.
        self.due_ms = NOT_DUE
        self.expiry_due_ms = NOT_DUE
        self.sweeping = False
        self.activating = False
        self.accessed_ms = 0
        self.scheduled_removed = Removing()
        self.inbox: dict[tuple[int, int], int] = {}
        self.written = False
        self.dirty_logs: list[Log] = []
        self.log(MAIN)

    # Logs

    def log(self, log_id: int) -> Log:
        """The log with this id, made when first named."""
        log = self.logs.get(log_id)
        if log is None:
            log = Log(self.prefix, log_id, self._settings_of(log_id // KINDS))
            if log.kind == MAIN and log.settings.requires_session:
                log.sessions = SessionBook(log, self.bodies)
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
        log.counter += 1
        return self.number_base | log.counter

    def wall(self, now: Now) -> int:
        """Wall time that never goes back, also over restarts."""
        if now.wall_ms > self.wall_ms:
            self.wall_ms = now.wall_ms
        return self.wall_ms

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
        batch.put(self.meta_key, records.broker_record(self._numbers()))
        for log in self.dirty_logs:
            log.dirty = False
            batch.put(log.meta_key, records.log_record(log.numbers()))
            batch.ends.append((log, log.positions))
        self.dirty_logs.clear()
        self.written = False

    def _numbers(self) -> list[int]:
        return [
            self.bodies.counter,
            self.due_low,
            self.expiry_low,
            self.scheduled,
            self.scheduled_bytes,
            self.size,
            self.wall_ms,
            self.transfers,
            self.transfer_counter,
        ]

    def record(self, entry: Entry) -> bytes:
        """The stored form of an entry as it is now."""
        raw = b"" if entry.body else entry.loaded().raw
        overlay = b"" if entry.overlay is None else entry.overlay.to_bytes()
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
        if isinstance(value, bytes):
            (
                self.bodies.counter,
                self.due_low,
                self.expiry_low,
                self.scheduled,
                self.scheduled_bytes,
                self.size,
                self.wall_ms,
                self.transfers,
                self.transfer_counter,
            ) = records.broker_numbers(value)
            yield from self._open_logs()
            yield from self._open_inbox()
            yield from self._open_due()
        self.duplicates.whole = value is None

    def _open_logs(self) -> Steps[None]:
        prefix = self.prefix + records.LOG_META
        start = prefix
        while True:
            rows = yield Scan(start, records.after(prefix), 1000)
            for row in rows:
                assert isinstance(row, tuple)
                key, value = row
                log_id = int.from_bytes(key[-4:], "big")
                if log_id // KINDS == 0 or log_id // KINDS in self.settings.subscriptions:
                    log = self.log(log_id)
                    log.restore(records.log_numbers(value))
                    if log.sessions is not None:
                        log.sessions.restore()
                start = key + b"\x00"
            if len(rows) < 1000:
                return

    def _open_inbox(self) -> Steps[None]:
        prefix = self.prefix + records.INBOX
        rows = yield Scan(prefix, records.after(prefix), NO_LIMIT)
        for row in rows:
            assert isinstance(row, tuple)
            self.inbox[records.inbox_of(row[0])] = records.unsealed_number(row[1], "an inbox row")

    def _open_due(self) -> Steps[None]:
        rows = yield Scan(
            records.due_key(self.prefix, self.due_low, 0), self.prefix + records.DUE + b"\xff" * 17, 1
        )
        for row in rows:
            assert isinstance(row, tuple)
            self.due_ms = records.due_of(row[0])[0]
        start = records.expiry_key(self.prefix, self.expiry_low, 0, 0)
        rows = yield Scan(start, self.prefix + records.EXPIRY + b"\xff" * 21, 1)
        for row in rows:
            assert isinstance(row, tuple)
            self.expiry_due_ms = records.expiry_of(row[0])[0]

    # Locks

    def lock(self, entry: Entry, now: Now, holder: object | None) -> None:
        """Locks an entry that was just taken from its log."""
        log = entry.log
        number = self.next_lock
        self.next_lock = number + 1
        entry.lock = number
        entry.holder = holder
        lock_ms = log.settings.lock_ms
        entry.locked_until_ms = now.mono_ms + lock_ms
        entry.locked_until_wall_ms = now.wall_ms + lock_ms
        self.locks[number] = entry
        log.locked += 1
        log.lock_queue.append((entry.locked_until_ms, number))

    def unlock(self, entry: Entry) -> None:
        self.locks.pop(entry.lock, None)
        entry.lock = 0
        entry.holder = None
        entry.locked_until_wall_ms = 0
        entry.transaction = None
        entry.log.locked -= 1

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
        return _TOKEN.pack(self.entity_id, self.index, self.incarnation, number >> 32, number & 0xFFFFFFFF)

    def new_id(self) -> UUID:
        """A fresh id for rules that ask for one: unique, and the same again when the same history is replayed."""
        self.ids += 1
        return UUID(bytes=self.token(1 << 47 | self.ids))


def read_token(token: bytes) -> tuple[int, int, int, int]:
    """(entity id, partition index, incarnation, lock number) of a token's sixteen bytes."""
    entity, index, incarnation, high, low = _TOKEN.unpack(token)
    return entity, index, incarnation, high << 32 | low
