"""A messaging store on a PostgreSQL server: for those who outgrow one machine.

The rows are one table with a `bytea` key, which PostgreSQL compares byte by byte as all stores do. Beside it is
one owner row with an epoch. Opening raises the epoch under a row lock; every commit checks it in its own
transaction, so neither an old process nor a second server on the same database can write once another has
opened the store. That keeps the rows safe; so that two processes do not take the store from each other for ever, the
owner also has a lease in that row, renewed by the server's clock, and nobody opens a store whose owner is alive.

A commit whose end is not known fences the store: it may or may not be there. So it is where the connection broke,
where the server did not answer, and where it warns: then a wait for standbys was cancelled, and what it confirms is on
one machine only. The statements live in `queries.sql`, the connections in `connections`; retries live nowhere.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

import psycopg
from psycopg import errors as pg_errors
from psycopg import sql

from polybus.errors import BugError, StoreCorrupt, StoreError, StoreFenced, StoreFull
from polybus.limits import (
    POSTGRES_LEASE_SECONDS,
    POSTGRES_RENEW_SECONDS,
    POSTGRES_TAKE_SECONDS,
    STORE_KEY_BYTES,
    STORE_READ_THREADS,
)
from polybus.store.base import NO_LIMIT, Batch, Copy, Row, Store
from polybus.store.connections import Connection, Pool, connect, sever
from polybus.store.copying import copy_into_folder
from polybus.store.format import StoreFormat, new_format
from polybus.store.lease import Lease, boot_ns
from polybus.store.postgres_url import parse_postgres_url
from polybus.store.queries import load_queries

_PROMISES = ("fsync", "synchronous_commit", "full_page_writes")
_SAFE_COMMITS = ("on", "remote_apply")
"""Values of synchronous_commit under which a confirmed commit is on a standby's disk, too."""
PROCESS: Final = token_hex(16)
"""Tells this process from every other: what it owned before, it may open again at once."""


class StoreOwned(StoreError):
    """Another process that is alive owns the store."""


@dataclass(frozen=True)
class Holder:
    """Who opens stores, as their owner rows name it."""

    node: str
    address: str = ""
    process: str = PROCESS
    by_lease: bool = False
    """A node of a cluster. It takes a store from another only when that one's lease has run out or was given back: an
    owner whose connection broke may still hand out what it has in memory. It does not wait, either, for it looks at
    all stores again and again."""


def this_process() -> Holder:
    return Holder(f"{socket.gethostname()}/{os.getpid()}")


class PostgresStore(Store):
    """The store in one schema of one database, made where it is new."""

    reads_block = True

    def __init__(
        self,
        url: str,
        *,
        unsafe: bool = False,
        store_id: bytes | None = None,
        holder: Holder | None = None,
    ) -> None:
        address = parse_postgres_url(url)
        self.url = address.shown
        self._schema = address.schema
        self._conninfo = address.conninfo
        self._queries = load_queries(address.schema)
        self._holder = holder or this_process()
        self._lease = Lease()
        self.lease = self._lease if self._holder.by_lease else None
        self._warnings: list[str] = []
        """What the server has warned of since the commit under way began."""
        self._ended = threading.Event()
        self._fenced: str | None = None
        self._closed = False
        self._writing = threading.Lock()
        self._writer = self._connect()
        try:
            self.unsafe = self._check_promises(unsafe)
            if address.replicated:
                self._check_replicated()
            self.format, self.epoch = self._take_over(store_id)
        except psycopg.Error as error:
            self._writer.close()
            raise self._translated(error) from error
        except BaseException:
            self._writer.close()
            raise
        self.store_id = self.format.store_id
        self._pool = Pool(self._conninfo, self._queries["session"], STORE_READ_THREADS)
        self._writer.add_notice_handler(self._noticed)
        threading.Thread(target=self._keep_lease, name=f"lease of {self.url}", daemon=True).start()

    def _noticed(self, notice: psycopg.errors.Diagnostic) -> None:
        """A commit gives no cause for warnings but one: that it was confirmed before its standbys had it."""
        if notice.severity_nonlocalized == "WARNING":
            self._warnings.append(notice.message_primary or "a warning without words")

    def _connect(self) -> Connection:
        try:
            return connect(self._conninfo, self._queries["session"])
        except psycopg.Error as error:
            raise self._translated(error) from error

    def _check_promises(self, unsafe: bool) -> bool:
        values = self._one("promises", {})
        broken = [name for name, value in zip(_PROMISES, values, strict=True) if value == "off"]
        if broken and not unsafe:
            raise StoreError(
                f"{self.url}: the server has {', '.join(broken)} off, so accepted would not mean safe; "
                "turn it on, or say unsafe"
            )
        return bool(broken)

    def _check_replicated(self) -> None:
        """A store that is declared replicated may not confirm what is on one machine only."""
        waits, standbys = self._one("replication", {})
        if waits not in _SAFE_COMMITS:
            raise StoreError(
                f"{self.url} is declared replicated, but the server has synchronous_commit {waits}, which does not wait"
                " until a standby has written; set it to on"
            )
        if not standbys.strip():
            raise StoreError(
                f"{self.url} is declared replicated, but the server names no standby in synchronous_standby_names, so"
                " that no commit waits for one; name them, as in 'ANY 1 (*)'"
            )

    def _take_over(self, store_id: bytes | None) -> tuple[StoreFormat, int]:
        """Becomes the only writer. An owner that is alive is waited for as long as its lease lasts, then respected."""
        until_s = time.monotonic() + POSTGRES_LEASE_SECONDS + 2 * POSTGRES_RENEW_SECONDS
        while True:
            found, epoch = self._try_to_take(store_id)
            if epoch is not None:
                return found, epoch
            if self._holder.by_lease or time.monotonic() > until_s:
                node, address, _, _ = self._one("owner", {})
                raise StoreOwned(
                    f"{self.url} is owned by {node}{f' at {address}' if address else ''}, which is alive"
                )
            time.sleep(POSTGRES_TAKE_SECONDS)

    def _try_to_take(self, store_id: bytes | None) -> tuple[StoreFormat, int | None]:
        """Makes what is missing, checks whose store it is, and takes it where nobody alive has it."""
        with self._writer.transaction():
            self._run("opening_lock", {"schema": self._schema})
            if not self._one("is_made", {"schema": self._schema})[0]:
                self._make(new_format(time.time_ns() // 1_000_000, store_id))
            if not self._one("has_lease", {"schema": self._schema})[0]:
                self._run("add_lease", {})
            found = StoreFormat.decode(self._one("read_owner", {})[0], self.url)
            found.check(self.url, store_id)
            holder = self._holder
            names = {"node": holder.node, "address": holder.address, "process": holder.process}
            terms = {"by_lease": holder.by_lease, "seconds": POSTGRES_LEASE_SECONDS}
            asked_ns = boot_ns()
            taken = self._run("take", {**names, **terms}).fetchone()
            if taken is not None:
                self._lease.renewed(asked_ns, POSTGRES_LEASE_SECONDS)
            if taken is not None and found.is_older:
                found = found.raised()
                self._run("raise_format", {"format": found.encode()})
            return found, None if taken is None else int(taken[0])

    def _keep_lease(self) -> None:
        """Renews the lease while the store is open; one that cannot be renewed is lost, and the store with it."""
        while not self._ended.wait(POSTGRES_RENEW_SECONDS):
            with self._writing:
                if self._closed or self._fenced is not None:
                    return
                try:
                    terms = {"epoch": self.epoch, "seconds": POSTGRES_LEASE_SECONDS}
                    asked_ns = boot_ns()
                    if self._run("renew", terms).fetchone() is None:
                        self._fence("another process has opened this store")
                    else:
                        self._lease.renewed(asked_ns, POSTGRES_LEASE_SECONDS)
                except psycopg.Error as error:
                    self._fence(str(error))

    def _fence(self, why: str) -> None:
        self._fenced = why
        self._lease.lost = True

    def _make(self, fresh: StoreFormat) -> None:
        for name in ("create_schema", "create_store", "create_kv", "store_values_plain"):
            self._run(name, {})
        self._run("create_owner", {"format": fresh.encode()})

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        values = dict(self._read("get", {"keys": list(keys)}))
        return [values.get(key) for key in keys]

    def scan(self, start: bytes, end: bytes, limit: int, max_bytes: int = NO_LIMIT) -> list[Row]:
        if start >= end or limit <= 0:
            return []
        return self._read("scan", {"start": start, "end": end, "limit": limit, "max_bytes": max_bytes})

    def _read(self, name: str, parameters: dict[str, Any]) -> list[Row]:
        if self._closed:
            raise StoreFenced(f"{self.url} is closed")
        try:
            with self._pool.connection() as connection:
                return self._rows(connection, name, parameters)
        except psycopg.Error as error:
            raise self._translated(error) from error

    def _rows(self, connection: Connection, name: str, parameters: dict[str, Any]) -> list[Row]:
        return connection.execute(self._queries[name], parameters, binary=True).fetchall()

    def commit(self, batch: Batch) -> None:
        gone, puts = _last_words(batch)
        with self._writing:
            if self._closed or self._fenced is not None:
                raise StoreFenced(f"{self.url}: fenced after: {self._fenced or 'it was closed'}")
            self._warnings.clear()
            try:
                owned = self._write(batch, gone, puts)
            except pg_errors.DiskFull as error:
                # The server has said so itself and has rolled the transaction back.
                raise StoreFull(f"{self.url}: {error}") from error
            except psycopg.Error as error:
                self._fence(str(error))
                raise self._translated(error) from error
            if not owned:
                self._fence("another process has opened this store")
                raise StoreFenced(f"{self.url}: {self._fenced}")
            if self._warnings:
                self._fence("; ".join(self._warnings))
                raise StoreError(f"{self.url}: a commit may be on one machine only: {self._fenced}")

    def _write(self, batch: Batch, gone: list[bytes], puts: dict[bytes, bytes]) -> bool:
        parameters = {"epoch": self.epoch, "gone": gone, "keys": list(puts), "values": list(puts.values())}
        if not batch.ranges:
            return bool(self._one("commit", parameters)[0])
        with self._writer.transaction():
            if self._run("own", {"epoch": self.epoch}).fetchone() is None:
                return False
            for start, end in batch.ranges:
                self._run("delete_range", {"start": start, "end": end})
            self._run("commit", parameters)
        return True

    def _run(self, name: str, parameters: dict[str, Any]) -> psycopg.Cursor[tuple[Any, ...]]:
        statement: sql.Composed = self._queries[name]
        return self._writer.execute(statement, parameters, binary=True)

    def _one(self, name: str, parameters: dict[str, Any]) -> tuple[Any, ...]:
        row = self._run(name, parameters).fetchone()
        if row is None:
            raise StoreCorrupt(f"{self.url}: its owner row is missing")
        return row

    def free_bytes(self) -> int | None:
        """Unknown: PostgreSQL does not tell. A full server refuses the commit, and nothing of it is written."""
        return None

    def copy(self, target: Path) -> Copy:
        return _PostgresCopy(self, self._connect(), target)

    def begin_snapshot(self, connection: Connection) -> None:
        """From now on the connection sees the rows as they are now."""
        try:
            connection.execute(self._queries["one_moment"])
            connection.execute(self._queries["no_hurry"])  # the moment is that of the first statement
        except psycopg.Error as error:
            raise self._translated(error) from error

    def page(self, connection: Connection, start: bytes, end: bytes, limit: int, max_bytes: int) -> list[Row]:
        parameters = {"start": start, "end": end, "limit": limit, "max_bytes": max_bytes}
        try:
            return self._rows(connection, "scan", parameters)
        except psycopg.Error as error:
            raise self._translated(error) from error

    def close(self) -> None:
        """Gives the lease back and ends all connections, also those that a thread waits on: a server that hangs must
        not hang us."""
        self._closed = True
        self._lease.lost = True
        self._ended.set()
        idle = self._writing.acquire(blocking=False)
        if not idle:
            sever(self._writer)
            self._writing.acquire()
        try:
            if idle and self._fenced is None:
                with suppress(psycopg.Error):
                    self._run("give_back", {"epoch": self.epoch})
            self._writer.close()
        finally:
            self._writing.release()
        self._pool.close()

    def _translated(self, error: psycopg.Error) -> StoreError:
        text = f"{self.url}: {str(error).strip() or type(error).__name__}"
        corrupt = (pg_errors.DataCorrupted, pg_errors.IndexCorrupted)
        return StoreCorrupt(text) if isinstance(error, corrupt) else StoreError(text)


class _PostgresCopy(Copy):
    """A copy through a connection and a transaction of its own."""

    def __init__(self, store: PostgresStore, connection: Connection, target: Path) -> None:
        self._store = store
        self._connection = connection
        self._target = target

    def fix(self) -> None:
        self._store.begin_snapshot(self._connection)

    def save(self) -> None:
        copy_into_folder(self._store.store_id, lambda *page: self._store.page(self._connection, *page), self._target)

    def close(self) -> None:
        self._connection.close()


def _last_words(batch: Batch) -> tuple[list[bytes], dict[bytes, bytes]]:
    """What the batch comes to for each key: keys to remove, and values to write."""
    last = dict(batch.ops)
    if last and len(max(last, key=len)) > STORE_KEY_BYTES:
        raise BugError(f"a key is longer than {STORE_KEY_BYTES} bytes")
    gone = [key for key, value in last.items() if value is None]
    return gone, {key: value for key, value in last.items() if value is not None}
