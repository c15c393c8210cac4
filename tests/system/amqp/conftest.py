"""One bus in memory and one on RocksDB for the whole folder; every test has entities of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.system.amqp.server import Server

_names = count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def rocks_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("stores"))
    yield server
    server.stop()


@pytest.fixture
def fresh() -> str:
    """A name that no other test uses."""
    return f"entity{next(_names)}"
