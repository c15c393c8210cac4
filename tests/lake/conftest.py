"""One server of each kind of object store for all tests; each test has a folder of its own in it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.lake.servers import Azurite, ObjectServer, Versity, azurite, versitygw

KINDS: dict[str, type[ObjectServer]] = {"s3": Versity, "azure": Azurite}
FOUND = {"s3": versitygw, "azure": azurite}


@pytest.fixture(scope="session", params=list(KINDS))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    kind = request.param
    if FOUND[kind]() is None:
        pytest.skip(f"there is no server for {kind}: scripts/test lake installs it")
    running = KINDS[kind](tmp_path_factory.mktemp(kind))
    running.start()
    running.make_bucket()
    yield running
    running.stop()


@pytest.fixture
def folder() -> str:
    """A name that no other test has."""
    return f"t{uuid.uuid4().hex[:12]}"
