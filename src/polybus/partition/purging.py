"""Removing everything that a deleted subscription left in its topic's partitions."""

from __future__ import annotations

from polybus.limits import SWEEP_ROWS
from polybus.partition import records
from polybus.partition.broker import Broker, Steps
from polybus.partition.log import KINDS, Log
from polybus.partition.receiving import rows_of, settled_between
from polybus.partition.records import Stored
from polybus.partition.settings import LogSettings
from polybus.rows import Get, Scan

_TABLES = (
    records.ACTIVE,
    records.DEFERRED,
    records.NUMBERS,
    records.SETTLED,
    records.SESSION_MESSAGES,
    records.SESSION_STATE,
    records.EVENTS,
    records.LOG_META,
)


def forget_subscription(broker: Broker, number: int) -> None:
    """The subscription's logs and locks leave memory; its rows are removed by `purge`."""
    for log_id in range(number * KINDS, number * KINDS + KINDS):
        log = broker.logs.pop(log_id, None)
        if log is not None:
            for lock in [lock for lock, entry in broker.locks.items() if entry.log is log]:
                del broker.locks[lock]


def purge(broker: Broker, number: int) -> Steps[None]:
    """Removes the rows of a subscription that is forgotten, a bounded number in each step."""
    for log_id in range(number * KINDS, number * KINDS + KINDS):
        log = Log(broker.prefix, log_id, LogSettings(number, ""))
        yield from _free(broker, log, log.active_prefix)
        yield from _free(broker, log, log.deferred_prefix)
        batch = broker.out()
        for table in _TABLES:
            prefix = records.log_prefix(broker.prefix, table, log_id)
            batch.delete_range(prefix, records.after(prefix))


def _free(broker: Broker, log: Log, table: bytes) -> Steps[None]:
    """Gives back the space of a table's messages; bodies that others share stay."""
    start = table
    while True:
        rows = rows_of((yield Scan(start, records.after(table), SWEEP_ROWS)))
        if not rows:
            return
        settled = (yield from settled_between(log, list(rows))) if table == log.active_prefix else set()
        stored = [(key, Stored(value)) for key, value in rows]
        bodies = list(dict.fromkeys(row.body for _, row in stored if row.body))
        answer = yield Get(broker.bodies.keys(bodies))
        broker.bodies.load(bodies, answer)
        batch = broker.out()
        for key, row in stored:
            batch.delete(key)
            if row.body:
                broker.size -= broker.bodies.release_copy(batch, row.body)
            elif key not in settled:
                broker.size -= row.size
        start = rows[-1][0] + b"\x00"
