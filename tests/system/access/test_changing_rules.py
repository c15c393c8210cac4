"""Keys of a namespace and of entities are made, changed and regenerated while the bus runs; one that is gone ends its
links at once."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.mgmt.servicebus import ServiceBusManagementClient, models
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError, ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from polybus.client.sas import make_token
from polybus.testing.server import ServerProcess

PLACE = ("group", "sbemulatorns")
REFUSED = (ServiceBusAuthenticationError, ServiceBusAuthorizationError)
ROOT = ("RootManageSharedAccessKey", "SAS_KEY_VALUE")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("rules") / "data", "--stores", "1") as server:
        with ServiceBusAdministrationClient.from_connection_string(
            server.admin_connection_string, connection_verify=str(server.authority)
        ) as admin:
            for name in ("q", "other"):
                admin.create_queue(name)
        yield server


class Signature:
    def __init__(self, server: ServerProcess) -> None:
        self._token = make_token(f"https://{server.addresses['http']}/", *ROOT, int(time.time()) + 3600)

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return AccessToken(self._token, int(time.time()) + 3600)


@pytest.fixture
def manager(server: ServerProcess) -> Iterator[ServiceBusManagementClient]:
    port = server.addresses["http"].rpartition(":")[2]
    with ServiceBusManagementClient(
        Signature(server),  # type: ignore[arg-type]
        str(uuid.UUID(int=1)),
        base_url=f"https://localhost:{port}",
        connection_verify=str(server.authority),
        retry_total=0,
    ) as client:
        yield client


def rights(*words: str) -> models.SBAuthorizationRule:
    return models.SBAuthorizationRule(properties=models.SBAuthorizationRuleProperties(rights=list(words)))


def client(server: ServerProcess, name: str, key: str) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(server.connection_string_for(name, key), retry_total=0)


def sends(server: ServerProcess, name: str, key: str, queue: str = "q") -> bool:
    with client(server, name, key) as bus:
        try:
            with bus.get_queue_sender(queue) as sender:
                sender.send_messages(ServiceBusMessage("x"))
        except REFUSED:
            return False
    return True


def test_a_rule_of_a_namespace_is_made_changed_regenerated_and_removed(
    server: ServerProcess, manager: ServiceBusManagementClient
) -> None:
    manager.namespaces.create_or_update_authorization_rule(*PLACE, "made", rights("Listen"))
    first = manager.namespaces.list_keys(*PLACE, "made")
    assert first.primary_key
    assert first.primary_key != first.secondary_key
    assert not sends(server, "made", first.primary_key)
    manager.namespaces.create_or_update_authorization_rule(*PLACE, "made", rights("Send"))
    assert sends(server, "made", first.primary_key)
    assert sends(server, "made", first.secondary_key)
    second = manager.namespaces.regenerate_keys(
        *PLACE, "made", models.RegenerateAccessKeyParameters(key_type="PrimaryKey")
    )
    assert second.secondary_key == first.secondary_key
    assert not sends(server, "made", first.primary_key)
    assert sends(server, "made", second.primary_key)
    server.restart()
    assert sends(server, "made", second.primary_key)
    assert not sends(server, "made", first.primary_key)
    names = [rule.name for rule in manager.namespaces.list_authorization_rules(*PLACE)]
    assert names == [ROOT[0], "made"]
    manager.namespaces.delete_authorization_rule(*PLACE, "made")
    assert not sends(server, "made", second.primary_key)


def test_what_was_given_at_the_start_is_changed_there(manager: ServiceBusManagementClient) -> None:
    for change in (
        lambda: manager.namespaces.delete_authorization_rule(*PLACE, ROOT[0]),
        lambda: manager.namespaces.create_or_update_authorization_rule(*PLACE, ROOT[0].lower(), rights("Send")),
    ):
        with pytest.raises(HttpResponseError, match="given when the bus was started"):
            change()
    with pytest.raises(HttpResponseError, match="Manage permission must also include"):
        manager.namespaces.create_or_update_authorization_rule(*PLACE, "partly", rights("Manage"))


Revoke = Callable[[ServiceBusManagementClient], object]


def regenerate(manager: ServiceBusManagementClient) -> None:
    both = ("PrimaryKey", "SecondaryKey")
    for which in both:
        parameters = models.RegenerateAccessKeyParameters(key_type=which)
        manager.namespaces.regenerate_keys(*PLACE, "revoked", parameters)


REVOKES: dict[str, Revoke] = {
    "removed": lambda manager: manager.namespaces.delete_authorization_rule(*PLACE, "revoked"),
    "regenerated": regenerate,
    "without the right": lambda manager: manager.namespaces.create_or_update_authorization_rule(
        *PLACE, "revoked", rights("Listen")
    ),
}


@pytest.mark.parametrize("how", REVOKES)
def test_a_revoked_key_ends_its_links_and_no_others(
    server: ServerProcess, manager: ServiceBusManagementClient, how: str
) -> None:
    manager.namespaces.create_or_update_authorization_rule(*PLACE, "revoked", rights("Send"))
    key = manager.namespaces.list_keys(*PLACE, "revoked").primary_key
    with client(server, "revoked", key) as bus, client(server, *ROOT) as trusted:
        sender, other = bus.get_queue_sender("q"), trusted.get_queue_sender("q")
        for each in (sender, other):
            each.send_messages(ServiceBusMessage("before"))
        REVOKES[how](manager)
        # The SDK hears of the detach in the middle of its send, and why when it attaches again.
        for error in (ServiceBusError, REFUSED):
            with pytest.raises(error):
                sender.send_messages(ServiceBusMessage("never"))
        other.send_messages(ServiceBusMessage("after"))
        with trusted.get_queue_receiver("q", receive_mode="receiveanddelete", max_wait_time=2) as receiver:
            bodies = [str(message) for message in receiver]
    assert "after" in bodies
    assert "never" not in bodies


def test_a_receiver_of_a_revoked_key_of_an_entity_hears_of_it_while_it_waits(
    server: ServerProcess, manager: ServiceBusManagementClient
) -> None:
    manager.queues.create_or_update_authorization_rule(*PLACE, "other", "reader", rights("Listen"))
    key = manager.queues.list_keys(*PLACE, "other", "reader").primary_key
    with client(server, "reader", key) as bus, bus.get_queue_receiver("other", max_wait_time=60) as receiver:
        assert receiver.peek_messages(1) == []
        assert receiver.receive_messages(1, max_wait_time=0.2) == []
        manager.queues.delete_authorization_rule(*PLACE, "other", "reader")
        began = time.monotonic()
        with pytest.raises(REFUSED):
            receiver.receive_messages(1, max_wait_time=60)
        assert time.monotonic() - began < 30
    assert sends(server, *ROOT, queue="other")


def test_a_wait_over_http_does_not_outlive_its_key(
    server: ServerProcess, manager: ServiceBusManagementClient
) -> None:
    manager.namespaces.create_or_update_authorization_rule(*PLACE, "waits", rights("Listen"))
    key = manager.namespaces.list_keys(*PLACE, "waits").primary_key
    headers = {"Authorization": make_token(server.http_url, "waits", key or "", int(time.time()) + 600)}
    assert httpx.delete(f"{server.http_url}/other/messages/head?timeout=0", headers=headers).status_code in (200, 204)
    while httpx.delete(f"{server.http_url}/other/messages/head?timeout=0", headers=headers).status_code == 200:
        pass
    answers: list[int] = []

    def wait() -> None:
        url = f"{server.http_url}/other/messages/head?timeout=55"
        answers.append(httpx.delete(url, headers=headers, timeout=60).status_code)

    waiting = threading.Thread(target=wait)
    waiting.start()
    with ServiceBusAdministrationClient.from_connection_string(
        server.admin_connection_string, connection_verify=str(server.authority)
    ) as admin:
        while not admin.get_queue_runtime_properties("other").accessed_at_utc:
            pass
    manager.namespaces.delete_authorization_rule(*PLACE, "waits")
    waiting.join(30)
    assert not waiting.is_alive()
    assert answers in ([503], [401])
    assert httpx.delete(f"{server.http_url}/other/messages/head?timeout=0", headers=headers).status_code == 401


def test_without_the_right_to_manage_no_rule_is_made(
    server: ServerProcess, manager: ServiceBusManagementClient
) -> None:
    manager.namespaces.create_or_update_authorization_rule(*PLACE, "small", rights("Send", "Listen"))
    key = manager.namespaces.list_keys(*PLACE, "small").primary_key
    port = server.addresses["http"].rpartition(":")[2]

    class Small:
        def get_token(self, *scopes: str, **options: Any) -> AccessToken:
            expires = int(time.time()) + 600
            return AccessToken(make_token("https://localhost/", "small", key or "", expires), expires)

    with (
        ServiceBusManagementClient(
            Small(),  # type: ignore[arg-type]
            str(uuid.UUID(int=1)),
            base_url=f"https://localhost:{port}",
            connection_verify=str(server.authority),
            retry_total=0,
        ) as small,
        pytest.raises(ClientAuthenticationError),
    ):
        small.namespaces.create_or_update_authorization_rule(*PLACE, "more", rights("Manage", "Send", "Listen"))
