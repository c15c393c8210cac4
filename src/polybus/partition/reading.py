"""Rows become entries: what several verbs need when memory does not hold a message.

A read may be answered long after it was asked for. So whoever reads takes tickets at the log, and decides only when
the last answer is there: from then on no read lies between knowing and doing.
"""

from __future__ import annotations

from polybus.errors import StoreCorrupt
from polybus.partition import records
from polybus.partition.broker import Answer, Broker, Steps
from polybus.partition.entry import Entry, entry_from
from polybus.partition.log import Log
from polybus.partition.records import Stored
from polybus.rows import Get, Row, Scan


def rows_of(answer: Answer) -> list[Row]:
    """The rows that a scan gave."""
    return [row for row in answer if isinstance(row, tuple)]


def has_rows(prefix: bytes) -> Steps[bool]:
    """Whether a store has any row whose key begins so."""
    return bool((yield Scan(prefix, records.after(prefix), 1)))


def scan_rows(prefix: bytes) -> Steps[list[Row]]:
    """Every row whose key begins so; for few rows only."""
    return rows_of((yield Scan(prefix, records.after(prefix), 1 << 30)))


def scan(start: bytes, end: bytes, limit: int, max_bytes: int) -> Steps[tuple[list[Row], bool]]:
    """The first rows of a range, and whether they are all; a store may stop before the limit for its bytes."""
    found: list[Row] = []
    size = 0
    while len(found) < limit and size < max_bytes:
        rows = rows_of((yield Scan(start, end, limit - len(found), max_bytes - size)))
        if not rows:
            return found, True
        found += rows
        size += sum(len(key) + len(value) for key, value in rows)
        start = rows[-1][0] + b"\x00"
    return found, False


def settled_between(log: Log, rows: list[Row]) -> Steps[set[bytes]]:
    """Keys of the active table, among these rows, whose messages are settled and only kept for a cursor.

    A cursor may have let go of some since the rows were read, and their marks are gone with them: the caller has a
    ticket of `log.trimmed` from before.
    """
    if not rows:
        return set()
    settled: set[bytes] = set()
    if log.retained:
        settled = yield from _marked_between(log, rows)
    if log.trimmed.has_changes():
        settled.update(key for key, _ in rows if records.number_of(key) in log.trimmed)
    return settled


def _marked_between(log: Log, rows: list[Row]) -> Steps[set[bytes]]:
    start = records.number_key(log.settled_prefix, records.number_of(rows[0][0]))
    end = records.number_key(log.settled_prefix, records.number_of(rows[-1][0]) + 1)
    marks = yield Scan(start, end, len(rows))
    return {log.active_prefix + key[-8:] for key, _ in rows_of(marks)}


def load_bodies(broker: Broker, entries: list[Entry]) -> Steps[None]:
    """Reads the bodies that entries refer to; an entry without bytes afterwards was removed meanwhile."""
    bodies = broker.bodies
    here = [entry for entry in entries if entry.body in bodies.memory]
    elsewhere = [entry for entry in entries if entry.body and entry.body not in bodies.memory]
    for entry in here:
        bodies.attach(entry, entry.body)  # before the read, during which others may let go of the body
    if not elsewhere:
        return
    missing = list(dict.fromkeys(entry.body for entry in elsewhere))
    ticket = bodies.read_begins()
    try:
        bodies.load(missing, (yield Get(bodies.keys(missing))))
        for entry in elsewhere:
            if entry.body in bodies.memory:
                bodies.attach(entry, entry.body)
    except BaseException:
        for entry in here:
            bodies.detach(entry)
        raise
    finally:
        bodies.read_ends(ticket)


def whole(entry: Entry) -> Entry:
    """An entry that is still there, so its bytes must be."""
    if entry.message is None:
        raise StoreCorrupt(f"body {entry.body} is missing though message {entry.sequence} refers to it")
    return entry


def is_held(entry: Entry) -> bool:
    """Whether memory holds the entry, and not only whoever read it."""
    log = entry.log
    return log.memory.get(entry.rank) is entry or log.deferrals.entries.get(entry.sequence) is entry


def let_go(entry: Entry) -> None:
    """An entry that was read for nothing leaves memory, unless memory holds it anyway."""
    if entry.message is not None and not is_held(entry):
        entry.log.bodies.detach(entry)


def find(broker: Broker, log: Log, numbers: list[int]) -> Steps[dict[int, Entry]]:
    """The entries with these sequence numbers, active or deferred, from memory or from the store.

    They are the caller's to settle at once, or to `let_go`.
    """
    removed, deferrals = log.removed, log.deferrals
    tickets = removed.read_begins(), deferrals.read_begins()
    known: list[Entry] = []
    try:
        ranks = yield from _ranks(log, numbers)
        read = yield from _read(broker, log, ranks)
        found: dict[int, Entry] = {}
        for number, rank in ranks.items():
            fresh = read.get(number)
            entry = _current(log, number, rank, fresh)
            if entry is not None:
                found[number] = whole(entry)
                if entry is not fresh and entry.body:
                    known.append(entry)
            if fresh is not None and entry is not fresh:
                let_go(fresh)
        for entry in known:
            broker.bodies.attach(entry, entry.body)
    finally:
        removed.read_ends(tickets[0])
        deferrals.read_ends(tickets[1])
    for entry in known:  # memory may have let go of some just now; their bodies stay for the caller
        if is_held(entry):
            broker.bodies.detach(entry)
    return found


def _ranks(log: Log, numbers: list[int]) -> Steps[dict[int, int]]:
    """Number to rank; -1 where the index does not know it, so that it can only be deferred."""
    if not log.by_position:
        return {number: number for number in numbers}
    keys = [records.number_key(log.numbers_prefix, number) for number in numbers]
    ranks: dict[int, int] = {}
    for number, value in zip(numbers, (yield Get(keys)), strict=True):
        ranks[number] = records.unsealed_number(value, "an index row") if isinstance(value, bytes) else -1
    return ranks


def _read(broker: Broker, log: Log, ranks: dict[int, int]) -> Steps[dict[int, Entry]]:
    """Entries for those numbers that memory does not know."""
    deferred = log.deferrals.entries
    unknown = [n for n, rank in ranks.items() if rank not in log.memory and n not in deferred]
    if not unknown:
        return {}
    keys: list[bytes] = []
    for number in unknown:
        rank = max(ranks[number], 0)
        keys.append(records.number_key(log.active_prefix, rank))
        keys.append(records.number_key(log.deferred_prefix, number))
        keys.append(records.number_key(log.settled_prefix, rank))
    answer = yield Get(keys)
    read: dict[int, Entry] = {}
    for place, number in enumerate(unknown):
        active, resting, settled = answer[3 * place : 3 * place + 3]
        if isinstance(active, bytes) and settled is None and ranks[number] not in log.removed:
            read[number] = entry_from(log, Stored(active), False)
        elif isinstance(resting, bytes):
            read[number] = entry_from(log, Stored(resting), True)
    yield from load_bodies(broker, list(read.values()))
    return read


def _current(log: Log, number: int, rank: int, read: Entry | None) -> Entry | None:
    """What memory says now, else what was read."""
    entry = log.deferrals.entries.get(number)
    if entry is not None:
        return None if entry.gone else entry
    entry = log.memory.get(rank)
    if entry is None:
        entry = read
    if entry is None or (not entry.deferred and rank in log.removed):
        return None
    return entry
