from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from azure.servicebus.management import AccessRights, AuthorizationRule, ServiceBusAdministrationClient

from polybus.testing.server import ServerProcess
from tests.system.access import jwt_cases
from tests.system.access.cases import NAMESPACE_KEYS, OWN_KEYS

QUEUES = ("orders", "orders2", "order", "other", "a/b", "127.0.0.1", "relay", "talks")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("access")) as server:
        yield server


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[ServerProcess]:
    """One bus with keys of every kind: of the namespace, and of some entities."""
    keys = [word for text in NAMESPACE_KEYS for word in ("--key", text)]
    tokens = jwt_cases.options(folder)
    with ServerProcess(folder, "--store", "memory:", *keys, *tokens, *options) as server:
        with ServiceBusAdministrationClient.from_connection_string(
            server.admin_connection_string, connection_verify=str(server.authority)
        ) as admin:
            for name in QUEUES:
                sessions = name == "talks"
                admin.create_queue(name, requires_session=sessions, authorization_rules=own_rules(name))
            admin.create_topic("topic", authorization_rules=own_rules("topic"))
            for name in ("sub", "sub2"):
                admin.create_subscription("topic", name)
        yield server


def own_rules(name: str) -> list[AuthorizationRule]:
    return [
        AuthorizationRule(
            type="SharedAccessAuthorizationRule",
            claim_type="SharedAccessKey",
            claim_value="None",
            rights=[AccessRights(right) for right in rights],
            key_name=key_name,
            primary_key=primary,
            secondary_key=secondary,
        )
        for key_name, rights, primary, secondary in OWN_KEYS.get(name, ())
    ]
