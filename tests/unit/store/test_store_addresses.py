from __future__ import annotations

from pathlib import Path

import pytest

from polybus.errors import ConfigError, StoreError
from polybus.store.memory import MemoryStore
from polybus.store.open import open_store
from polybus.store.postgres_url import parse_postgres_url
from polybus.store.queries import load_queries
from polybus.store.rocks import RocksStore


def test_memory() -> None:
    store = open_store("memory:")
    assert isinstance(store, MemoryStore)
    assert store.unsafe
    assert store.volatile
    assert open_store("memory:second").url == "memory:second"


def test_rocksdb(tmp_path: Path) -> None:
    store = open_store(f"rocksdb:{tmp_path / 'a' / 'b'}")
    assert isinstance(store, RocksStore)
    assert store.url == f"rocksdb:{tmp_path / 'a' / 'b'}"
    assert not store.unsafe
    store.close()


@pytest.mark.parametrize("url", ["", "memory", "rocksdb", "sqlite:x", "mysql://user:secret@host/db", "/var/lib/x"])
def test_anything_else_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigError, match="rocksdb:PATH") as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["rocksdb:", "rocksdb://data/one"])
def test_a_rocksdb_address_without_a_folder_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="right after the colon"):
        open_store(url)


def test_a_postgres_address_is_shown_without_secrets() -> None:
    address = parse_postgres_url("postgresql://me:hush@db.local:5432/bus?sslmode=require&password=hush&schema=s_1")
    assert address.shown == "postgresql://me@db.local:5432/bus?sslmode=require&schema=s_1"
    assert address.schema == "s_1"
    assert address.conninfo == "postgresql://me:hush@db.local:5432/bus?sslmode=require&password=hush"


def test_a_postgres_address_on_a_socket() -> None:
    address = parse_postgres_url("postgresql:///bus?host=/run/pg")
    assert address.shown == "postgresql:///bus?host=/run/pg"
    assert address.schema == "polybus"


@pytest.mark.parametrize("schema", ["", "UPPER", "a-b", 'a"b', "1a", "a" * 64])
def test_a_postgres_schema_is_a_plain_name(schema: str) -> None:
    with pytest.raises(ConfigError, match="schema="):
        parse_postgres_url(f"postgresql://host/db?schema={schema}")


def test_a_postgres_server_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(f"postgresql://me:hush@/bus?host={tmp_path}")
    assert "hush" not in str(caught.value)


def test_statements_are_found_by_name() -> None:
    queries = load_queries("s_1")
    assert queries["own"].as_string() == 'SELECT 1 FROM "s_1".store WHERE epoch = %(epoch)s::bigint FOR SHARE'
    assert all("--" not in query.as_string() for query in queries.values())
