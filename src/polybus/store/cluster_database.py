"""The database of a cluster of nodes: who is a member, what all have agreed on, and the authority of their links.

Every lease is judged by the server's clock. Nothing here is asked for on the way of a message: messages are kept safe by
the owner row of the store that holds them. One connection, used by one thread at a time.
"""

from __future__ import annotations

import json
import select
import socket
import time
from contextlib import suppress
from typing import Any, Final

import psycopg

from polybus.errors import ConfigError, StoreError
from polybus.limits import POSTGRES_LEASE_SECONDS, POSTGRES_TAKE_SECONDS
from polybus.store.cluster_rows import Agreed, ClusterView, Joining, MemberRow, Owned, Shared, check_agreed
from polybus.store.connections import Connection, connect
from polybus.store.postgres_url import parse_postgres_url
from polybus.store.queries import load_queries

FORMAT: Final = 1


class ClusterDatabase:
    def __init__(self, url: str) -> None:
        address = parse_postgres_url(url)
        self.shown = address.shown
        self._schema = address.schema
        self._conninfo = address.conninfo
        self._queries = load_queries(address.schema, "cluster.sql")
        self._connection: Connection | None = None
        self._listening = False

    # Joining

    def join(self, joining: Joining) -> Shared:
        """Makes the node a member. ConfigError where its settings differ or its name is a living one's."""
        try:
            return self._join(joining)
        except BaseException:
            self._drop()
            raise

    def _join(self, joining: Joining) -> Shared:
        seen: tuple[str, object] | None = None
        while True:
            try:
                shared, holder = self._try_to_join(joining)
            except psycopg.Error as error:
                raise self._failed(error) from None  # it is all in the one line
            if shared is not None:
                self.tell()
                return shared
            process, address, until, _ = holder
            if seen is not None and seen != (process, until):
                raise ConfigError(f"the node {joining.name!r} is alive, at {address}: give this one another name")
            seen = (process, until)
            time.sleep(POSTGRES_TAKE_SECONDS)

    def _try_to_join(self, joining: Joining) -> tuple[Shared | None, tuple[Any, ...]]:
        with self._connected().transaction():
            self._run("joining_lock", schema=self._schema)
            if not self._one("is_made", schema=self._schema)[0]:
                self._make(joining)
            found, secret, authority, authority_key, agreed = self._one("shared")
            if found != FORMAT:
                raise ConfigError(f"{self.shown}: the cluster has format {found}; this version knows {FORMAT}")
            wanted = joining.agreed(bytes(secret))
            if self._one("living", name=joining.name)[0] == 0:
                self._run("agree", agreed=json.dumps(wanted))
            else:
                check_agreed(agreed, wanted)
            entered = self._run(
                "enter",
                name=joining.name,
                process=joining.process,
                address=joining.address,
                version=joining.version,
                protocol=joining.protocol,
                seconds=POSTGRES_LEASE_SECONDS,
            ).fetchone()
            if entered is None:
                return None, self._one("holder", name=joining.name)
            return Shared(bytes(secret), bytes(authority), bytes(authority_key)), ()

    def _make(self, joining: Joining) -> None:
        fresh = joining.fresh()
        for name in ("create_schema", "create_cluster", "create_members"):
            self._run(name)
        self._run(
            "create_row",
            format=FORMAT,
            secret=fresh.secret,
            authority=fresh.authority,
            authority_key=fresh.authority_key,
            agreed="{}",
        )

    # Being a member

    def beat(self, name: str, process: str, owned: list[Owned], clients: list[str]) -> bool:
        """Renews the lease; False where another has the name by now."""
        rows = json.dumps([[one.store, one.epoch, one.lease_left_ms, one.serving] for one in owned])
        found = self._safely(
            "beat",
            name=name,
            process=process,
            owned=rows,
            clients=json.dumps(clients),
            seconds=POSTGRES_LEASE_SECONDS,
        )
        return bool(found)

    def leave(self, name: str, process: str) -> None:
        """Gives the name back at once."""
        self._safely("leave", name=name, process=process)
        self.tell()

    def look(self) -> ClusterView:
        members = tuple(_member(row) for row in self._safely("members"))
        move = self._safely("move")
        return ClusterView(members, *(move[0] if move else (None, None)))

    def is_made(self) -> bool:
        return bool(self._safely("is_made", schema=self._schema)[0][0])

    def agreed(self) -> Agreed:
        found: Agreed = self._safely("shared")[0][4]
        return found

    def begin_move(self, store: str, target: str, seconds: float) -> bool:
        """Whether the store may move now: one does at a time."""
        begun = bool(self._safely("begin_move", store=store, target=target, seconds=seconds))
        self.tell()
        return begun

    def end_move(self, store: str) -> None:
        self._safely("end_move", store=store)
        self.tell()

    def drain(self, name: str, draining: bool) -> bool:
        """Whether there is such a member."""
        found = bool(self._safely("drain", name=name, draining=draining))
        self.tell()
        return found

    # Notices

    def tell(self) -> None:
        """Wakes everybody who waits: something has changed."""
        self._safely("tell")

    def wait(self, seconds: float, wake: socket.socket) -> None:
        """Returns with a notice, with a byte at `wake`, or when the time is over."""
        try:
            connection = self._connected()
            if not self._listening:
                connection.execute(self._queries["listen"])
                self._listening = True
            readable, _, _ = select.select([connection.fileno(), wake.fileno()], [], [], seconds)
            if connection.fileno() in readable:
                for _ in connection.notifies(timeout=0):
                    pass
            if wake.fileno() in readable:
                wake.recv(4096)
        except psycopg.Error as error:
            raise self._failed(error) from error

    def close(self) -> None:
        self._drop()

    # The connection

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._listening = False
            self._connection = connect(self._conninfo, self._queries["session"])
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._listening = False
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _failed(self, error: psycopg.Error) -> StoreError:
        self._drop()
        return StoreError(f"{self.shown}: {' '.join(str(error).split()) or type(error).__name__}")

    def _safely(self, query: str, /, **parameters: object) -> list[tuple[Any, ...]]:
        try:
            cursor = self._run(query, **parameters)
            return cursor.fetchall() if cursor.description is not None else []
        except psycopg.Error as error:
            raise self._failed(error) from error

    def _run(self, query: str, /, **parameters: object) -> psycopg.Cursor[tuple[Any, ...]]:
        return self._connected().execute(self._queries[query], parameters or None)

    def _one(self, query: str, /, **parameters: object) -> tuple[Any, ...]:
        row = self._run(query, **parameters).fetchone()
        if row is None:
            raise StoreError(f"{self.shown}: a row of the cluster is missing")
        return row


def _member(row: tuple[Any, ...]) -> MemberRow:
    name, process, address, version, protocol, draining, owned, clients, alive, silent_s = row
    return MemberRow(
        name=name,
        process=process,
        address=address,
        version=version,
        protocol=protocol,
        draining=draining,
        alive=alive,
        silent_s=silent_s,
        owned=tuple(Owned(*one) for one in owned),
        clients=tuple(clients),
    )
