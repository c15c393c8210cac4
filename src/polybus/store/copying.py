"""Copies the contents of one store into another: backups of stores that are no files, and restoring them.

A backup is itself a store in a folder (`rocksdb:FOLDER`) with the same id and the same rows, so it can be
opened, looked into and copied back without any further tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from polybus.limits import STORE_COPY_BYTES, STORE_COPY_ROWS, STORE_KEY_BYTES
from polybus.store.base import Batch, Row, Store
from polybus.store.folder import make_fresh_folder

PAST_ALL_KEYS = b"\xff" * (STORE_KEY_BYTES + 1)
"""Above every key that may be stored: longer than any, and nothing but the highest byte."""

ScanPage = Callable[[bytes, bytes, int, int], list[Row]]


def pages(scan: ScanPage) -> Iterator[list[Row]]:
    """All rows in key order, a page at a time; `scan` decides whether the pages belong to one moment."""
    start = b""
    while rows := scan(start, PAST_ALL_KEYS, STORE_COPY_ROWS, STORE_COPY_BYTES):
        yield rows
        start = rows[-1][0] + b"\0"


def copy_rows(scan: ScanPage, target: Store) -> None:
    """Puts all rows that `scan` finds into `target`, in batches of bounded size."""
    for rows in pages(scan):
        batch = Batch()
        for key, value in rows:
            batch.put(key, value)
        target.commit(batch)


def copy_into_folder(store_id: bytes, scan: ScanPage, target: Path) -> None:
    """Makes a store in the folder `target`, which must not exist, with this id and all rows that `scan` finds."""
    # Imported here because a bus that only lives in memory need not load RocksDB.
    from polybus.store.rocks import RocksStore

    make_fresh_folder(target)
    copy = RocksStore(target, store_id=store_id)
    try:
        copy_rows(scan, copy)
    finally:
        copy.close()
