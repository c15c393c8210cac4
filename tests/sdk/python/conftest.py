"""One real server for the whole folder, the unmodified official SDK against it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from polybus.testing.server import ServerProcess


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder: Path = tmp_path_factory.mktemp("bus")
    with ServerProcess(folder) as running:
        yield running


@pytest.fixture(scope="session")
def admin(server: ServerProcess) -> Iterator[ServiceBusAdministrationClient]:
    client = ServiceBusAdministrationClient.from_connection_string(
        server.admin_connection_string, connection_verify=str(server.authority)
    )
    with client:
        yield client
