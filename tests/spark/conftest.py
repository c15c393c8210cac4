"""One real Spark and one real bus for all tests of the pipeline: starting either costs seconds."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from polybus.testing.server import ServerProcess
from tests.spark.kit import Kit, start_spark


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: starts a Spark of its own, or several; run it with -m slow")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("bus"), "--stores", "2") as running:
        yield running


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = start_spark(tmp_path_factory.mktemp("spark"))
        yield session
        session.stop()


@pytest.fixture
def kit(server: ServerProcess, spark: object, tmp_path: object, request: pytest.FixtureRequest) -> Iterator[Kit]:
    with warnings.catch_warnings():
        # Spark and py4j leave sockets to the garbage collector, and warn about their own old names.
        warnings.simplefilter("ignore")
        with Kit(server, spark, tmp_path, request.node.name) as made:
            yield made
