"""One bus in memory and one on RocksDB for the whole folder; every test has queues of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.system.amqp.server import Server

_names = count(1)


@pytest.fixture(scope="session", params=["memory", "rocksdb"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = None if request.param == "memory" else tmp_path_factory.mktemp("stores")
    server = Server(folder)
    yield server
    server.stop()


@pytest.fixture
def fresh() -> str:
    """A name that no other test uses."""
    return f"entity{next(_names)}"
