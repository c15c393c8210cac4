"""Keeping what was settled for cursors that have not read it, and reading ranges of a log by position.

A cursor is only a floor: what is settled above the lowest one keeps its row and is marked in the settled index;
moving the floor walks that index. Range reads look at rows and never disturb receivers.
"""

from __future__ import annotations

from polybus.errors import StoreCorrupt
from polybus.message.message import Message
from polybus.partition import records
from polybus.partition.broker import Broker, Steps
from polybus.partition.data import Records
from polybus.partition.log import Log
from polybus.partition.reading import rows_of, settled_between
from polybus.partition.records import Stored
from polybus.rows import Get, Row, Scan


def keep(broker: Broker, log: Log, sequence: int, message: Message, wall_ms: int) -> bytes:
    """A topic's own log holds messages only for its cursors: written as settled from the start. Gives its key."""
    batch = broker.out(log)
    log.positions += 1
    position, size = log.positions, message.size
    key = records.number_key(log.active_prefix, sequence)
    batch.put(key, records.message_record(sequence, position, wall_ms, 0, 0, 0, 0, size, b"", message.raw))
    mark = records.settled_mark(position, wall_ms, size, 0)
    batch.put(records.number_key(log.settled_prefix, sequence), mark)
    log.retained += 1
    log.retained_bytes += size
    return key


def trim(broker: Broker, log: Log) -> Steps[bool]:
    """Removes kept rows up to the floor, a bounded number of them; True where more are left."""
    if log.trimming:
        return True
    log.trimming = True
    ticket = broker.bodies.read_begins()
    try:
        start = records.number_key(log.settled_prefix, log.trimmed_to + 1)
        rows = yield Scan(start, records.after(log.settled_prefix), broker.bounds.sweep_rows)
        below: list[tuple[int, records.SettledMark]] = []
        for key, value in rows_of(rows):
            mark = records.SettledMark(value)
            if mark.position > log.floor:
                break
            below.append((records.number_of(key), mark))
        bodies = list(dict.fromkeys(mark.body for _, mark in below if mark.body))
        missing = [number for number in bodies if number not in broker.bodies.memory]
        if missing:
            broker.bodies.load(missing, (yield Get(broker.bodies.keys(missing))))
        for rank, mark in below:
            _drop_kept(broker, log, rank, mark)
    finally:
        log.trimming = False
        broker.bodies.read_ends(ticket)
    return len(below) == broker.bounds.sweep_rows


def _drop_kept(broker: Broker, log: Log, rank: int, mark: records.SettledMark) -> None:
    batch = broker.out(log)
    batch.delete(records.number_key(log.settled_prefix, rank))
    batch.delete(records.number_key(log.active_prefix, rank))
    log.trimmed.changed(batch, rank)
    log.trimmed_to = rank
    log.retained -= 1
    log.retained_bytes -= mark.size
    if mark.body:
        if mark.body not in broker.bodies.memory:
            raise StoreCorrupt(f"body {mark.body} is missing though a kept message refers to it")
        broker.bodies.drop_copy(batch, mark.body)


def oldest_kept_ms(log: Log) -> Steps[int | None]:
    """When the oldest kept message was settled."""
    rows = yield Scan(log.settled_prefix, records.after(log.settled_prefix), 1)
    return records.SettledMark(rows_of(rows)[0][1]).settled_ms if rows else None


def excess(broker: Broker, log: Log, since_ms: int, max_bytes: int) -> Steps[int]:
    """The position up to which kept messages were settled before a time, or are too many; 0 where none are."""
    over = log.retained_bytes - max_bytes
    start = records.number_key(log.settled_prefix, log.trimmed_to + 1)
    rows = yield Scan(start, records.after(log.settled_prefix), broker.bounds.sweep_rows)
    position = 0
    for _, value in rows_of(rows):
        mark = records.SettledMark(value)
        if over <= 0 and mark.settled_ms > since_ms:
            break
        position = mark.position
        over -= mark.size
    return position


class RangeRow:
    """A message of a range read: its record and its bytes, wherever they lay."""

    __slots__ = ("raw", "stored")

    def __init__(self, stored: Stored, raw: bytes) -> None:
        self.stored = stored
        self.raw = raw


def read_range(
    broker: Broker, log: Log, first: int, last: int, limit: int, max_bytes: int
) -> Steps[tuple[list[RangeRow], int]]:
    """Messages with first <= position <= last, in order, and the position up to which the answer is complete."""
    found = yield from read_records(broker, log, first, last, limit, max_bytes)
    stored = [Stored(value) for value in found.values]
    return [RangeRow(each, each.raw) for each in stored], found.complete_to


def read_records(
    broker: Broker, log: Log, first: int, last: int, limit: int, max_bytes: int, start: bytes = b""
) -> Steps[Records]:
    """The same as they are stored: nothing is taken apart but what says which messages they are.

    `start` is `after` of the read before, where this one goes on from there; else the first position is looked up.
    """
    last = min(last, log.stable_end)
    found = Records(last)
    if first > last:
        return found
    tickets = log.trimmed.read_begins(), log.removed.read_begins()
    try:
        if not start:
            start = records.number_key(log.active_prefix, (yield from rank_at(broker, log, first)))
        # Positions are dense: there cannot be more messages than that in the range, and what lies behind it is not read.
        limit = min(limit, last - first + 1)
        yield from _read_records(broker, log, start, last, limit, max_bytes, found)
    finally:
        log.trimmed.read_ends(tickets[0])
        log.removed.read_ends(tickets[1])
    return found


def _read_records(
    broker: Broker, log: Log, start: bytes, last: int, limit: int, max_bytes: int, found: Records
) -> Steps[None]:
    rows = rows_of((yield Scan(start, records.after(log.active_prefix), limit, max_bytes)))
    if rows:
        found.complete_to = min(_position(rows[-1]), last)
    while rows and _position(rows[-1]) > last:
        rows.pop()
    if rows:
        found.after = rows[-1][0] + b"\x00"
    settled = yield from settled_between(log, rows)
    found.values = [row[1] for row in rows]
    found.settled = bytes([row[0] in settled for row in rows]) if settled else bytes(len(rows))
    if not records.are_whole(found.values):
        yield from _with_bodies(broker, log, found)


def _position(row: Row) -> int:
    return records.position_and_body(row[1])[0]


def rank_at(broker: Broker, log: Log, position: int) -> Steps[int]:
    """A rank from which a scan meets this position first, or the next one that still exists.

    Between two entries the number grows at least as much as the position, so a guess never goes too far.
    """
    if log.by_position:
        return position
    rank = broker.number_base + position
    while True:
        rows = yield Scan(records.number_key(log.active_prefix, rank), records.after(log.active_prefix), 1)
        if not rows:
            return rank
        key, value = rows_of(rows)[0]
        found = Stored(value).position
        if found >= position:
            return rank
        rank = records.number_of(key) + (position - found)


def earliest(log: Log) -> Steps[int]:
    """The position of the oldest message that can still be read; one past the end where there is none."""
    start = log.active_prefix if log.retained or log.sessions is not None else _low_key(log)
    rows = yield Scan(start, records.after(log.active_prefix), 1)
    return Stored(rows_of(rows)[0][1]).position if rows else log.stable_end + 1


def position_at_time(broker: Broker, log: Log, time_ms: int) -> Steps[int]:
    """The first position enqueued at or after a time, found by halving; one past the end where there is none."""
    low, high = (yield from earliest(log)), log.stable_end + 1
    while low < high:
        middle = (low + high) // 2
        rank = yield from rank_at(broker, log, middle)
        rows = yield Scan(records.number_key(log.active_prefix, rank), records.after(log.active_prefix), 1)
        if not rows:
            high = middle
            continue
        stored = Stored(rows_of(rows)[0][1])
        if stored.enqueued_ms >= time_ms:
            high = middle
        else:
            low = max(stored.position, middle) + 1
    return low


def walk_to_time(broker: Broker, log: Log, first: int, time_ms: int) -> Steps[tuple[int, bool]]:
    """The first dead letter enqueued at or after a time, or the position from which to look on, and which it is.

    Dead letters lie in the order in which they died, so that halving would pass some by.
    """
    start = records.number_key(log.active_prefix, first)
    rows = yield Scan(start, records.after(log.active_prefix), broker.bounds.sweep_rows, broker.bounds.window_bytes)
    next_position = log.stable_end + 1
    for _, value in rows_of(rows):
        stored = Stored(value)
        next_position = min(stored.position + 1, next_position)
        if stored.position <= log.stable_end and stored.enqueued_ms >= time_ms:
            return stored.position, True
    return next_position, next_position > log.stable_end


def _low_key(log: Log) -> bytes:
    return records.number_key(log.active_prefix, log.stable_low)


def _with_bodies(broker: Broker, log: Log, found: Records) -> Steps[None]:
    """Puts the bodies that lie elsewhere into the records that refer to them."""
    places = [records.position_and_body(value) for value in found.values]
    numbers = list(dict.fromkeys(number for _, number in places if number))
    answer = yield Get(broker.bodies.keys(numbers)[: len(numbers)])
    raws: dict[int, bytes] = {}
    for number, value in zip(numbers, answer, strict=True):
        if isinstance(value, bytes):
            raws[number] = records.unsealed(value, "a body")
    values: list[bytes] = []
    marks: list[int] = []
    for (position, body), value, settled in zip(places, found.values, found.settled, strict=True):
        if body and body not in raws:
            rank = log.rank_of(Stored(value).sequence, position)
            if rank not in log.removed and rank not in log.trimmed:
                raise StoreCorrupt(f"body {body} is missing though a message refers to it")
            continue  # settled since its row was read, and no cursor kept it then
        values.append(records.with_body(value, raws[body]) if body else value)
        marks.append(settled)
    found.values, found.settled = values, bytes(marks)
