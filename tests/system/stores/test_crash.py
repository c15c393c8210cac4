"""Processes and servers that die without a word: what was acknowledged is there, and no batch in part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from polybus.errors import StoreError, StoreFenced
from polybus.store.base import Batch
from polybus.store.postgres import PostgresStore
from polybus.store.rocks import RocksStore
from tests.support.postgres import PostgresServer, postgres_server

from .crash_child import Child, check, commit_batch, counter_of, moments
from .unreliable_disk import UnreliableDisk, needs_compiler


def test_rocksdb_survives_the_death_of_its_process(tmp_path: Path) -> None:
    path = tmp_path / "store"
    acknowledged = 0
    for lines in moments(seed=1, cycles=6):
        child = Child(f"rocksdb:{path}")
        child.read(lines)
        child.kill()
        assert child.acknowledged >= acknowledged + lines
        store = RocksStore(path)
        check(store, child.acknowledged)
        acknowledged = counter_of(store)
        store.close()


@needs_compiler
def test_rocksdb_survives_a_power_failure(tmp_path: Path) -> None:
    """What the system had not yet been told to keep is gone, too."""
    path, disk = tmp_path / "store", UnreliableDisk(tmp_path)
    acknowledged = 0
    for lines in moments(seed=4, cycles=8):
        disk.keep(path)
        child = Child(f"rocksdb:{path}", disk.environment())
        child.read(lines)
        child.kill()
        disk.lose_unsynced(path)
        assert child.acknowledged >= acknowledged + lines
        store = RocksStore(path)
        check(store, child.acknowledged)
        acknowledged = counter_of(store)
        store.close()


def test_rocksdb_survives_dying_while_it_recovers(tmp_path: Path) -> None:
    path = tmp_path / "store"
    child = Child(f"rocksdb:{path}")
    child.read(50)
    child.kill()
    acknowledged = child.acknowledged
    for _ in range(3):
        # Killed before it says anything: while it opens, or at its first commits.
        child = Child(f"rocksdb:{path}")
        child.kill()
        acknowledged = max(acknowledged, child.acknowledged)
    store = RocksStore(path)
    n = counter_of(store)
    assert acknowledged <= n <= acknowledged + 3
    check(store, n)
    store.close()


def test_a_write_that_the_system_refuses_fences_and_loses_nothing(tmp_path: Path) -> None:
    """The log may not grow past a limit of the system: a real failed write, in the middle of a batch."""
    path = tmp_path / "store"
    child = Child(f"rocksdb:{path}")
    child.read(3)
    child.limit_files(4_000_000)
    errors = child.finish()
    assert "StoreError" in errors
    assert "File too large" in errors
    assert "then StoreFenced" in errors
    store = RocksStore(path)
    check(store, child.acknowledged)
    commit_batch(store, counter_of(store) + 1)
    store.close()


def test_postgres_survives_the_death_of_its_client(postgres_url: str) -> None:
    acknowledged = 0
    for lines in moments(seed=2, cycles=3):
        child = Child(postgres_url)
        child.read(lines)
        child.kill()
        assert child.acknowledged >= acknowledged + lines
        # Opening waits for a commit that the server may still be finishing.
        store = PostgresStore(postgres_url)
        check(store, child.acknowledged)
        acknowledged = counter_of(store)
        store.close()


@pytest.fixture
def mortal() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


def test_postgres_survives_the_death_of_its_server(mortal: PostgresServer) -> None:
    url = mortal.url("mortal")
    for lines in moments(seed=3, cycles=2):
        child = Child(url)
        child.read(lines)
        mortal.kill()
        errors = child.finish()
        assert "then StoreFenced" in errors
        mortal.start()
        store = PostgresStore(url)
        check(store, child.acknowledged)
        store.close()


def test_a_store_whose_server_died_stays_fenced_when_it_is_back(mortal: PostgresServer) -> None:
    store = PostgresStore(mortal.url("mortal"))
    commit_batch(store, 1)
    mortal.kill()
    with pytest.raises(StoreError):
        commit_batch(store, 2)
    mortal.start()
    with pytest.raises(StoreFenced):
        store.commit(Batch())
    check(store, 1)
    store.close()
