"""Connections to a PostgreSQL server: each with time-outs on everything, and a small pool of them for reads."""

from __future__ import annotations

import os
import queue
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import sql

from polybus import limits
from polybus.errors import StoreError, StoreFenced

Connection = psycopg.Connection[tuple[Any, ...]]


def connect(conninfo: str, session: sql.Composed) -> Connection:
    """A connection in autocommit mode that gives up by itself on whatever does not answer."""
    connection = psycopg.connect(
        conninfo,
        autocommit=True,
        connect_timeout=limits.POSTGRES_CONNECT_SECONDS,
        keepalives=1,
        keepalives_idle=limits.POSTGRES_KEEPALIVE_SECONDS,
        keepalives_interval=limits.POSTGRES_KEEPALIVE_SECONDS,
        keepalives_count=2,
        tcp_user_timeout=limits.POSTGRES_SILENCE_MS,
    )
    try:
        connection.execute(
            session,
            {
                "statement_ms": str(limits.POSTGRES_STATEMENT_MS),
                "silence_ms": str(limits.POSTGRES_SILENCE_MS),
            },
        )
    except BaseException:
        connection.close()
        raise
    return connection


def sever(connection: Connection) -> None:
    """Ends a connection from outside: a thread that waits on it wakes up with an error."""
    with suppress(OSError, psycopg.Error):
        duplicate = socket.socket(fileno=os.dup(connection.fileno()))
        with duplicate:
            duplicate.shutdown(socket.SHUT_RDWR)


class Pool:
    """A few connections that are made when first needed and made again when they broke."""

    def __init__(self, conninfo: str, session: sql.Composed, size: int) -> None:
        self._conninfo = conninfo
        self._session = session
        self._closed = False
        self._free: queue.SimpleQueue[Connection | None] = queue.SimpleQueue()
        self._open: list[Connection] = []
        for _ in range(size):
            self._free.put(None)

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """One connection for the time of a `with`. A broken one is not put back."""
        try:
            connection = self._free.get(timeout=limits.STORE_READ_SECONDS)
        except queue.Empty:
            raise StoreError("no connection came free in time") from None
        keep: Connection | None = None
        try:
            if connection is None or connection.closed:
                connection = self._connect()
            yield connection
            keep = connection
        finally:
            if keep is None or self._closed:
                self._drop(connection)
            self._free.put(keep)

    def close(self) -> None:
        """Ends all connections. One that is in use is cut off, and closed by the thread that uses it."""
        self._closed = True
        for connection in list(self._open):
            sever(connection)
        with suppress(queue.Empty):
            while True:
                self._drop(self._free.get_nowait())

    def _connect(self) -> Connection:
        if self._closed:
            raise StoreFenced("the store is closed")
        connection = connect(self._conninfo, self._session)
        self._open.append(connection)
        return connection

    def _drop(self, connection: Connection | None) -> None:
        if connection is None:
            return
        with suppress(psycopg.Error):
            connection.close()
        with suppress(ValueError):
            self._open.remove(connection)
