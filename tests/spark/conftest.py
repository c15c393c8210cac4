"""One real Spark and one real bus for all tests of the pipeline: starting either costs seconds."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from polybus.testing.server import ServerProcess
from tests.spark.kit import CONNECTION_VARIABLE, Kit, start_spark

LONG = {
    "test_frames",
    "test_notebook",
    "test_pipelines_bodies",
    "test_pipelines_enrich",
    "test_pipelines_operating",
    "test_pipelines_pages",
    "test_pipelines_redrive",
    "test_pipelines_redrive_crash",
    "test_pipelines_replay",
    "test_pipelines_runner",
    "test_pipelines_skew",
    "test_pipelines_sla",
    "test_scenarios",
}
"""Minutes in all: `scripts/test spark-slow` runs them, the default run has the source, the sink and the capture."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes long, or starts a Spark of its own; run it with -m slow")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    java = shutil.which("java") or os.environ.get("JAVA_HOME")
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        if item.path.stem in LONG:
            item.add_marker(pytest.mark.slow)
        if not java:
            item.add_marker(pytest.mark.skip(reason="Spark needs Java 17, which is not here"))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("bus"), "--stores", "2") as running:
        os.environ[CONNECTION_VARIABLE] = running.connection_string
        yield running
        del os.environ[CONNECTION_VARIABLE]


@pytest.fixture(scope="session")
def spark(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Starts after the bus: Spark's Python workers know the environment as it was when Spark started."""
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
        with Kit(server, spark, tmp_path, request.node.name) as made:  # type: ignore[arg-type]
            yield made
