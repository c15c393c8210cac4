"""The bulk API as its own description says it is: requests made from `/$polybus/openapi.json` to a real server."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import schemathesis
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks

from polybus.client.sas import make_token
from polybus.gateway.bulk.openapi import openapi
from polybus.testing.server import ServerProcess

QUEUE = "q"
PATIENCE_S = 30
PROMISES = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
FEW = settings(
    max_examples=8,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("openapi"), "--store", "memory:") as server:
        with ServiceBusAdministrationClient.from_connection_string(
            server.admin_connection_string, connection_verify=str(server.authority)
        ) as admin:
            admin.create_queue(QUEUE)
        with (
            ServiceBusClient.from_connection_string(server.connection_string) as client,
            client.get_queue_sender(QUEUE) as sender,
        ):
            sender.send_messages([ServiceBusMessage(f"m{n}") for n in range(20)])
        yield server


@pytest.fixture(scope="module")
def headers(server: ServerProcess) -> dict[str, str]:
    token = make_token(server.http_url, "RootManageSharedAccessKey", "SAS_KEY_VALUE", int(time.time()) + 600)
    return {"Authorization": token, "Accept": "application/json"}


@pytest.fixture(scope="module")
def description(server: ServerProcess, headers: dict[str, str]) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_url(f"{server.http_url}/$polybus/openapi.json", headers=headers)


OPERATIONS = [
    (path, method)
    for path, methods in openapi()["paths"].items()
    for method in methods
    # The rows of a stage are no JSON document, and cannot be made from a schema.
    if not path.endswith("/stage")
]


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
@pytest.mark.parametrize("entity", [QUEUE, None])
def test_every_operation_keeps_to_its_description(
    description: schemathesis.BaseSchema, headers: dict[str, str], path: str, method: str, entity: str | None
) -> None:
    """On a queue with messages, and on names as they come."""

    @FEW
    @given(case=description[path][method].as_strategy())
    def ask(case: schemathesis.Case) -> None:
        if entity is not None and "entity" in case.path_parameters:
            case.path_parameters["entity"] = entity
        case.call_and_validate(headers=headers, checks=PROMISES, timeout=PATIENCE_S)

    ask()
