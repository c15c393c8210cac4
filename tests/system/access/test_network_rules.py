"""IP rules of a namespace with the official SDKs, unmodified: set over the resource manager's API, felt by clients."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import HttpResponseError
from azure.mgmt.servicebus import ServiceBusManagementClient, models
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusError

from polybus.client.sas import make_token
from polybus.errors import ArgumentError
from polybus.namespace.entities.network_rules import NetworkRules
from polybus.testing.server import ServerProcess

PLACE = ("group", "sbemulatorns")
ELSEWHERE = [models.NWRuleSetIpRules(ip_mask="10.1.2.0/24", action="Allow")]
HERE = [*ELSEWHERE, models.NWRuleSetIpRules(ip_mask="127.0.0.1", action="Allow")]


def token(server: ServerProcess) -> str:
    return make_token(f"{server.http_url}/", "RootManageSharedAccessKey", "SAS_KEY_VALUE", int(time.time()) + 3600)


class Signature:
    def __init__(self, server: ServerProcess) -> None:
        self._token = token(server)

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        del scopes, options
        return AccessToken(self._token, int(time.time()) + 3600)


@contextmanager
def manager(server: ServerProcess) -> Iterator[Any]:
    address = f"https://localhost:{server.addresses['tls'].rpartition(':')[2]}"
    options: dict[str, Any] = {"base_url": address, "connection_verify": str(server.authority), "retry_total": 0}
    with ServiceBusManagementClient(Signature(server), str(uuid.UUID(int=1)), **options) as client:
        yield client.namespaces


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", "--store", f"rocksdb:{tmp_path}/store") as server:
        with manager(server), httpx.Client(headers={"Authorization": token(server)}) as http:
            kind = '<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/>'
            entry = (
                f'<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">{kind}</content></entry>'
            )
            assert http.put(f"{server.http_url}/q", content=entry).status_code == 201
        yield server


def set_rules(namespaces: Any, **properties: Any) -> Any:
    return namespaces.create_or_update_network_rule_set(*PLACE, models.NetworkRuleSet(**properties))


def sends(server: ServerProcess, **options: Any) -> bool:
    with ServiceBusClient.from_connection_string(server.connection_string, retry_total=0, **options) as client:
        try:
            with client.get_queue_sender("q") as sender:
                sender.send_messages(ServiceBusMessage("x"))
        except ServiceBusError:
            return False
        return True


def asks(server: ServerProcess) -> int:
    return httpx.post(
        f"{server.http_url}/q/messages", content=b"x", headers={"Authorization": token(server)}
    ).status_code


def test_rules_are_set_got_and_felt_and_last_over_a_restart(server: ServerProcess) -> None:
    with manager(server) as namespaces:
        before = namespaces.get_network_rule_set(*PLACE)
        assert (before.default_action, before.public_network_access, before.ip_rules) == ("Allow", "Enabled", [])
        made = set_rules(namespaces, default_action="Deny", ip_rules=ELSEWHERE)
        assert (made.name, made.default_action, made.ip_rules[0].ip_mask) == ("default", "Deny", "10.1.2.0/24")
        assert [each.default_action for each in namespaces.list_network_rule_sets(*PLACE)] == ["Deny"]
    assert (asks(server), sends(server)) == (401, False)
    ws = {"transport_type": TransportType.AmqpOverWebsocket}
    assert not sends(server, **ws)
    server.restart()
    assert (asks(server), sends(server)) == (401, False)
    with manager(server) as namespaces:
        set_rules(namespaces, default_action="Deny", ip_rules=HERE)
        assert namespaces.get_network_rule_set(*PLACE).ip_rules[1].action == "Allow"
    assert (asks(server), sends(server)) == (201, True)


def test_a_connection_from_an_address_that_is_not_allowed_any_more_ends(server: ServerProcess) -> None:
    with (
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
        manager(server) as m,
    ):
        sender = client.get_queue_sender("q")
        sender.send_messages(ServiceBusMessage("before"))
        set_rules(m, default_action="Deny", ip_rules=ELSEWHERE)
        with pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("after"))
        set_rules(m, default_action="Allow", ip_rules=ELSEWHERE)
    assert sends(server)


def test_keys_that_are_made_leave_the_rules_and_a_closed_namespace_is_closed_to_all(server: ServerProcess) -> None:
    with manager(server) as namespaces:
        set_rules(namespaces, default_action="Deny", ip_rules=HERE)
        namespaces.create_or_update_authorization_rule(*PLACE, "made", models.SBAuthorizationRule(rights=["Send"]))
        assert len(namespaces.get_network_rule_set(*PLACE).ip_rules) == 2
        set_rules(namespaces, public_network_access="Disabled", ip_rules=HERE)
        assert namespaces.get(*PLACE).public_network_access == "Disabled"
        assert (asks(server), sends(server)) == (401, False)
        assert [rule.name for rule in namespaces.list_authorization_rules(*PLACE)][-1] == "made"
        for wrong in ({"ip_rules": [models.NWRuleSetIpRules(ip_mask="nowhere")]}, {"default_action": "Perhaps"}):
            with pytest.raises(HttpResponseError) as refused:
                set_rules(namespaces, **wrong)
            assert refused.value.status_code == 400


@pytest.mark.parametrize(
    ("rules", "host", "allowed"),
    [
        (NetworkRules(), "1.2.3.4", True),
        (NetworkRules(denies_others=True), "1.2.3.4", True),
        (NetworkRules(("1.2.3.0/24",), True), "1.2.3.4", True),
        (NetworkRules(("1.2.3.0/24",), True), "::ffff:1.2.3.4", True),
        (NetworkRules(("1.2.3.0/24",), True), "1.2.4.4", False),
        (NetworkRules(("2001:db8::/32",), True), "2001:db8::1%eth0", True),
        (NetworkRules(("1.2.3.0/24",), True), None, False),
        (NetworkRules(("1.2.3.0/24",), False), "1.2.4.4", True),
        (NetworkRules(("1.2.3.4",), True, public=False), "1.2.3.4", False),
    ],
)
def test_who_is_allowed(rules: NetworkRules, host: str | None, allowed: bool) -> None:
    assert rules.allow(host) is allowed


def test_rules_are_bounded() -> None:
    with pytest.raises(ArgumentError, match="128"):
        NetworkRules(tuple(f"10.0.{n}.0/24" for n in range(129)))
