"""One PostgreSQL server and one cluster of three nodes for all tests here: each leaves it as it found it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, cluster_of
from tests.support.postgres import PostgresServer, postgres_server


@pytest.fixture(scope="package")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@pytest.fixture(scope="package")
def cluster(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"), postgres, "three")
    with cluster_of(made, "a", "b", "c") as running:
        yield running
