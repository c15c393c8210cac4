"""One PostgreSQL server for the whole run, and a way to open each kind of store at a place of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from polybus.store.base import Store
from polybus.store.failing import FailingStore
from polybus.store.memory import MemoryStore
from polybus.store.postgres import PostgresStore
from polybus.store.rocks import RocksStore
from tests.support.postgres import PostgresServer, postgres_server

_schemas = count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    return postgres.url(f"s{next(_schemas)}")


class StorePlace:
    """Where one store lives: it can be opened, and opened again as after a restart."""

    def __init__(self, opener: Callable[[], Store], *, survives: bool) -> None:
        self._opener = opener
        self._opened: list[Store] = []
        self.survives = survives
        """Whether a second opener finds what the first one wrote."""

    def open(self) -> Store:
        store = self._opener()
        self._opened.append(store)
        return store

    def reopen(self, store: Store) -> Store:
        if isinstance(store, MemoryStore | FailingStore):
            again: Store = store.reopen()
        else:
            store.close()
            again = self._opener()
        self._opened.append(again)
        return again

    def close(self) -> None:
        for store in self._opened:
            store.close()


def failing_rocks(path: Path) -> FailingStore:
    return FailingStore(RocksStore(path), reopen_inner=lambda: RocksStore(path))


KINDS = ("memory", "rocksdb", "postgres", "failing-memory", "failing-rocksdb")


def make_place(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> StorePlace:
    if kind == "memory":
        return StorePlace(MemoryStore, survives=False)
    if kind == "failing-memory":
        return StorePlace(lambda: FailingStore(MemoryStore()), survives=False)
    if kind == "postgres":
        url = request.getfixturevalue("postgres_url")
        return StorePlace(lambda: PostgresStore(url), survives=True)
    path = tmp_path / "store"
    if kind == "rocksdb":
        return StorePlace(lambda: RocksStore(path), survives=True)
    return StorePlace(lambda: failing_rocks(path), survives=True)


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StorePlace]:
    place = make_place(request.param, tmp_path, request)
    yield place
    place.close()


@pytest.fixture
def store(place: StorePlace) -> Store:
    return place.open()
