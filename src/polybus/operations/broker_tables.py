"""The tables of a partition that belong to no log: schedule, transfers, duplicates, stages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from polybus.numbering import counter_of, partition_of
from polybus.operations.message_tables import BROKEN, read_message
from polybus.partition import records
from polybus.partition.duplicates import DuplicateHistory
from polybus.partition.kinds import MAIN
from polybus.partition.records import Stored
from polybus.partition.stages import Stages
from polybus.rows import Row

if TYPE_CHECKING:
    from polybus.operations.partition_check import PartitionCheck


class BrokerTables:
    def __init__(self, partition: PartitionCheck) -> None:
        self.scheduled = 0
        self.scheduled_bytes = 0
        self.transfers = 0
        self.size = 0
        """Bytes of all these that count against the entity's size."""
        self.incomplete = False
        self.seen: dict[tuple[int, int], int] = {}
        """Source partition to the last number taken over from it."""
        self._partition = partition

    def run(self) -> None:
        self._walk_scheduled()
        self._walk_outbox()
        self._walk_inbox()
        self._walk_duplicates()
        self._walk_stages()
        self._walk_intent()

    def _prefix(self, table: bytes) -> bytes:
        return self._partition.prefix + table

    def _rows(self, table: bytes) -> Iterator[Row]:
        return self._partition.table(self._prefix(table))

    def _stored(self, key: bytes, value: bytes) -> Stored | None:
        try:
            stored = read_message(value)
        except BROKEN as error:
            self._partition.report(key, str(error))
            self.incomplete = True
            return None
        if stored.body or len(stored.raw) != stored.size:
            self._partition.report(key, f"says it has {stored.size} bytes, {len(stored.raw)} are there")
        self.size += stored.size
        return stored

    # Schedule

    def _walk_scheduled(self) -> None:
        partition, due = self._partition, self._prefix(records.DUE)
        last = partition.last_number(MAIN)
        for key, value in self._rows(records.SCHEDULED):
            stored = self._stored(key, value)
            if stored is None:
                continue
            self.scheduled += 1
            self.scheduled_bytes += stored.size
            sequence = records.number_of(key)
            if stored.sequence != sequence or partition_of(sequence) != partition.index:
                partition.report(key, f"the message in it has the number {stored.sequence}")
            if counter_of(sequence) > last:
                partition.report(key, f"its number is above the counter, {last}: it would be given again")
            partition.lookups.expect(due, records.due_key(partition.prefix, stored.expires_ms, sequence), b"", key)
        partition.lookups.look_for_strays(due, lambda key: self._is_due(key))

    def _is_due(self, key: bytes) -> bool:
        due_ms, sequence = records.due_of(key)
        value = self._partition.reader.get([records.number_key(self._prefix(records.SCHEDULED), sequence)])[0]
        if value is None:
            return False
        try:
            return bool(read_message(value).expires_ms == due_ms)
        except BROKEN:
            return True

    # Transfers

    def _walk_outbox(self) -> None:
        partition = self._partition
        last = partition.counters.transfer_counter
        for key, value in self._rows(records.OUTBOX):
            if self._stored(key, value) is None:
                continue
            self.transfers += 1
            if records.outbox_of(key)[2] > last:
                partition.report(key, f"its number is above the counter, {last}: it would be given again")

    def _walk_inbox(self) -> None:
        for key, value in self._rows(records.INBOX):
            try:
                self.seen[records.inbox_of(key)] = records.unsealed_number(value, "an inbox row")
            except BROKEN as error:
                self._partition.report(key, str(error))

    # Duplicates

    def _walk_duplicates(self) -> None:
        partition, times = self._partition, self._prefix(records.DUPLICATE_TIMES)
        history = DuplicateHistory(partition.prefix, 0)
        for key, value in self._rows(records.DUPLICATE_IDS):
            try:
                time_ms = records.unsealed_number(value, "a message id's row")
                message_id = key[len(history.id_prefix) :].decode()
            except BROKEN as error:
                partition.report(key, str(error))
                continue
            partition.lookups.expect(times, history.time_key(time_ms, message_id), b"", key)
        partition.lookups.look_for_strays(times, lambda key: self._is_remembered(history, key))

    def _is_remembered(self, history: DuplicateHistory, key: bytes) -> bool:
        at = len(history.time_prefix)
        value = self._partition.reader.get([history.id_prefix + key[at + 8 :]])[0]
        if value is None:
            return False
        try:
            return records.unsealed_number(value, "a message id's row") == int.from_bytes(key[at : at + 8], "big")
        except BROKEN:
            return True

    # Stages

    def _walk_stages(self) -> None:
        partition, stages = self._partition, Stages()
        prefix = self._prefix(records.STAGES)
        for key, value in self._rows(records.STAGES):
            try:
                stages.restore(key[len(prefix) :], value)
            except BROKEN as error:
                partition.report(key, str(error))
                self.incomplete = True
        self.size += sum(stage.bytes for stage in stages.open.values())
        held = dict.fromkeys(stages.open, 0)
        prefix = self._prefix(records.STAGED)
        for key, value in self._rows(records.STAGED):
            stage_id = key[len(prefix) : -8]
            try:
                size = sum(len(raw) for raw in records.staged_messages(value)[0])
            except BROKEN as error:
                partition.report(key, str(error))
                continue
            if stage_id in held:
                held[stage_id] += size
            elif not self.incomplete:
                partition.report(key, "a message of a stage that is not known")
        for stage_id, size in held.items():
            if size > stages.open[stage_id].bytes:
                text = f"the stage says {stages.open[stage_id].bytes} bytes, there are {size}"
                partition.report(self._prefix(records.STAGES) + stage_id, text)

    # Transactions

    def _walk_intent(self) -> None:
        for key, value in self._rows(records.INTENT):
            try:
                records.unsealed(value, "a transaction's intent")
            except BROKEN as error:
                self._partition.report(key, str(error))
