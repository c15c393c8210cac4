"""One thing wrong in a data folder: rows changed, removed or added behind the bus's back."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from polybus.partition import records
from polybus.rows import Batch
from polybus.store.rocks import RocksStore

Change = Callable[["Rows"], None]


class Damage(NamedTuple):
    """A kind of damage and a word of what the check says about it."""

    name: str
    change: Change
    says: str


class Rows:
    """All rows of the messaging stores, by store, and a way to change them."""

    def __init__(self, data: Path, rows: list[dict[bytes, bytes]]) -> None:
        self._paths = sorted((data / "stores").iterdir())
        self.rows = rows

    def find(self, table: bytes, log_kind: int | None = None, at: int = 0) -> bytes:
        """The key of a row of this table; of a main or dead-letter log where that is said."""
        found = [
            key
            for rows in self.rows
            for key in rows
            if key[7:8] == table and (log_kind is None or key[11] % 4 == log_kind)
        ]
        return found[at]

    def find_where(self, table: bytes, wanted: Callable[[bytes, bytes], bool]) -> bytes:
        return next(key for rows in self.rows for key in rows if key[7:8] == table and wanted(key, rows[key]))

    def value(self, key: bytes) -> bytes:
        return next(rows[key] for rows in self.rows if key in rows)

    def put(self, key: bytes, value: bytes, store: int | None = None) -> None:
        batch = Batch()
        batch.put(key, value)
        self._commit(self._store_of(key) if store is None else store, batch)

    def delete(self, key: bytes) -> None:
        batch = Batch()
        batch.delete(key)
        self._commit(self._store_of(key), batch)

    def _store_of(self, key: bytes) -> int:
        """Where the row is, or the partition that it belongs to."""
        for index, rows in enumerate(self.rows):
            if key in rows or any(other[:7] == key[:7] for other in rows):
                return index
        return 0

    def _commit(self, store: int, batch: Batch) -> None:
        with closing(RocksStore(self._paths[store])) as opened:
            opened.commit(batch)

    def flip(self, key: bytes) -> None:
        value = bytearray(self.value(key))
        value[-1] ^= 1
        self.put(key, bytes(value))

    def change_counters(self, key: bytes, change: Callable[[list[int]], None], main: bool) -> None:
        """Of a partition, or of its main log, whose counters are beside them."""
        numbers, of_main = records.broker_numbers(self.value(key))
        change(of_main if main else numbers)
        self.put(key, records.broker_record(numbers, of_main))

    def change_message(self, key: bytes, **changes: int) -> None:
        stored = records.Stored(self.value(key))
        fields = {
            name: getattr(stored, name)
            for name in ("sequence", "position", "enqueued_ms", "expires_ms", "delivery_count", "original", "body")
        }
        fields |= {"size": stored.size} | changes
        self.put(key, records.message_record(**fields, overlay=stored.overlay, raw=stored.raw))


def read_rows(data: Path) -> list[dict[bytes, bytes]]:
    """All rows of the messaging stores of a data folder, by store."""
    found = []
    for path in sorted((data / "stores").iterdir()):
        with closing(RocksStore(path)) as store:
            found.append(dict(store.scan(b"", b"\xff" * 9, 1 << 30)))
    return found


def of_entity(key: bytes, entity: int) -> bool:
    return int.from_bytes(key[1:5], "big") == entity


def flipped(table: bytes) -> Change:
    return lambda rows: rows.flip(rows.find(table))


def deleted(table: bytes, log_kind: int | None = None) -> Change:
    return lambda rows: rows.delete(rows.find(table, log_kind))


def counter(position: int, by: int) -> Change:
    """Adds to a counter of a main log that is not zero."""
    return _counter(position, by, True)


def partition_counter(position: int, by: int) -> Change:
    return _counter(position, by, False)


def _counter(position: int, by: int, main: bool) -> Change:
    def change(rows: Rows) -> None:
        def wanted(_: bytes, value: bytes) -> bool:
            return 0 < records.broker_numbers(value)[main][position] < 1 << 61

        def add(numbers: list[int]) -> None:
            numbers[position] += by

        rows.change_counters(rows.find_where(records.META, wanted), add, main)

    return change


def message(table: bytes, log_kind: int | None = None, **by: int) -> Change:
    """Adds to fields of a message's record, and seals it again."""

    def change(rows: Rows) -> None:
        key = rows.find(table, log_kind)
        stored = records.Stored(rows.value(key))
        rows.change_message(key, **{name: getattr(stored, name) + value for name, value in by.items()})

    return change


def other_version(rows: Rows) -> None:
    key = rows.find(records.ACTIVE)
    payload = bytearray(rows.value(key)[4:])
    payload[0] = 9
    rows.put(key, records.sealed(bytes(payload)))


def body_counts(copies: int, live: int) -> Change:
    def change(rows: Rows) -> None:
        key = rows.find(records.BODY_COUNTS)
        found = struct.unpack(">II", rows.value(key)[4:])
        rows.put(key, records.sealed(struct.pack(">II", found[0] + copies, found[1] + live)))

    return change


def orphan_body(rows: Rows) -> None:
    prefix = rows.find(records.BODIES)[:7]
    counts = records.sealed(struct.pack(">II", 1, 1))
    body = rows.value(rows.find(records.BODIES))
    rows.put(records.number_key(prefix + records.BODY_COUNTS, 0), counts)
    rows.put(records.number_key(prefix + records.BODIES, 0), body)


def stray(table: bytes) -> Change:
    """One more row of an index, like one that is there but with another number."""

    def change(rows: Rows) -> None:
        key = rows.find(table)
        rows.put(key[:-1] + bytes([key[-1] ^ 0x7F]), rows.value(key))

    return change


def stray_mark(rows: Rows) -> None:
    key = rows.find(records.SETTLED)
    rows.put(key[:-2] + b"\xee\xee", rows.value(key))


def same_position(rows: Rows) -> None:
    """Two messages of one log with the same position."""
    keys = [key for key in rows.rows[0] if key[7:8] == records.ACTIVE and of_entity(key, 1)]
    first, second = (key for key in keys if key[:12] == keys[0][:12] and key in keys[:2])
    rows.change_message(second, position=records.Stored(rows.value(first)).position)


def unknown_entity(rows: Rows) -> None:
    rows.put(records.partition_prefix(999, 0) + records.META, records.broker_record([0] * 9, [0] * 10), store=0)


def misplaced(rows: Rows) -> None:
    key = rows.find(records.META)
    here = next(index for index, found in enumerate(rows.rows) if key in found)
    rows.put(key, rows.value(key), store=1 - here)


def unknown_subscription(rows: Rows) -> None:
    key = rows.find_where(records.LOG_META, lambda key, _: of_entity(key, 3))
    rows.put(key[:8] + (77 * 4).to_bytes(4, "big"), rows.value(key))


def unknown_table(rows: Rows) -> None:
    rows.put(rows.find(records.META)[:7] + b"~x", b"")


def short_key(table: bytes) -> Change:
    """A row whose key ends where its number should be."""
    return lambda rows: rows.put(rows.find(table)[:-3], rows.value(rows.find(table)))


def log_without_id(rows: Rows) -> None:
    rows.put(rows.find(records.ACTIVE)[:8], b"")


def unknown_key(rows: Rows) -> None:
    rows.put(b"~", b"", store=0)


def mark_without_doubt(rows: Rows) -> None:
    rows.put(b"K" + bytes(32), records.sealed(b"\x45"), store=0)


def transfer_numbers(rows: Rows) -> None:
    key = rows.find(records.OUTBOX)[:7] + records.META
    rows.change_counters(key, lambda numbers: numbers.__setitem__(8, 0), main=False)


def taken_over(rows: Rows) -> None:
    rows.put(rows.find(records.INBOX), records.sealed_number(99))


def session_lost(rows: Rows) -> None:
    """The number of a session's message comes to stand under another session."""
    key = rows.find(records.SESSION_MESSAGES)
    rows.put(key[:-9] + bytes([key[-9] ^ 1]) + key[-8:], b"")
    rows.delete(key)


DAMAGES = [
    Damage("an active message flipped", flipped(records.ACTIVE), "checksum of a message record"),
    Damage("a deferred message flipped", flipped(records.DEFERRED), "checksum of a message record"),
    Damage("a scheduled message flipped", flipped(records.SCHEDULED), "checksum of a message record"),
    Damage("an outgoing message flipped", flipped(records.OUTBOX), "checksum of a message record"),
    Damage("a body flipped", flipped(records.BODIES), "checksum of a body"),
    Damage("a body's counts flipped", flipped(records.BODY_COUNTS), "checksum of a body's counts"),
    Damage("a partition's counters flipped", flipped(records.META), "checksum of a partition's counters"),
    Damage("a log's counters flipped", flipped(records.LOG_META), "checksum of a log's counters"),
    Damage("a settled mark flipped", flipped(records.SETTLED), "checksum of a mark"),
    Damage("an event flipped", flipped(records.EVENTS), "checksum of an event"),
    Damage("a session's state flipped", flipped(records.SESSION_STATE), "checksum of a session's state"),
    Damage("an inbox row flipped", flipped(records.INBOX), "checksum of an inbox row"),
    Damage("a staged message flipped", flipped(records.STAGED), "checksum of a staged message"),
    Damage("an intent flipped", flipped(records.INTENT), "checksum of a transaction's intent"),
    Damage("a stage flipped", flipped(records.STAGES), "checksum of a stage"),
    Damage("a duplicate's row flipped", flipped(records.DUPLICATE_IDS), "checksum of a message id's row"),
    Damage("another version", other_version, "form 9"),
    Damage("no expiry row", deleted(records.EXPIRY), "its index row is missing: expiry"),
    Damage("no number row", deleted(records.NUMBERS), "its index row is missing: numbers"),
    Damage("no session row", deleted(records.SESSION_MESSAGES), "its index row is missing: session"),
    Damage("no due row", deleted(records.DUE), "its index row is missing: due"),
    Damage("no time of a duplicate", deleted(records.DUPLICATE_TIMES), "its index row is missing: duplicate"),
    Damage("no id of a duplicate", deleted(records.DUPLICATE_IDS), "an index row without its message"),
    Damage("no active message", deleted(records.ACTIVE, 0), "the counter says"),
    Damage("no deferred message", deleted(records.DEFERRED), "the counter says"),
    Damage("no scheduled message", deleted(records.SCHEDULED), "an index row without its message"),
    Damage("no outgoing message", deleted(records.OUTBOX), "messages to be moved on"),
    Damage("no dead letter", deleted(records.ACTIVE, 1), "an index row without its message"),
    Damage("no body", deleted(records.BODIES), "which is missing"),
    Damage("no body count", deleted(records.BODY_COUNTS), "whose copies are not counted"),
    Damage("no counters of a partition", deleted(records.META), "the partition's counters are missing"),
    Damage("no counters of a log", deleted(records.LOG_META, 0), "the log's counters are missing"),
    Damage("no stage", deleted(records.STAGES), "a stage that is not known"),
    Damage("one copy too many", body_counts(1, 0), "+1 copies"),
    Damage("one live copy too few", body_counts(0, -1), "-1 live ones"),
    Damage("a body without copies", orphan_body, "+1 copies"),
    Damage("a stray expiry row", stray(records.EXPIRY), "an index row without its message"),
    Damage("a stray number row", stray(records.NUMBERS), "an index row without its message"),
    Damage("a stray session row", stray(records.SESSION_MESSAGES), "an index row without its message"),
    Damage("a message in another session", session_lost, "its index row is missing: session"),
    Damage("a mark without its message", stray_mark, "marks a message as settled that is missing"),
    Damage("no mark of a settled message", deleted(records.SETTLED), "active messages"),
    Damage("active counter", counter(2, 1), "active messages"),
    Damage("active bytes", counter(3, 5), "active bytes"),
    Damage("deferred counter", counter(4, 1), "deferred messages"),
    Damage("deferred bytes", counter(5, -5), "deferred bytes"),
    Damage("retained counter", counter(6, 1), "retained messages"),
    Damage("retained bytes", counter(7, 1), "retained bytes"),
    Damage("sequence counter", counter(0, -1), "above the counter"),
    Damage("position counter", counter(1, -1), "above the counter"),
    Damage("event counter", counter(8, -1), "above the counter"),
    Damage("low-water mark", counter(9, 1 << 20), "scans begin at"),
    Damage("size", partition_counter(5, 1), "bytes in all"),
    Damage("scheduled counter", partition_counter(3, 1), "scheduled messages"),
    Damage("scheduled bytes", partition_counter(4, 1), "scheduled bytes"),
    Damage("transfer counter", partition_counter(7, 1), "messages to be moved on"),
    Damage("transfer numbers", transfer_numbers, "above the counter"),
    Damage("numbers taken over", taken_over, "took over number 99"),
    Damage("schedule's low-water mark", partition_counter(1, 1 << 40), "scans of the schedule begin later"),
    Damage("expiry's low-water mark", partition_counter(2, 1 << 40), "scans for what has expired begin later"),
    Damage("body numbers", partition_counter(0, -1), "above the counter"),
    Damage("another size", message(records.ACTIVE, 0, size=1), "bytes"),
    Damage("another partition's number", message(records.DEFERRED, sequence=1 << 48), "belongs to partition"),
    Damage("another expiry", message(records.DEFERRED, 0, expires_ms=1), "its index row is missing: expiry"),
    Damage("another due time", message(records.SCHEDULED, expires_ms=1), "its index row is missing: due"),
    Damage("a number under another", message(records.ACTIVE, 0, sequence=1), "the message in it has"),
    Damage("a position twice", same_position, "has position"),
    Damage("an unknown entity", unknown_entity, "which does not exist and is not being removed"),
    Damage("an unknown subscription", unknown_subscription, "subscription 77, which does not exist"),
    Damage("a partition in another store", misplaced, "where it was never placed"),
    Damage("an unknown table", unknown_table, "no table of a partition"),
    Damage("a short key among messages", short_key(records.ACTIVE), "too long or too short"),
    Damage("a short key in an index", short_key(records.EXPIRY), "too long or too short"),
    Damage("a short key of the outbox", short_key(records.OUTBOX), "too long or too short"),
    Damage("a log without an id", log_without_id, "too long or too short"),
    Damage("an unknown key", unknown_key, "no table of a messaging store"),
    Damage("a mark without doubt", mark_without_doubt, "does not doubt"),
]
