"""Looks at all rows of a partition and says whether they belong together: nothing missing, nothing left over.

Written against the stored form and not against the broker: counters must equal what the rows hold, every index row
must have its message and every message its index rows, every body as many copies as it counts.
"""

from __future__ import annotations

import struct
from collections import Counter

from polybus.message.message import Message
from polybus.message.overlay import overlay_from_bytes
from polybus.partition import records
from polybus.partition.broker import Broker
from polybus.partition.entry import entry_from
from polybus.partition.kinds import KINDS, MAIN
from polybus.partition.records import SettledMark, Stored

TABLES = b"!LMDXSTEUVQNBCZFRGHA"


class Rows:
    """A partition's rows by table, the prefix taken off the keys."""

    def __init__(self, rows: dict[bytes, bytes], prefix: bytes) -> None:
        self.tables: dict[bytes, dict[bytes, bytes]] = {bytes([letter]): {} for letter in TABLES}
        for key, value in rows.items():
            if key.startswith(prefix):
                at = len(prefix)
                self.tables[key[at : at + 1]][key[at + 1 :]] = value

    def of(self, table: bytes) -> dict[bytes, bytes]:
        return self.tables[table]


def log_and_number(key: bytes) -> tuple[int, int]:
    log_id, number = struct.unpack(">IQ", key)
    return log_id, number


def audit(rows: dict[bytes, bytes], broker: Broker) -> None:
    found = Rows(rows, broker.prefix)
    if not found.of(records.META):
        assert not any(found.tables.values())
        return
    counters, _ = records.broker_numbers(found.of(records.META)[b""])
    bodies, due_low, expiry_low, scheduled, scheduled_bytes, size, _, transfers, transfer_number = counters
    active = {log_and_number(key): Stored(value) for key, value in found.of(records.ACTIVE).items()}
    settled = {log_and_number(key): SettledMark(value) for key, value in found.of(records.SETTLED).items()}
    deferred = {log_and_number(key): Stored(value) for key, value in found.of(records.DEFERRED).items()}
    live = {key: stored for key, stored in active.items() if key not in settled}
    assert set(settled) <= set(active), "a mark of a kept message has no message"
    _audit_logs(found, broker, active, settled, deferred, live)
    _audit_indexes(found, broker, live, deferred, expiry_low)
    total = _audit_bodies(found, active, deferred, live, bodies)
    total += _audit_scheduled(found, scheduled, scheduled_bytes, due_low)
    total += _audit_outbox(found, transfers, transfer_number)
    total += _audit_stages(found)
    total += sum(stored.size for stored in (*live.values(), *deferred.values()) if not stored.body)
    total += sum(len(value) for value in found.of(records.SESSION_STATE).values())
    _audit_ids(found)
    assert size == total, f"the size counter says {size}, the rows hold {total}"


def _audit_logs(
    found: Rows,
    broker: Broker,
    active: dict[tuple[int, int], Stored],
    settled: dict[tuple[int, int], SettledMark],
    deferred: dict[tuple[int, int], Stored],
    live: dict[tuple[int, int], Stored],
) -> None:
    metas = {
        int.from_bytes(key, "big"): records.log_numbers(value) for key, value in found.of(records.LOG_META).items()
    }
    assert MAIN not in metas, "the main log's counters are in the broker's record"
    metas[MAIN] = records.broker_numbers(found.of(records.META)[b""])[1]
    assert {log_id for log_id, _ in (*active, *deferred)} <= set(metas), "messages of a log without counters"
    events = Counter(log_and_number(key)[0] for key in found.of(records.EVENTS))
    for log_id, numbers in metas.items():
        counter, positions, count, size, resting, resting_bytes, kept, kept_bytes, written, low = numbers
        own = {rank: stored for (log, rank), stored in live.items() if log == log_id}
        every = [stored for (log, _), stored in active.items() if log == log_id]
        asleep = [stored for (log, _), stored in deferred.items() if log == log_id]
        marks = [mark for (log, _), mark in settled.items() if log == log_id]
        assert (count, size) == (len(own), sum(stored.size for stored in own.values())), f"active of log {log_id}"
        assert (resting, resting_bytes) == (len(asleep), sum(stored.size for stored in asleep)), "deferred"
        assert (kept, kept_bytes) == (len(marks), sum(mark.size for mark in marks)), "retained"
        assert written >= events[log_id]
        assert low <= min(own, default=low), f"the low-water mark {low} is above a message"
        assert len({stored.position for stored in every}) == len(every), "two entries at one position"
        assert max((stored.position for stored in (*every, *asleep)), default=0) <= positions
        if log_id % KINDS == MAIN:
            top = max((stored.sequence for stored in (*every, *asleep)), default=0)
            assert top & (1 << 48) - 1 <= counter, "a number above the counter"
        for rank, stored in own.items():
            assert rank == (stored.sequence if log_id % KINDS == MAIN else stored.position)


def _audit_indexes(
    found: Rows,
    broker: Broker,
    live: dict[tuple[int, int], Stored],
    deferred: dict[tuple[int, int], Stored],
    expiry_low: int,
) -> None:
    numbers = {
        log_and_number(key): records.unsealed_number(value, "an index row")
        for key, value in found.of(records.NUMBERS).items()
    }
    dead = {(log, stored.sequence): rank for (log, rank), stored in live.items() if log % KINDS != MAIN}
    assert numbers == dead, "the index of numbers and the dead letters differ"
    expiring = {
        struct.pack(">QIQ", stored.expires_ms, log, stored.sequence)
        for (log, _), stored in (*live.items(), *deferred.items())
        if stored.expires_ms
    }
    expiring |= {
        struct.pack(">QIQ", overlay_from_bytes(stored.overlay).retry_ms, log, stored.sequence)
        for (log, _), stored in deferred.items()
        if stored.overlay and overlay_from_bytes(stored.overlay).retry_ms
    }
    assert set(found.of(records.EXPIRY)) == expiring, "the index by expiry and the messages differ"
    times = [struct.unpack_from(">Q", key)[0] for key in expiring]
    assert expiry_low <= min(times, default=expiry_low), "the expiry's low-water mark is above a row"
    sessions = set()
    for (log_id, _), stored in live.items():
        log = broker.log(log_id)
        if log.sessions is not None:
            sessions.add(_session_row(found, broker, log_id, stored))
    assert set(found.of(records.SESSION_MESSAGES)) == sessions, "the index of sessions and the messages differ"


def _session_row(found: Rows, broker: Broker, log_id: int, stored: Stored) -> bytes:
    entry = entry_from(broker.log(log_id), stored, False)
    if stored.body:
        body = found.of(records.BODIES)[struct.pack(">Q", stored.body)]
        entry.message = Message(records.unsealed(body, "a body"))
    session = (entry.session_id() or "").encode()
    return struct.pack(">IH", log_id, len(session)) + session + struct.pack(">Q", stored.sequence)


def _audit_bodies(
    found: Rows,
    active: dict[tuple[int, int], Stored],
    deferred: dict[tuple[int, int], Stored],
    live: dict[tuple[int, int], Stored],
    counter: int,
) -> int:
    """Gives the bytes of the bodies that count against the quota."""
    bodies = {
        struct.unpack(">Q", key)[0]: records.unsealed(value, "") for key, value in found.of(records.BODIES).items()
    }
    counts = {
        struct.unpack(">Q", key)[0]: struct.unpack(">II", records.unsealed(value, ""))
        for key, value in found.of(records.BODY_COUNTS).items()
    }
    parsed = {key: Stored(value) for key, value in found.of(records.ACTIVE).items()}
    marked = set(found.of(records.SETTLED))
    resting = [Stored(value) for value in found.of(records.DEFERRED).values()]
    copies = Counter(stored.body for stored in (*parsed.values(), *resting) if stored.body)
    alive = Counter(stored.body for key, stored in parsed.items() if stored.body and key not in marked)
    alive += Counter(stored.body for stored in resting if stored.body)
    assert set(bodies) == set(copies), "bodies and copies differ"
    assert counts == {number: (copies[number], alive[number]) for number in copies}, "a body counts its copies wrong"
    assert max(bodies, default=0) <= counter
    for stored in (*parsed.values(), *resting):
        if stored.body:
            assert stored.size == len(bodies[stored.body])
    return sum(len(bodies[number]) for number in bodies if alive[number])


def _audit_scheduled(found: Rows, count: int, size: int, low: int) -> int:
    waiting = [Stored(value) for value in found.of(records.SCHEDULED).values()]
    due = {struct.pack(">QQ", stored.expires_ms, stored.sequence) for stored in waiting}
    assert set(found.of(records.DUE)) == due, "the index by time and the scheduled messages differ"
    assert (count, size) == (len(waiting), sum(stored.size for stored in waiting)), "scheduled"
    assert low <= min((stored.expires_ms for stored in waiting), default=low), (
        "the schedule's low-water mark is too high"
    )
    return size


def _audit_outbox(found: Rows, count: int, last: int) -> int:
    rows = found.of(records.OUTBOX)
    assert count == len(rows), f"{count} transfers are counted, there are {len(rows)}"
    assert max((struct.unpack(">IHQ", key)[2] for key in rows), default=0) <= last
    return sum(Stored(value).size for value in rows.values())


def _audit_stages(found: Rows) -> int:
    stages = {
        key: struct.unpack(">QQ", records.unsealed(value, "")) for key, value in found.of(records.STAGES).items()
    }
    assert {key[:16] for key in found.of(records.STAGED)} <= set(stages), "staged messages without a stage"
    return sum(size for _, size in stages.values())


def _audit_ids(found: Rows) -> None:
    ids = {key: records.unsealed_number(value, "an id") for key, value in found.of(records.DUPLICATE_IDS).items()}
    times = {(key[8:], struct.unpack_from(">Q", key)[0]) for key in found.of(records.DUPLICATE_TIMES)}
    assert times == set(ids.items()), "the ids and their times differ"
