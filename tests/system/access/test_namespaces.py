"""Several namespaces on one port: told apart by host name, or by the key that a client shows, with the official SDK.

Each namespace has a plain and a partitioned queue of the same names, so that a message in the wrong place is seen.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusAuthenticationError
from azure.servicebus.management import ServiceBusAdministrationClient

from polybus.client.sas import make_token
from polybus.errors import ConfigError
from polybus.gateway.config.file import load
from polybus.node import Node, NodeOptions
from polybus.testing.server import ServerProcess
from tests.system.access.client import AmqpClient, Refused, SocketStream

DOMAIN = "polybus.test"
ROOT = "RootManageSharedAccessKey"
KEYS = {"first": "SAS_KEY_VALUE", "second": "second-key", "third": "third-key"}
QUEUES = ("plain", "partitioned")
ENTITY_KEY = "key-of-one-queue"


def declared(name: str) -> dict[str, Any]:
    own = {"KeyName": "own", "Rights": ["Send", "Listen"], "PrimaryKey": f"{ENTITY_KEY}-of-{name}"}
    queues = [
        {"Name": queue, "Properties": {"EnablePartitioning": queue == "partitioned", "AuthorizationRules": [own]}}
        for queue in QUEUES
    ]
    if name == "first":  # it has the bus's own key: the emulator's
        return {"Name": name, "Queues": queues}
    rule = {"KeyName": ROOT, "Rights": ["Manage", "Send", "Listen"], "PrimaryKey": KEYS[name]}
    return {"Name": name, "AuthorizationRules": [rule], "Queues": queues}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("namespaces")
    config = folder / "config.json"
    config.write_text(json.dumps({"UserConfig": {"Namespaces": [declared(name) for name in KEYS]}}))
    names = [word for name in KEYS for word in ("--cert-name", f"{name}.{DOMAIN}")]
    options = ("--store", "memory:", "--config", str(config), *names)
    with ServerProcess(folder / "data", *options) as server, pytest.MonkeyPatch.context() as patch:
        resolve = socket.getaddrinfo

        def resolved(host: Any, *rest: Any, **options: Any) -> Any:
            return resolve("127.0.0.1" if str(host).endswith(f".{DOMAIN}") else host, *rest, **options)

        patch.setattr(socket, "getaddrinfo", resolved)
        yield server


def endpoint(server: ServerProcess, listener: str, host: str | None) -> str:
    address, _, port = server.addresses[listener].rpartition(":")
    return f"{address if host is None else f'{host}.{DOMAIN}'}:{port}"


def client(server: ServerProcess, key: str, host: str | None = None, name: str = ROOT) -> ServiceBusClient:
    text = server.connection_string_for(name, key, endpoint(server, "amqp", host))
    return ServiceBusClient.from_connection_string(text, retry_total=0)


def admin(server: ServerProcess, key: str, host: str | None = None) -> ServiceBusAdministrationClient:
    text = server.connection_string_for(ROOT, key, endpoint(server, "http", host))
    options = {"connection_verify": str(server.authority), "retry_total": 0}
    return ServiceBusAdministrationClient.from_connection_string(text, **options)


def exchange(connected: ServiceBusClient, queue: str, body: str) -> list[str]:
    """Sends one message, and takes everything that was in the queue before it, and itself."""
    deletes = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    found: list[str] = []
    with connected, connected.get_queue_receiver(queue, receive_mode=deletes) as receiver:
        with connected.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage(body))
        while body not in found:
            found += [str(message) for message in receiver.receive_messages(10, max_wait_time=20)]
    return sorted(found, key=lambda one: one == body)


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("by", ["key", "host"])
def test_messages_stay_in_their_namespace(server: ServerProcess, by: str, queue: str) -> None:
    for name in KEYS:
        connected = client(server, KEYS[name], name if by == "host" else None)
        with connected, connected.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage(f"of {name}"))
    for name in KEYS:
        connected = client(server, KEYS[name], None if by == "host" else name)
        assert exchange(connected, queue, "last") == [f"of {name}", "last"]


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("by", ["key", "host"])
def test_each_is_managed_by_itself(server: ServerProcess, by: str, name: str) -> None:
    fresh = f"made-{by}-{name}"
    with admin(server, KEYS[name], name if by == "host" else None) as managed:
        assert managed.get_namespace_properties().name == name
        managed.create_queue(fresh, enable_partitioning=by == "host")
    for other in KEYS:
        with admin(server, KEYS[other], other) as managed:
            assert (fresh in {queue.name for queue in managed.list_queues()}) is (other == name)


@pytest.mark.parametrize("queue", QUEUES)
def test_an_entitys_own_key_finds_its_namespace(server: ServerProcess, queue: str) -> None:
    connected = client(server, f"{ENTITY_KEY}-of-third", name="own")
    with connected, connected.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("for the third"))
    assert exchange(client(server, KEYS["third"], "third"), queue, "last") == ["for the third", "last"]


@pytest.mark.parametrize(("host", "of"), [("second", "first"), ("first", "second"), ("third", "second")])
def test_a_key_opens_no_namespace_but_its_own(server: ServerProcess, host: str, of: str) -> None:
    with client(server, KEYS[of], host) as connected, pytest.raises(ServiceBusAuthenticationError):
        connected.get_queue_sender("plain").send_messages(ServiceBusMessage("x"))
    with admin(server, KEYS[of], host) as managed, pytest.raises(ClientAuthenticationError):
        managed.create_queue("never")


def test_a_key_that_nobody_has(server: ServerProcess) -> None:
    with admin(server, "wrong") as managed, pytest.raises(ClientAuthenticationError):
        managed.get_namespace_properties()


def test_a_connection_is_in_one_namespace(server: ServerProcess) -> None:
    """The first token decides; a good one for another namespace is refused, and opens nothing."""
    amqp = AmqpClient(SocketStream(server.addresses["amqp"]))
    amqp.log_in("ANONYMOUS")
    amqp.open()
    expires_s = int(time.time()) + 600
    audience = "sb://localhost/plain"
    amqp.put_token(audience, make_token(audience, ROOT, KEYS["second"], expires_s))
    for other in ("first", "third"):
        with pytest.raises(Refused, match="InvalidSignature"):
            amqp.put_token("sb://localhost/partitioned", make_token("sb://localhost/", ROOT, KEYS[other], expires_s))
    amqp.send(amqp.sender("plain"))
    with pytest.raises(Refused):
        amqp.sender("partitioned")
    amqp.close()
    assert exchange(client(server, KEYS["second"]), "plain", "y") == ["x", "y"]


@pytest.mark.parametrize("name", KEYS)
def test_a_password_finds_its_namespace(server: ServerProcess, name: str) -> None:
    amqp = AmqpClient(SocketStream(server.addresses["amqp"]))
    amqp.log_in("PLAIN", f"\0{ROOT}\0{KEYS[name]}".encode())
    amqp.open()
    amqp.send(amqp.sender("plain"))
    amqp.close()
    assert exchange(client(server, KEYS[name], name), "plain", "y") == ["x", "y"]


def test_a_password_opens_no_namespace_but_its_own(server: ServerProcess) -> None:
    amqp = AmqpClient(SocketStream(server.addresses["amqp"]))
    amqp.log_in("PLAIN", f"\0{ROOT}\0{KEYS['second']}".encode())
    with pytest.raises(Refused, match="third"):
        amqp.open(f"third.{DOMAIN}")
        amqp.sender("plain")
    amqp.close()


@pytest.mark.parametrize("queue", QUEUES)
def test_messages_over_http(server: ServerProcess, queue: str) -> None:
    url = f"{server.http_url}/{queue}/messages"
    for name in KEYS:
        token = make_token(f"http://localhost/{queue}", ROOT, KEYS[name], int(time.time()) + 600)
        assert httpx.post(url, content=name, headers={"Authorization": token}).status_code == 201
    for name in reversed(KEYS):
        token = make_token(f"http://localhost/{queue}", ROOT, KEYS[name], int(time.time()) + 600)
        headers = {"Authorization": token, "Host": f"{name}.{DOMAIN}"}
        for status, body in ((200, name), (204, "")):
            answer = httpx.delete(f"{url}/head?timeout=0", headers=headers)
            assert (answer.status_code, answer.text) == (status, body)


def node(host: str, *names: str) -> Node:
    text = json.dumps({"UserConfig": {"Namespaces": [declared(name) for name in names]}})
    return Node(NodeOptions(Path("unused"), host=host, config=load(text, "config.json")))


def test_off_loopback_the_well_known_key_opens_nothing() -> None:
    """Not even a namespace that an earlier configuration has left in the stores."""
    networked = node("0.0.0.0", "second", "third")
    networked.check_keys()
    assert networked.common_keys() == []
    assert [rule.key_name for rule in node("127.0.0.1", "second").common_keys()] == [ROOT]


def test_off_loopback_each_namespace_needs_a_key() -> None:
    with pytest.raises(ConfigError, match="needs keys of your own"):
        node("0.0.0.0", "first", "second").check_keys()
