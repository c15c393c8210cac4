"""What the store on PostgreSQL does beyond the common behaviour: ownership, promises, time-outs, doubt."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from polybus import limits
from polybus.errors import BugError, StoreError, StoreFenced, StoreFull, StoreVersionMismatch
from polybus.store.base import Batch
from polybus.store.format import StoreFormat
from polybus.store.open import open_store
from polybus.store.postgres import PostgresStore
from polybus.store.postgres_url import parse_postgres_url
from tests.support.postgres import postgres_server


def put(store: PostgresStore, *keys: bytes) -> None:
    batch = Batch()
    for key in keys:
        batch.put(key, b"v")
    store.commit(batch)


def keys(store: PostgresStore) -> list[bytes]:
    return [key for key, _ in store.scan(b"", b"\xff", 100)]


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(postgres_url)
    yield store
    store.close()


class Administrator:
    """Another session on the same schema, for what only a server's owner can do."""

    def __init__(self, url: str) -> None:
        address = parse_postgres_url(url)
        self.connection = psycopg.connect(address.conninfo, autocommit=True)
        self.connection.execute(f"SET search_path TO {address.schema}")

    def run(self, statement: str) -> psycopg.Cursor[tuple[object, ...]]:
        return self.connection.execute(statement)


@pytest.fixture
def administrator(postgres_url: str, store: PostgresStore) -> Iterator[Administrator]:
    administrator = Administrator(postgres_url)
    yield administrator
    administrator.connection.close()


def test_the_newest_opener_is_the_only_writer(postgres_url: str, store: PostgresStore) -> None:
    put(store, b"a")
    newer = PostgresStore(postgres_url)
    with pytest.raises(StoreFenced, match="another process has opened"):
        put(store, b"b")
    with pytest.raises(StoreFenced):
        put(store, b"c")
    put(newer, b"d")
    # What an old owner reads may be old, but it is not wrong.
    assert keys(store) == keys(newer) == [b"a", b"d"]
    newer.close()


def test_an_old_owner_cannot_delete_ranges_either(postgres_url: str, store: PostgresStore) -> None:
    put(store, b"a")
    newer = PostgresStore(postgres_url)
    batch = Batch()
    batch.delete_range(b"", b"z")
    with pytest.raises(StoreFenced):
        store.commit(batch)
    assert keys(newer) == [b"a"]
    newer.close()


def test_an_opener_waits_for_the_commit_under_way(
    postgres_url: str, store: PostgresStore, administrator: Administrator
) -> None:
    """The old owner's commit is held up inside the server; the new one opens only when it is decided."""
    put(store, b"a")
    opened: list[PostgresStore] = []
    administrator.run(
        "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN new; END $$"
    )
    administrator.run("CREATE TRIGGER hold BEFORE INSERT ON kv FOR EACH ROW EXECUTE FUNCTION hold()")
    with administrator.connection.transaction():
        administrator.run("SELECT pg_advisory_xact_lock(1)")
        writer = threading.Thread(target=put, args=(store, b"b"))
        writer.start()
        wait_for_waiting(administrator, "WITH owner %")
        opener = threading.Thread(target=lambda: opened.append(PostgresStore(postgres_url)))
        opener.start()
        wait_for_waiting(administrator, "%.store FOR UPDATE")
        assert opened == []
    writer.join()
    opener.join()
    assert keys(opened[0]) == [b"a", b"b"]
    with pytest.raises(StoreFenced):
        put(store, b"c")
    opened[0].close()


def test_a_commit_that_waited_for_an_opener_writes_nothing(
    store: PostgresStore, administrator: Administrator
) -> None:
    put(store, b"a")
    raised: list[StoreError] = []

    def replace() -> None:
        batch = Batch()
        batch.delete(b"a")
        batch.put(b"b", b"v")
        try:
            store.commit(batch)
        except StoreError as error:
            raised.append(error)

    with administrator.connection.transaction():
        administrator.run("UPDATE store SET epoch = epoch + 1")
        writer = threading.Thread(target=replace)
        writer.start()
        wait_for_waiting(administrator, "WITH owner %")
    writer.join()
    assert [type(error) for error in raised] == [StoreFenced]
    assert keys(store) == [b"a"]


WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '{statement}'"


def wait_for_waiting(administrator: Administrator, statement: str) -> None:
    """Returns when a session waits for a lock in this statement; each question to the server takes its time."""
    for _ in range(10_000):
        administrator.run("SELECT pg_stat_clear_snapshot()")
        found = administrator.run(WAITING.format(statement=statement)).fetchone()
        if found is not None and found[0]:
            return
    raise AssertionError("nobody waits")


def test_a_store_of_another_major_version_is_refused(postgres_url: str, administrator: Administrator) -> None:
    other = StoreFormat(bytes(16), 2, 5, 0).encode()
    administrator.run(f"UPDATE store SET format = '\\x{other.hex()}'")
    with pytest.raises(StoreVersionMismatch, match=r"format 2\.5"):
        PostgresStore(postgres_url)


def test_a_refused_opener_does_not_fence_the_owner(
    postgres_url: str, store: PostgresStore, administrator: Administrator
) -> None:
    with pytest.raises(StoreVersionMismatch):
        PostgresStore(postgres_url, store_id=bytes(16))
    put(store, b"a")


def test_schemas_are_stores_of_their_own(store: PostgresStore, postgres_url: str) -> None:
    other = PostgresStore(postgres_url + "_other")
    put(store, b"a")
    put(other, b"b")
    assert (keys(store), keys(other)) == ([b"a"], [b"b"])
    assert store.store_id != other.store_id
    other.close()


def test_a_session_that_does_not_wait_for_the_sync_is_refused(postgres_url: str) -> None:
    careless = postgres_url + "&options=-csynchronous_commit%3Doff"
    with pytest.raises(StoreError, match="synchronous_commit off"):
        PostgresStore(careless)
    store = open_store(careless, unsafe=True)
    assert store.unsafe
    store.close()


def test_a_server_that_does_not_sync_is_refused() -> None:
    with postgres_server({"fsync": "off", "full_page_writes": "off"}) as server:
        with pytest.raises(StoreError, match="fsync, full_page_writes off"):
            PostgresStore(server.url("careless"))
        store = PostgresStore(server.url("careless"), unsafe=True)
        put(store, b"a")
        assert store.unsafe
        store.close()


def test_unsafe_is_said_only_where_it_is_so(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, unsafe=True)
    assert not store.unsafe
    store.close()


def test_a_full_server_refuses_and_the_store_goes_on(store: PostgresStore, administrator: Administrator) -> None:
    put(store, b"a")
    administrator.run(
        "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$"
    )
    administrator.run("CREATE TRIGGER no_room BEFORE INSERT ON kv EXECUTE FUNCTION no_room()")
    batch = Batch()
    batch.delete(b"a")
    batch.put(b"b", b"v")
    with pytest.raises(StoreFull, match="could not extend file"):
        store.commit(batch)
    administrator.run("DROP TRIGGER no_room ON kv")
    put(store, b"c")
    assert keys(store) == [b"a", b"c"]


def test_a_broken_connection_fences(store: PostgresStore, administrator: Administrator) -> None:
    put(store, b"a")
    administrator.run(f"SELECT pg_terminate_backend({store._writer.info.backend_pid}, 10000)")
    with pytest.raises(StoreError):
        put(store, b"b")
    with pytest.raises(StoreFenced):
        put(store, b"c")
    assert keys(store) == [b"a"]


def test_broken_read_connections_are_made_again(store: PostgresStore, administrator: Administrator) -> None:
    put(store, b"a")
    assert keys(store) == [b"a"]
    (reader,) = store._pool._open
    administrator.run(f"SELECT pg_terminate_backend({reader.info.backend_pid}, 10000)")
    outcomes = []
    # Each place of the pool is used in turn; only the one that broke fails, and only once.
    for _ in range(3 * limits.STORE_READ_THREADS):
        try:
            outcomes.append(keys(store) == [b"a"])
        except StoreError:
            outcomes.append(False)
    assert outcomes.count(False) == 1
    put(store, b"b")


def test_a_commit_that_waits_too_long_for_a_lock_gives_up_and_fences(
    postgres_url: str, administrator: Administrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "POSTGRES_SILENCE_MS", 50)
    store = PostgresStore(postgres_url)
    with administrator.connection.transaction():
        administrator.run("LOCK TABLE kv")
        with pytest.raises(StoreError, match="lock timeout"):
            put(store, b"a")
    with pytest.raises(StoreFenced):
        put(store, b"a")
    store.close()


def test_a_read_that_takes_too_long_gives_up(
    postgres_url: str, administrator: Administrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "POSTGRES_STATEMENT_MS", 50)
    store = PostgresStore(postgres_url)
    with administrator.connection.transaction():
        administrator.run("LOCK TABLE kv")
        with pytest.raises(StoreError, match="statement timeout"):
            store.get([b"a"])
    assert store.get([b"a"]) == [None]
    store.close()


def test_closing_frees_a_commit_that_the_server_does_not_answer(store: PostgresStore) -> None:
    put(store, b"a")
    backend = store._writer.info.backend_pid
    raised: list[BaseException] = []

    def commit() -> None:
        try:
            put(store, b"b")
        except StoreError as error:
            raised.append(error)

    os.kill(backend, signal.SIGSTOP)
    try:
        writer = threading.Thread(target=commit)
        writer.start()
        while not store._writing.locked():
            pass
        store.close()
        writer.join(timeout=30)
        assert not writer.is_alive()
        assert len(raised) == 1
    finally:
        os.kill(backend, signal.SIGCONT)


def test_closing_frees_a_read_that_the_server_does_not_answer(
    store: PostgresStore, administrator: Administrator
) -> None:
    raised: list[StoreError] = []

    def read() -> None:
        try:
            store.get([b"a"])
        except StoreError as error:
            raised.append(error)

    with administrator.connection.transaction():
        administrator.run("LOCK TABLE kv")
        reader = threading.Thread(target=read)
        reader.start()
        wait_for_waiting(administrator, "SELECT key, value FROM %")
        store.close()
        reader.join(timeout=30)
        assert not reader.is_alive()
    assert len(raised) == 1
    assert store._pool._open == []


def test_a_key_that_no_index_takes_is_our_own_bug(store: PostgresStore) -> None:
    with pytest.raises(BugError, match="longer than 2048"):
        put(store, bytes(limits.STORE_KEY_BYTES + 1))
    put(store, b"\x5a" * limits.STORE_KEY_BYTES)
    assert len(keys(store)) == 1


def test_a_checkpoint_is_of_one_moment(store: PostgresStore, tmp_path: Path) -> None:
    """Pages are read one after another; what is committed between them must not show."""
    batch = Batch()
    for number in range(2 * limits.STORE_COPY_ROWS):
        batch.put(b"%06d" % number, b"v")
    store.commit(batch)
    page, calls = store.page, []

    def page_and_commit(*arguments: object) -> list[tuple[bytes, bytes]]:
        rows = page(*arguments)  # type: ignore[arg-type]
        calls.append(len(rows))
        put(store, b"9%d" % len(calls))
        return rows

    store.page = page_and_commit  # type: ignore[assignment, method-assign]
    store.checkpoint(tmp_path / "copy")
    copy = open_store(f"rocksdb:{tmp_path / 'copy'}")
    assert len(copy.scan(b"", b"\xff", 1 << 30)) == 2 * limits.STORE_COPY_ROWS
    copy.close()
    assert len(calls) == 3
