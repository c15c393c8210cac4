"""Where a messaging store lies is nobody's business but its operator's: no answer to a client tells it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from polybus.client.sas import make_token
from polybus.testing.server import ServerProcess

ROOT, KEY = "RootManageSharedAccessKey", "SAS_KEY_VALUE"
PLACE = "secret-place"
KINDS = ("plain", "partitioned")


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A bus that has lost its only messaging store."""
    folder = tmp_path_factory.mktemp("paths") / PLACE
    with ServerProcess(folder, "--stores", "1") as server:
        with ServiceBusAdministrationClient.from_connection_string(
            server.admin_connection_string, connection_verify=str(server.authority)
        ) as admin:
            for kind in KINDS:
                admin.create_queue(kind, enable_partitioning=kind == "partitioned")
        assert ask(server, "POST", "$polybus/faults/stores/0/down", {}).status_code == 200
        yield server
    assert any("fenced" in line and PLACE in line for line in server.output), "the operator is told"


def ask(server: ServerProcess, method: str, path: str, body: object = None) -> httpx.Response:
    headers = {"Authorization": make_token(server.http_url, ROOT, KEY, int(time.time()) + 600)}
    return httpx.request(method, f"{server.http_url}/{path}", json=body, headers=headers, timeout=60)


def check(text: str) -> None:
    assert "store" in text or "partition" in text.lower(), text
    for secret in (PLACE, "rocksdb", "/stores/", "on demand"):
        assert secret not in text


@pytest.mark.parametrize("kind", KINDS)
def test_over_http(broken: ServerProcess, kind: str) -> None:
    sent = ask(broken, "POST", f"{kind}/messages", "x")
    browsed = ask(broken, "GET", f"{kind}/messages")
    deleted = ask(broken, "DELETE", kind)
    for answer in (sent, browsed, deleted):
        assert answer.status_code == 503, answer.text
        check(answer.text)


@pytest.mark.parametrize("kind", KINDS)
def test_over_amqp(broken: ServerProcess, kind: str) -> None:
    client = ServiceBusClient.from_connection_string(broken.connection_string, retry_total=0)
    with client, client.get_queue_sender(kind) as sender, client.get_queue_receiver(kind) as receiver:
        with pytest.raises(ServiceBusError) as sent:
            sender.send_messages(ServiceBusMessage("x", partition_key="k"))
        check(str(sent.value))
        with pytest.raises(ServiceBusError) as peeked:
            receiver.peek_messages(1)
        check(str(peeked.value))


def test_what_everybody_may_see(broken: ServerProcess) -> None:
    answer = httpx.get(f"{broken.http_url}/health", timeout=60)
    assert answer.status_code == 503
    check(answer.text)
    metrics = httpx.get(f"{broken.http_url}/metrics", timeout=60)
    assert PLACE not in metrics.text
