"""One real server for each file, the official SDK on it, and the fault switches.

A file that needs another server says so with `SERVER`, a tuple of options for `polybus serve`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from polybus.testing.server import ServerProcess
from tests.requirements.kit import Bus, Gate


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    options = getattr(request.module, "SERVER", ())
    with ServerProcess(tmp_path_factory.mktemp("bus"), *options) as running:
        yield running


@pytest.fixture
def bus(server: ServerProcess) -> Iterator[Bus]:
    """The SDK's clients; entities are partitioned unless a test says otherwise."""
    made = Bus(server, "partitioned")
    yield made
    made.close()


@pytest.fixture
def gate(server: ServerProcess) -> Iterator[Gate]:
    made = Gate(server)
    yield made
    made.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The SDK leaves a socket to the garbage collector when the bus it was connected to is killed."""
    for item in items:
        if "tests/requirements" in str(item.path):
            item.add_marker(pytest.mark.filterwarnings("ignore:Exception ignored in. <socket"))
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))
