"""One real server for each file, the official SDK on it, and the fault switches.

A file that needs another server says so with `SERVER`, a tuple of options for `polybus serve`.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from polybus.testing.server import ServerProcess
from tests.requirements.kit import Bus, Gate


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    options = getattr(request.module, "SERVER", ())
    with ServerProcess(tmp_path_factory.mktemp("bus"), *options) as running:
        yield running
    # What the SDK left to the garbage collector is collected here, where its complaints are ignored.
    gc.collect()


@pytest.fixture(scope="module")
def closing(server: ServerProcess) -> Iterator[ThreadPoolExecutor]:
    """Closes what tests have opened, beside the tests that follow: the SDK sleeps half a second for each link."""
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture
def bus(server: ServerProcess, closing: ThreadPoolExecutor) -> Iterator[Bus]:
    """The SDK's clients; entities are partitioned unless a test says otherwise."""
    made = Bus(server, "partitioned")
    yield made
    closing.submit(made.close)


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
