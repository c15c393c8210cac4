"""A PostgreSQL store that is only looked at: one read-only transaction, so that everything is of one moment.

The epoch in the owner's row stays as it is, so a bus that owns the store does not notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import psycopg
from psycopg import sql

from polybus.errors import StoreCorrupt, StoreError
from polybus.limits import STORE_COPY_BYTES, STORE_COPY_ROWS
from polybus.operations.store_reader import StoreReader
from polybus.rows import Row
from polybus.store.connections import Connection, connect
from polybus.store.format import StoreFormat
from polybus.store.postgres_url import parse_postgres_url
from polybus.store.queries import load_queries

# The transaction waits while other stores are looked at, and must not be ended for that.
_NO_HURRY: Final = "SELECT set_config('idle_in_transaction_session_timeout', '0', false)"
_ONE_MOMENT: Final = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


class PostgresReader(StoreReader):
    def __init__(self, url: str) -> None:
        address = parse_postgres_url(url)
        self.url = address.shown
        self._queries = load_queries(address.schema)
        self._connection = self._connect(address.conninfo)
        owner = sql.SQL("SELECT format FROM {}.store").format(sql.Identifier(address.schema))
        try:
            self._connection.execute(_NO_HURRY)
            self._connection.execute(_ONE_MOMENT)
            record = self._connection.execute(owner, binary=True).fetchone()
            if record is None:
                raise StoreCorrupt(f"{self.url}: its owner row is missing")
            found = StoreFormat.decode(record[0], self.url)
            found.check(self.url)
        except psycopg.Error as error:
            self.close()
            raise self._translated(error) from error
        except BaseException:
            self.close()
            raise
        self.store_id = found.store_id

    def _connect(self, conninfo: str) -> Connection:
        try:
            return connect(conninfo, self._queries["session"])
        except psycopg.Error as error:
            raise self._translated(error) from error

    def page(self, start: bytes, end: bytes) -> list[Row]:
        bounds = {"limit": STORE_COPY_ROWS, "max_bytes": STORE_COPY_BYTES}
        return self._run("scan", {"start": start, "end": end, **bounds})

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        values = dict(self._run("get", {"keys": list(keys)}))
        return [values.get(key) for key in keys]

    def _run(self, name: str, parameters: dict[str, object]) -> list[Row]:
        try:
            return self._connection.execute(self._queries[name], parameters, binary=True).fetchall()
        except psycopg.Error as error:
            raise self._translated(error) from error

    def _translated(self, error: psycopg.Error) -> StoreError:
        text = f"{self.url}: {str(error).strip() or type(error).__name__}"
        corrupt = (psycopg.errors.DataCorrupted, psycopg.errors.IndexCorrupted)
        return StoreCorrupt(text) if isinstance(error, corrupt) else StoreError(text)

    def close(self) -> None:
        self._connection.close()
