"""One partition: every table of it, and that they agree with each other and with the counters.

It walks each table once, in the order of its keys, and looks index rows up in pages; so a million messages take
memory for one page and, at the most, a few bytes for each deferred message and each body.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from polybus.errors import StoreError
from polybus.operations.bodies import BodyBook
from polybus.operations.broker_tables import BrokerTables
from polybus.operations.catalogue_facts import EntityFacts
from polybus.operations.counters import LogCounters, PartitionCounters
from polybus.operations.findings import KEY_BYTES, LOG_TABLES, PREFIX_BYTES, TABLES, CheckFinding, Findings, key_text
from polybus.operations.log_check import LogCheck
from polybus.operations.lookups import Lookups
from polybus.operations.message_tables import BROKEN
from polybus.operations.store_reader import StoreReader
from polybus.partition import records
from polybus.partition.kinds import KINDS, MAIN, TRANSFER_DEAD_LETTER
from polybus.rows import Row

_UNCOUNTED: Final = LogCounters(None)


class PartitionCheck:
    def __init__(
        self, reader: StoreReader, entity: EntityFacts, index: int, removed: set[int], findings: Findings
    ) -> None:
        self.reader = reader
        self.entity = entity
        self.index = index
        self.prefix = records.partition_prefix(entity.id, index)
        self.rows = 0
        self.findings = 0
        self.lookups = Lookups(reader, self.table, self.report)
        self.counters = PartitionCounters(None)
        self.logs: dict[int, LogCheck] = {}
        self.tables = BrokerTables(self)
        self.readable = True
        self._removed = removed
        """Numbers of subscriptions whose rows are being removed."""
        self._log_counters: dict[int, LogCounters] = {}
        self._findings = findings

    def report(self, key: bytes, problem: str) -> None:
        self.findings += 1
        self._findings.add(CheckFinding(self.reader.url, self.entity.name, self.index, key_text(key), problem))

    def table(self, prefix: bytes) -> Iterator[Row]:
        """The rows of a table, or of one log's part of it, counted; a key of the wrong length is reported."""
        count = 0
        length = KEY_BYTES.get(prefix[PREFIX_BYTES : PREFIX_BYTES + 1])
        for row in self.reader.rows(prefix, records.after(prefix)):
            count += 1
            if length is None or len(row[0]) == length:
                yield row
            else:
                self.report(row[0], "its key is too long or too short")
        self.rows += count

    def run(self) -> None:
        """Looks at everything; a part of the store that cannot be read ends the look at this partition."""
        try:
            if self._tables():
                self._run()
        except StoreError as error:
            self.readable = False
            self.report(self.prefix, str(error))

    def _run(self) -> None:
        self._read_counters()
        self.bodies = BodyBook(self, self.counters.bodies)
        for log_id in self._log_ids():
            self._check_log(log_id)
        self.tables.run()
        expiry = self.prefix + records.EXPIRY
        self.lookups.look_for_strays(expiry, lambda key: self._expires(key))
        self._compare()

    # Tables

    def _tables(self) -> list[bytes]:
        """The tables that have rows, found by hopping from one to the next."""
        found: list[bytes] = []
        start, end = self.prefix, records.after(self.prefix)
        while (row := next(self.reader.rows(start, end), None)) is not None:
            table = row[0][PREFIX_BYTES : PREFIX_BYTES + 1]
            found.append(table)
            if table not in TABLES:
                self.report(row[0], "no table of a partition has such a key")
            start = records.after(self.prefix + table) if table else row[0] + b"\0"
        return found

    def _log_ids(self) -> list[int]:
        """The logs that have rows in any table."""
        found: set[int] = set()
        for table in LOG_TABLES:
            start, end = self.prefix + table, records.after(self.prefix + table)
            while (row := next(self.reader.rows(start, end), None)) is not None:
                log_id = int.from_bytes(row[0][PREFIX_BYTES + 1 : PREFIX_BYTES + 5], "big")
                if len(row[0]) < PREFIX_BYTES + 5:
                    self.report(row[0], "its key is too long or too short")
                    start = row[0] + b"\0"
                    continue
                found.add(log_id)
                start = records.log_prefix(self.prefix, table, log_id + 1) if log_id < 0xFFFFFFFF else end
        return sorted(found)

    def _check_log(self, log_id: int) -> None:
        number, kind = divmod(log_id, KINDS)
        known = number == 0 or number in self.entity.subscriptions
        log = LogCheck(self, log_id, known and self.entity.has_sessions(number))
        self.logs[log_id] = log
        if kind > TRANSFER_DEAD_LETTER:
            self.report(records.log_prefix(self.prefix, records.LOG_META, log_id), "there is no such kind of log")
        elif known:
            log.run()
        else:
            if number not in self._removed:
                key = records.log_prefix(self.prefix, records.LOG_META, log_id)
                self.report(key, f"rows of subscription {number}, which does not exist and is not being removed")
            log.count_only()

    def _expires(self, key: bytes) -> bool:
        """Whether an expiry row has its message. Those of a removed subscription stay until they are due."""
        _, log_id, sequence = records.expiry_of(key)
        number = log_id // KINDS
        if number and number not in self.entity.subscriptions:
            return number < self.entity.next_subscription
        log = self.logs.get(log_id)
        return log is not None and log.owns(key, sequence)

    # Counters

    def _read_counters(self) -> None:
        key = self.prefix + records.META
        value = self.reader.get([key])[0]
        if value is None:
            self.report(key, "the partition's counters are missing")
        else:
            self.rows += 1
            try:
                self.counters = PartitionCounters(value)
                self._log_counters[MAIN] = self.counters.main
            except BROKEN as error:
                self.report(key, str(error))
        prefix = self.prefix + records.LOG_META
        for log_key, log_value in self.table(prefix):
            try:
                self._log_counters[int.from_bytes(log_key[-4:], "big")] = LogCounters(records.log_numbers(log_value))
            except BROKEN as error:
                self.report(log_key, str(error))

    def counters_of(self, log_id: int) -> LogCounters:
        return self._log_counters.get(log_id, _UNCOUNTED)

    def last_number(self, log_id: int) -> int:
        """The last sequence number given: dead letters have theirs from the main log beside them."""
        return self.counters_of(log_id - log_id % KINDS + MAIN).counter

    def _compare(self) -> None:
        said, tables = self.counters, self.tables
        key = self.prefix + records.META
        if said.missing:
            return
        incomplete = tables.incomplete or self.bodies.incomplete or any(log.incomplete for log in self.logs.values())
        if not incomplete:
            self.bodies.finish()
            there = self.bodies.live_bytes + tables.size + sum(log.live_bytes for log in self.logs.values())
            if said.size != there:
                self.report(key, f"the counter says {said.size} bytes in all, there are {there}")
        for what, counter, counted in (
            ("scheduled messages", said.scheduled, tables.scheduled),
            ("scheduled bytes", said.scheduled_bytes, tables.scheduled_bytes),
            ("messages to be moved on", said.transfers, tables.transfers),
        ):
            if counter != counted and not tables.incomplete:
                self.report(key, f"the counter says {counter} {what}, there are {counted}")
        self._compare_lows()

    def _compare_lows(self) -> None:
        """Scans by time begin at a remembered one; nothing may lie before it."""
        due, expiry = self._first(records.DUE), self._first(records.EXPIRY)
        if due is not None and records.due_of(due)[0] < self.counters.due_low:
            self.report(due, f"scans of the schedule begin later, at {self.counters.due_low}")
        if expiry is not None and records.expiry_of(expiry)[0] < self.counters.expiry_low:
            self.report(expiry, f"scans for what has expired begin later, at {self.counters.expiry_low}")

    def _first(self, table: bytes) -> bytes | None:
        prefix = self.prefix + table
        row = next(self.reader.rows(prefix, records.after(prefix)), None)
        return None if row is None else row[0]
