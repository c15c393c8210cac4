"""Removing everything that a deleted subscription left in its topic's partitions."""

from __future__ import annotations

from typing import Final

from polybus.partition import records
from polybus.partition.broker import Broker, Steps
from polybus.partition.entry import entry_from
from polybus.partition.kinds import KINDS, NO_FLOOR
from polybus.partition.log import Log
from polybus.partition.reading import load_bodies, rows_of, settled_between
from polybus.partition.records import Stored
from polybus.partition.settings import LogSettings
from polybus.rows import Row, Scan

_TABLES: Final = (
    records.ACTIVE,
    records.DEFERRED,
    records.NUMBERS,
    records.SETTLED,
    records.SESSION_MESSAGES,
    records.SESSION_STATE,
    records.EVENTS,
    records.LOG_META,
)

_COUNTED: Final = (records.DEFERRED, records.ACTIVE, records.SESSION_STATE)
"""Those of them whose rows count against the entity's size, in the order of their keys."""


def forget_subscription(broker: Broker, number: int) -> None:
    """The subscription's logs and locks leave memory; its rows are removed by `purge`."""
    for log_id in range(number * KINDS, number * KINDS + KINDS):
        log = broker.logs.pop(log_id, None)
        broker.session_logs.pop(log_id, None)
        if log is not None:
            _forget(broker, log)


def _forget(broker: Broker, log: Log) -> None:
    if log.dirty:
        broker.dirty_logs.remove(log)
    for lock in [lock for lock, entry in broker.locks.items() if entry.log is log]:
        del broker.locks[lock]
        broker.lock_ends.remove(log.settings.lock_ms, lock)
    if log.sessions is not None:
        for session in log.sessions.held.values():
            session.lost = True
        log.sessions.held.clear()
    log.paged_to = NO_FLOOR  # what is still on its way in finds no window
    for entry in [*log.memory.values(), *log.deferrals.entries.values()]:
        if not entry.gone:
            entry.gone = True
            log.bodies.detach(entry)


def purge(broker: Broker, number: int, at: bytes = b"") -> Steps[bytes]:
    """Removes some rows of a subscription that is forgotten; gives where to go on, nothing where all are gone.

    Everything that was written before must be synced.
    """
    logs = [
        Log(broker.prefix, log_id, LogSettings(number, ""), broker.bounds, broker.bodies)
        for log_id in range(number * KINDS, number * KINDS + KINDS)
    ]
    for table in _COUNTED:
        for log in logs:
            prefix = records.log_prefix(broker.prefix, table, log.id)
            start, end = max(prefix, at), records.after(prefix)
            if start >= end:
                continue
            rows = rows_of((yield Scan(start, end, broker.bounds.sweep_rows, broker.bounds.window_bytes)))
            if rows:
                yield from _free(broker, log, table, rows)
                return rows[-1][0] + b"\x00"
    batch = broker.out()
    for log in logs:
        for table in _TABLES:
            prefix = records.log_prefix(broker.prefix, table, log.id)
            batch.delete_range(prefix, records.after(prefix))
    return b""


def _free(broker: Broker, log: Log, table: bytes, rows: list[Row]) -> Steps[None]:
    """Removes rows and gives back their space; bodies that others share stay."""
    if table == records.SESSION_STATE:
        for key, value in rows:
            broker.size -= len(value)
            broker.out().delete(key)
        return
    settled: set[bytes] = set()
    if table == records.ACTIVE:
        log.retained = 1  # how many there are is forgotten; the rows know
        settled = yield from settled_between(log, rows)
    yield from _free_rows(broker, log, rows, settled)


def _free_rows(broker: Broker, log: Log, rows: list[Row], settled: set[bytes]) -> Steps[None]:
    entries = [entry_from(log, Stored(value), False) for _, value in rows]
    yield from load_bodies(broker, entries)
    batch = broker.out()
    for (key, _), entry in zip(rows, entries, strict=True):
        batch.delete(key)
        if entry.expires_ms:
            batch.delete(records.expiry_key(broker.prefix, entry.expires_ms, log.id, entry.sequence))
        if entry.body and key in settled:
            broker.bodies.drop_copy(batch, entry.body)
            broker.bodies.detach(entry)
        elif entry.body:
            broker.size -= broker.bodies.release(batch, entry)
        elif key not in settled:
            broker.size -= entry.size
