"""Who owns a store on PostgreSQL, and what a confirmed commit is worth: leases, and waits for standbys that end early."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from polybus.errors import ConfigError, StoreError, StoreFenced
from polybus.limits import POSTGRES_LEASE_SECONDS
from polybus.store import postgres as module
from polybus.store.base import Batch
from polybus.store.postgres import PostgresStore
from polybus.store.postgres_url import parse_postgres_url
from tests.support.postgres import PostgresServer, postgres_server

_CHILD = """
import sys
from polybus.errors import StoreError
from polybus.store.base import Batch
from polybus.store.postgres import PostgresStore

store = PostgresStore(sys.argv[1])
print("open", flush=True)
for line in sys.stdin:
    batch = Batch()
    batch.put(line.strip().encode(), b"v")
    try:
        store.commit(batch)
        print("committed", flush=True)
    except StoreError as error:
        print(type(error).__name__, flush=True)
"""


ANOTHER = module.Holder("elsewhere", process="another")


def put(store: PostgresStore, key: bytes) -> None:
    batch = Batch()
    batch.put(key, b"v")
    store.commit(batch)


class OtherProcess:
    """A process that owns a store and commits a key when it is told to."""

    def __init__(self, url: str) -> None:
        environment = {**os.environ, "POLYBUS_BUILD": "plain"}
        self._child = subprocess.Popen(
            [sys.executable, "-c", _CHILD, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def answer(self) -> str:
        assert self._child.stdout is not None
        return self._child.stdout.readline().strip()

    def commit(self, key: str) -> str:
        assert self._child.stdin is not None
        print(key, file=self._child.stdin, flush=True)
        return self.answer()

    def signal(self, number: int) -> None:
        self._child.send_signal(number)

    def end(self) -> None:
        self._child.send_signal(signal.SIGCONT)
        self._child.kill()
        self._child.communicate(timeout=30)


@pytest.fixture
def other(postgres_url: str) -> Iterator[OtherProcess]:
    process = OtherProcess(postgres_url)
    try:
        assert process.answer() == "open"
        yield process
    finally:
        process.end()


def test_a_store_whose_owner_lives_is_not_taken(postgres_url: str, other: OtherProcess) -> None:
    """Two processes on one store took it from each other for ever."""
    assert other.commit("a") == "committed"
    with pytest.raises(StoreError, match=r"is owned by .*, which is alive"):
        PostgresStore(postgres_url)
    assert other.commit("b") == "committed"


def test_a_store_is_taken_at_once_when_its_owner_has_died(postgres_url: str, other: OtherProcess) -> None:
    assert other.commit("a") == "committed"
    other.signal(signal.SIGKILL)
    began_s = time.monotonic()
    store = PostgresStore(postgres_url)
    assert time.monotonic() - began_s < POSTGRES_LEASE_SECONDS
    assert [key for key, _ in store.scan(b"", b"\xff", 10)] == [b"a"]
    put(store, b"b")
    store.close()


def test_a_frozen_owner_loses_its_store_with_its_lease_and_writes_nothing_when_it_thaws(
    postgres_url: str, other: OtherProcess
) -> None:
    assert other.commit("a") == "committed"
    other.signal(signal.SIGSTOP)
    store = PostgresStore(postgres_url)
    put(store, b"b")
    other.signal(signal.SIGCONT)
    assert other.commit("c") == "StoreFenced"
    assert [key for key, _ in store.scan(b"", b"\xff", 10)] == [b"a", b"b"]
    store.close()


def test_whoever_opens_a_store_again_in_one_process_need_not_wait(postgres_url: str) -> None:
    first = PostgresStore(postgres_url)
    began_s = time.monotonic()
    second = PostgresStore(postgres_url)
    assert time.monotonic() - began_s < POSTGRES_LEASE_SECONDS
    with pytest.raises(StoreFenced, match="another process"):
        put(first, b"a")
    put(second, b"b")
    first.close()
    second.close()


def test_a_lease_is_renewed_while_nothing_is_written(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POSTGRES_LEASE_SECONDS", 1)
    monkeypatch.setattr(module, "POSTGRES_RENEW_SECONDS", 0.1)
    store = PostgresStore(postgres_url)
    with pytest.raises(StoreError, match="which is alive"):
        PostgresStore(postgres_url, holder=ANOTHER)  # it waits for longer than a lease lasts
    put(store, b"a")
    store.close()
    PostgresStore(postgres_url, holder=ANOTHER).close()


def test_a_store_without_a_lease_gets_one(postgres_url: str) -> None:
    PostgresStore(postgres_url).close()
    address = parse_postgres_url(postgres_url)
    with psycopg.connect(address.conninfo, autocommit=True) as administrator:
        for column in ("node", "address", "process", "session", "session_start", "lease_until"):
            administrator.execute(f"ALTER TABLE {address.schema}.store DROP COLUMN {column}")
    store = PostgresStore(postgres_url)
    put(store, b"a")
    store.close()


# Replication


@contextmanager
def administrator_of(server: PostgresServer) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(parse_postgres_url(server.url("x")).conninfo, autocommit=True) as connection:
        yield connection


def test_a_commit_whose_wait_for_standbys_is_cancelled_is_not_confirmed() -> None:
    """PostgreSQL only warns then, and says that all is well: the rows are on one machine, and may be lost with it."""
    with postgres_server() as server, administrator_of(server) as administrator, ThreadPoolExecutor() as pool:
        store = PostgresStore(server.url("s"))
        put(store, b"a")
        administrator.execute("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'")
        administrator.execute("SELECT pg_reload_conf()")
        waiting = pool.submit(put, store, b"b")
        cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        until_s = time.monotonic() + 60
        while not waiting.done() and time.monotonic() < until_s:
            administrator.execute(cancel)
        with pytest.raises(StoreError):
            waiting.result(1)
        with pytest.raises(StoreFenced):
            put(store, b"c")
        store.close()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, "names no standby in synchronous_standby_names"),
        ({"synchronous_commit": "local", "synchronous_standby_names": "'ANY 1 (*)'"}, "synchronous_commit local"),
        (
            {"synchronous_commit": "remote_write", "synchronous_standby_names": "'*'"},
            "synchronous_commit remote_write",
        ),
    ],
)
def test_a_replicated_store_is_refused_where_commits_do_not_wait_for_a_standby(
    settings: dict[str, str], problem: str
) -> None:
    with postgres_server(settings) as server, pytest.raises(StoreError, match=problem):
        PostgresStore(server.url("s") + "&replicated=true")


def test_what_is_declared_of_a_store_is_true_or_false(postgres_url: str) -> None:
    with pytest.raises(ConfigError, match="true or false"):
        PostgresStore(postgres_url + "&replicated=perhaps")
    PostgresStore(postgres_url + "&replicated=false").close()
