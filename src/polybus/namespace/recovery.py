"""How a store's partitions come back: brokers from the rows, minus what others took over meanwhile."""

from __future__ import annotations

from polybus.amqp.codec import decode
from polybus.errors import BugError
from polybus.namespace.partition_host import PartitionHost
from polybus.namespace.promise import Promise
from polybus.namespace.sender import MARKS
from polybus.namespace.store_host import StoreHost
from polybus.partition import moving
from polybus.partition.broker import Broker
from polybus.partition.receiving import rows_of
from polybus.partition.records import after, unsealed
from polybus.rows import Row, Scan

Undo = dict[bytes, list[bytes]]
"""Partition prefix to keys of rows that were taken over elsewhere."""


async def marks_about(store: StoreHost, others: list[StoreHost]) -> list[tuple[StoreHost, list[Row]]]:
    """The marks that other stores hold about this one."""
    found: list[tuple[StoreHost, list[Row]]] = []
    prefix = MARKS + store.store_id
    for other in others:
        rows = await other.run(_scan(prefix))
        if rows:
            found.append((other, rows))
    return found


def _scan(prefix: bytes):  # type: ignore[no-untyped-def]
    return rows_of((yield Scan(prefix, after(prefix), 1 << 30)))


def doubtful_keys(marks: list[tuple[StoreHost, list[Row]]]) -> list[bytes]:
    keys: list[bytes] = []
    for _, rows in marks:
        for _, value in rows:
            decoded, _ = decode(unsealed(value, "a mark"), 0)
            if not isinstance(decoded, list):
                raise BugError("a mark is not a list of keys")
            keys += [key for key in decoded if isinstance(key, bytes)]
    return keys


async def undo(partition: PartitionHost, broker: Broker, keys: list[bytes]) -> None:
    """Removes the partition's rows that others have taken over; returns when that is synced."""
    own = [key for key in keys if key.startswith(broker.prefix)]
    if not own:
        return
    await partition.run(moving.undo(broker, own))
    done: Promise[None] = Promise()
    broker.out().replies.append((done.reply, None, None))
    await done


async def remove_marks(marks: list[tuple[StoreHost, list[Row]]]) -> None:
    """The doubt is settled: the marks go."""
    for store, rows in marks:
        for key, _ in rows:
            store.batch.delete(key)
        store.touch()
