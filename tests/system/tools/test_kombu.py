"""kombu's `azureservicebus://` transport, unmodified, and the `polybus://` URL, through this bus.

docs/protocol/emulator.md#kombu, docs/how-to/kombu.md.

kombu's own names no ports and always speaks TLS. In this process alone, the name that it is given leads to the bus,
whatever the port, and the bus's authority is trusted: the work of a hosts entry, of the ports 443 and 5671, and of a
bundle of certificates. The URL of our own needs none of this, and `test_the_url_needs_nothing_else` shows it in a
process without.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import certifi
import httpx
import pytest
from kombu import Connection, Consumer, Exchange, Producer, Queue

import polybus.kombu  # noqa: F401 - makes the URL known
from polybus.client.sas import make_token
from polybus.testing.server import ServerProcess

NAME = "broker.polybus.net"
ROOT, KEY = "RootManageSharedAccessKey", "SAS_KEY_VALUE"
LOCK_SECONDS = 60
PATIENCE_S = 30
OPTIONS = {"wait_time_seconds": PATIENCE_S, "peek_lock_seconds": LOCK_SECONDS, "uamqp_keep_alive_interval": 0}
_names = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("kombu")
    with (
        ServerProcess(data, "--store", "memory:", "--cert-name", NAME, "--clock", "movable") as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        lead_to(patch, server.addresses["tls"])
        trust(patch, server.authority)
        yield server


def lead_to(patch: pytest.MonkeyPatch, address: str) -> None:
    """Lets the bus's name resolve to its address, and every port of that name to its TLS port."""
    host, _, port = address.rpartition(":")
    resolve = socket.getaddrinfo

    def resolved(name: Any, asked: Any, *rest: Any, **options: Any) -> Any:
        if name != NAME:
            return resolve(name, asked, *rest, **options)
        assert asked in (443, 5671), asked
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, int(port)))]

    patch.setattr(socket, "getaddrinfo", resolved)


def trust(patch: pytest.MonkeyPatch, authority: Path) -> None:
    """HTTPS looks at the environment. AMQPS knows certifi's bundle only, to which users add the authority."""
    patch.setenv("REQUESTS_CA_BUNDLE", str(authority))
    patch.setattr(certifi, "where", lambda: str(authority))


@pytest.fixture(params=["azureservicebus", "polybus"])
def url(request: pytest.FixtureRequest, server: ServerProcess) -> str:
    if request.param == "polybus":
        return f"polybus://{ROOT}:{KEY}@{server.addresses['amqp']}"
    return f"azureservicebus://{ROOT}:{KEY}@{NAME}"


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    with Connection(url, transport_options=OPTIONS) as connection:
        yield connection


@pytest.fixture
def queue(connection: Connection) -> Queue:
    """A declared queue, under a name that kombu must change before the bus can have it."""
    name = f"tasks:{next(_names)}"
    declared = Queue(name, routing_key=name, channel=connection.default_channel)
    declared.declare()
    return declared


def publish(connection: Connection, queue: Queue, *bodies: object) -> None:
    producer = Producer(connection.default_channel, serializer="json")
    for body in bodies:
        producer.publish(body, exchange="", routing_key=queue.name)


def size(queue: Queue) -> int:
    return int(queue.queue_declare(passive=True).message_count)


def get(queue: Queue, **options: Any) -> Any:
    message = queue.get(**options)
    assert message is not None, "no message came"
    return message


def advance(server: ServerProcess, seconds: int) -> None:
    token = make_token(server.http_url, ROOT, KEY, int(time.time()) + 600)
    url = f"{server.http_url}/$polybus/faults/clock"
    answer = httpx.post(url, json={"advance_ms": seconds * 1000}, headers={"Authorization": token})
    assert answer.status_code == 200, answer.text


def test_the_queue_has_the_name_and_the_lock_that_kombu_asks_for(server: ServerProcess, queue: Queue) -> None:
    token = make_token(server.http_url, ROOT, KEY, int(time.time()) + 600)
    path = queue.name.replace(":", "_")
    answer = httpx.get(f"{server.http_url}/{path}?api-version=2021-05", headers={"Authorization": token})
    assert f"<LockDuration>PT{LOCK_SECONDS // 60}M</LockDuration>" in answer.text


def test_declaring_twice_is_no_error(url: str, connection: Connection, queue: Queue) -> None:
    publish(connection, queue, "kept")
    with Connection(url, transport_options=OPTIONS) as other:
        again = Queue(queue.name, channel=other.default_channel)
        again.declare()
        assert size(again) == 1


def test_publish_get_and_ack(connection: Connection, queue: Queue) -> None:
    body = {"id": 7, "text": "käse", "list": [1, 2.5, None]}
    publish(connection, queue, body)
    assert size(queue) == 1
    message = get(queue)
    assert message.payload == body
    assert size(queue) == 1, "a locked message still counts"
    message.ack()
    assert size(queue) == 0


def test_a_consumer_gets_everything_in_turn(connection: Connection, queue: Queue) -> None:
    seen: list[object] = []

    def take(body: object, message: Any) -> None:
        seen.append(body)
        message.ack()

    publish(connection, queue, *range(5))
    with Consumer(connection.default_channel, [queue], callbacks=[take]):
        while len(seen) < 5:
            connection.drain_events(timeout=PATIENCE_S)
    assert seen == list(range(5))
    assert size(queue) == 0


def test_a_consumer_without_acks_deletes_as_it_receives(connection: Connection, queue: Queue) -> None:
    seen: list[object] = []
    publish(connection, queue, "gone")
    with Consumer(connection.default_channel, [queue], callbacks=[lambda body, _: seen.append(body)], no_ack=True):
        connection.drain_events(timeout=PATIENCE_S)
    assert seen == ["gone"]
    assert size(queue) == 0


@pytest.mark.parametrize("requeue", [True, False])
def test_what_is_rejected_comes_back_when_its_lock_ends(
    server: ServerProcess, connection: Connection, queue: Queue, requeue: bool
) -> None:
    """kombu's transport leaves both to the lock; the bus must neither lose the message nor give it too early."""
    publish(connection, queue, "again")
    first = get(queue)
    if requeue:
        first.requeue()
    else:
        first.reject()
    assert size(queue) == 1
    advance(server, LOCK_SECONDS + 1)
    second = get(queue)
    assert second.payload == "again"
    assert second.delivery_info["azure_message"].delivery_count == 1
    second.ack()
    assert size(queue) == 0


def test_an_ack_after_the_lock_ended_loses_nothing(
    server: ServerProcess, connection: Connection, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    publish(connection, queue, "late")
    late = get(queue)
    advance(server, LOCK_SECONDS + 1)
    late.ack()
    assert "MessageLockLostError" in caplog.text
    assert size(queue) == 1
    get(queue).ack()
    assert size(queue) == 0


def test_locks_are_renewed_by_a_second_receiver(server: ServerProcess, url: str) -> None:
    options = {**OPTIONS, "use_lock_renewal": True}
    with Connection(url, transport_options=options) as connection:
        channel = connection.default_channel
        queue = Queue(f"renewed-{next(_names)}", channel=channel)
        queue.declare()
        publish(connection, queue, "slow")
        message = get(queue)
        held = message.delivery_info["azure_message"]
        advance(server, LOCK_SECONDS - 10)
        until = held.locked_until_utc
        channel._get_renewal_receiver(queue.name).receiver.renew_message_lock(held)
        assert held.locked_until_utc > until
        advance(server, LOCK_SECONDS - 10)
        message.ack()
        assert size(queue) == 0


def test_purge_counts_what_it_takes(connection: Connection, queue: Queue) -> None:
    publish(connection, queue, *range(23))
    assert size(queue) == 23
    assert queue.purge() == 23
    assert size(queue) == 0


def test_a_deleted_queue_can_be_declared_again(connection: Connection) -> None:
    """kombu deletes a queue on the bus for each of its bindings, so it needs one."""
    name = f"bound-{next(_names)}"
    queue = Queue(name, Exchange("tasks"), routing_key=name, channel=connection.default_channel)
    queue.declare()
    publish(connection, queue, "old")
    queue.delete()
    queue.declare()
    assert size(queue) == 0
    publish(connection, queue, "new")
    message = get(queue)
    assert message.payload == "new"
    message.ack()


PROGRAM = """
import sys
import polybus.kombu
from kombu import Connection

with Connection(sys.argv[1]) as connection:
    queue = connection.SimpleQueue("tasks-elsewhere")
    queue.put({"hello": "world"})
    message = queue.get(timeout=30)
    print(message.payload["hello"], connection.as_uri())
    message.ack()
    queue.close()
"""


def test_the_url_needs_nothing_else(server: ServerProcess) -> None:
    """A process whose environment names no certificate, and whose names lead where they always do."""
    url = f"polybus://{ROOT}:{KEY}@{server.addresses['amqp']}"
    bare = {"PATH": os.environ["PATH"], "PYTHONWARNINGS": "error"}
    ran = subprocess.run([sys.executable, "-c", PROGRAM, url], env=bare, capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    assert ran.stdout.split() == ["world", url.replace(KEY, "**")]


@pytest.mark.parametrize("url", ["polybus://localhost:5672", "polybus://name@localhost:5672", "polybus://name:key@"])
def test_a_url_without_all_its_parts_is_an_error_with_its_form(url: str) -> None:
    with pytest.raises(ValueError, match=r"polybus://KEYNAME:KEY@HOST:PORT"):
        Connection(url).default_channel  # noqa: B018
