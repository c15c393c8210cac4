from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.system.http.kit import Server


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def server(certificates: Path) -> Iterator[Server]:
    server = Server(certificates).start()
    yield server
    server.stop()


@pytest.fixture
def own_server(certificates: Path) -> Iterator[Server]:
    """A server for a test that breaks things."""
    server = Server(certificates).start()
    yield server
    server.stop()


@pytest.fixture
def admin(server: Server) -> Iterator[ServiceBusAdministrationClient]:
    options = {"connection_verify": server.authority, "retry_total": 0}
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string, **options) as client:
        yield client
