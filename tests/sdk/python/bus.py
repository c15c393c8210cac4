"""What a behaviour is given: fresh entities on a real server, and the SDK's own senders and receivers for them."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import itertools
import json
import os
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote_plus
from weakref import WeakKeyDictionary

from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSender,
    ServiceBusSubQueue,
    TransportType,
)
from azure.servicebus import __version__ as SDK
from azure.servicebus.management import ServiceBusAdministrationClient

from polybus.testing.server import ServerProcess
from tests.sdk.python.table import version

WAIT = 30.0
"""Seconds that a receive waits for what must come. It returns as soon as it is there."""
NOTHING = 1.0
"""Seconds that a receive waits for what must not come."""
SHORT_LOCK = timedelta(seconds=5)
"""The shortest lock that the service offers."""
WAITS_FOR_SETTLEMENT = version(SDK) >= (7, 15)
"""Whether a settlement returns when the bus has confirmed it; older ones are sent and forgotten."""
DEAD = ServiceBusSubQueue.DEAD_LETTER
PLAIN_TCP = version(SDK) >= (7, 14)
"""Whether the SDK knows the emulator's plain connections. Older ones speak TLS; its port takes that too."""

ROOT, ROOT_KEY = "RootManageSharedAccessKey", "SAS_KEY_VALUE"

T = TypeVar("T")
_names = itertools.count(1)
_buses: WeakKeyDictionary[ServiceBusReceiver, Bus] = WeakKeyDictionary()


def text(message: ServiceBusReceivedMessage) -> str:
    """The body, whatever number of data sections it came in."""
    return b"".join(message.body).decode()


def texts(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return [text(message) for message in messages]


def partition_of(message: ServiceBusReceivedMessage | int) -> int:
    """The partition that a sequence number carries in its upper 16 bits."""
    number = message if isinstance(message, int) else message.sequence_number
    assert number is not None
    return number >> 48


def numbered(count: int, **properties: Any) -> list[ServiceBusMessage]:
    """Messages 0, 1, 2 …, with one partition key unless told otherwise, so that their order is promised (B12)."""
    if "session_id" not in properties:
        properties.setdefault("partition_key", "one")
    return [ServiceBusMessage(str(index), **properties) for index in range(count)]


def soon(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def in_background(work: Callable[[], T]) -> Future[T]:
    """Does the work in a thread of its own; the result says what came of it."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def receive(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """As many messages as that; a single call may bring fewer."""
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count:
        some = receiver.receive_messages(max_message_count=count - len(found), max_wait_time=WAIT)
        assert some, f"only {len(found)} of {count} messages came"
        found += some
    return found


def receive_one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    return receive(receiver, 1)[0]


def take(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """Receives and completes them."""
    found = receive(receiver, count)
    for message in found:
        receiver.complete_message(message)
    return found


def nothing_comes(receiver: ServiceBusReceiver) -> bool:
    return receiver.receive_messages(max_wait_time=NOTHING) == []


def peek_all(receiver: ServiceBusReceiver, page: int = 100) -> list[ServiceBusReceivedMessage]:
    """Everything there is, by peeking on until a reply is empty (C5)."""
    if not WAITS_FOR_SETTLEMENT:
        # Requests of one connection are taken in order, so after this one the settlements are under way.
        receiver.peek_messages()
        _buses[receiver].commit()
    found: list[ServiceBusReceivedMessage] = []
    start = 1
    while some := receiver.peek_messages(max_message_count=page, sequence_number=start):
        found += some
        assert some[-1].sequence_number is not None
        start = some[-1].sequence_number + 1
    return found


def signature(resource: str, key_name: str, key: str, expires: float) -> str:
    """A shared access signature, as an application makes one by hand."""
    encoded, until = quote_plus(resource), str(int(expires))
    digest = hmac.new(key.encode(), f"{encoded}\n{until}".encode(), hashlib.sha256).digest()
    return f"SharedAccessSignature sr={encoded}&sig={quote_plus(base64.b64encode(digest))}&se={until}&skn={key_name}"


class Entity:
    """A queue, a topic or a subscription of this behaviour's own."""

    def __init__(self, bus: Bus, name: str, subscription: str | None = None) -> None:
        self.bus = bus
        self.name = name
        self.subscription = subscription
        self._sender: ServiceBusSender | None = None

    @property
    def path(self) -> str:
        return self.name if self.subscription is None else f"{self.name}/Subscriptions/{self.subscription}"

    def sender(self, client: ServiceBusClient | None = None, **options: Any) -> ServiceBusSender:
        """An open sender. The one for queues serves topics just as well: both are names."""
        return self.bus.opened((client or self.bus.client).get_queue_sender(self.name, **options))

    def send(self, *messages: ServiceBusMessage | str) -> None:
        """Sends one after the other, over a sender that is kept."""
        if self._sender is None:
            self._sender = self.sender()
        for message in messages:
            self._sender.send_messages(ServiceBusMessage(message) if isinstance(message, str) else message)

    def unopened(self, client: ServiceBusClient | None = None, **options: Any) -> ServiceBusReceiver:
        client = client or self.bus.client
        if self.subscription is None:
            receiver = client.get_queue_receiver(self.name, **options)
        else:
            receiver = client.get_subscription_receiver(self.name, self.subscription, **options)
        _buses[receiver] = self.bus
        return receiver

    def receiver(self, client: ServiceBusClient | None = None, **options: Any) -> ServiceBusReceiver:
        return self.bus.opened(self.unopened(client, **options))

    def dead_letters(self, **options: Any) -> ServiceBusReceiver:
        return self.receiver(sub_queue=DEAD, **options)

    def runtime(self) -> Any:
        """Counts and times, as the administration client gives them."""
        if self.subscription is None:
            return self.bus.admin.get_queue_runtime_properties(self.name)
        return self.bus.admin.get_subscription_runtime_properties(self.name, self.subscription)


class Bus:
    """One behaviour's view of a server. Whatever it opens is closed when the behaviour ends."""

    def __init__(self, server: ServerProcess, kind: str) -> None:
        self.server = server
        self.partitioned = kind == "partitioned"
        self._exits = contextlib.ExitStack()
        self.client = self.client_with()
        self.admin: ServiceBusAdministrationClient = self.opened(admin_client(server))

    # Clients

    def client_with(self, connection_string: str | None = None, **options: Any) -> ServiceBusClient:
        """A client that differs from the behaviour's own."""
        string, options = self.connection(connection_string, **options)
        return self.opened(ServiceBusClient.from_connection_string(string, **options))

    def connection(self, connection_string: str | None = None, **options: Any) -> tuple[str, dict[str, Any]]:
        """What a client of either kind needs to reach the server."""
        if not PLAIN_TCP:
            options.setdefault("connection_verify", str(self.server.authority))
        return connection_string or self.connection_string(), options

    def connection_string(self, key_name: str = ROOT, key: str = ROOT_KEY) -> str:
        address = self.server.addresses["amqp"]
        return self.server.connection_string_for(key_name, key, address)

    def secure(self, **options: Any) -> tuple[str, dict[str, Any]]:
        """The host, and what a client needs to reach it by AMQP over TLS on the port it happens to have."""
        host, port = self.server.addresses["tls"].rsplit(":", 1)
        options.setdefault("connection_verify", str(self.server.authority))
        if not PLAIN_TCP:
            return f"{host}:{port}", options
        return host, {
            "custom_endpoint_address": f"sb://{host}:{port}",
            "transport_type": TransportType.Amqp,
            **options,
        }

    def opened(self, handler: Any) -> Any:
        return self._exits.enter_context(handler)

    def close(self) -> None:
        self._exits.close()

    # Entities

    def new_name(self) -> str:
        return f"entity-{next(_names)}"

    def queue(self, name: str | None = None, **options: Any) -> Entity:
        entity = Entity(self, name or self.new_name())
        options.setdefault("enable_partitioning", self.partitioned)
        self.admin.create_queue(entity.name, **options)
        self._exits.callback(self._delete, self.admin.delete_queue, entity.name)
        return entity

    def topic(self, **options: Any) -> Entity:
        entity = Entity(self, self.new_name())
        self.admin.create_topic(entity.name, enable_partitioning=self.partitioned, **options)
        self._exits.callback(self._delete, self.admin.delete_topic, entity.name)
        return entity

    def _delete(self, delete: Callable[[str], None], name: str) -> None:
        """A namespace has room for a hundred partitioned entities (A11)."""
        with contextlib.suppress(ResourceNotFoundError):
            delete(name)

    def subscription(self, topic: Entity, name: str = "all", **options: Any) -> Entity:
        self.admin.create_subscription(topic.name, name, **options)
        return Entity(self, topic.name, name)

    def commit(self) -> None:
        """Returns when whatever is under way has been written: being healthy takes a commit of every store.

        Twice, for the first answer may be that of a commit which somebody else asked for earlier.
        """
        for _ in range(2):
            with urllib.request.urlopen(f"{self.server.http_url}/health") as response:
                response.read()

    # Time

    def server_time(self) -> datetime:
        """The server's clock, by the time it gives to a new entity."""
        probe = self.queue()
        return self.admin.get_queue_runtime_properties(probe.name).created_at_utc

    def move_clock(self, duration: timedelta) -> None:
        """Moves the server's clock forward; the SDK's stays."""
        self.switch("clock", advance_ms=int(duration.total_seconds() * 1000))

    def switch(self, switch: str, **body: Any) -> None:
        """Turns one of the fault switches of the development profile; all are turned back in the end."""
        if switch.startswith(("stores/", "entities/")):
            self._exits.callback(self.switch, "heal")
        token = signature(f"sb://{self.server.addresses['http']}/", ROOT, ROOT_KEY, time.time() + 600)
        request = urllib.request.Request(
            f"{self.server.http_url}/$polybus/faults/{switch}",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Authorization": token},
        )
        with urllib.request.urlopen(request) as response:
            response.read()


class Trust:
    """Older administration clients cannot be given an authority. They take those of a file that the environment names:
    one of our own, in a server's data folder, whatever the environment named before."""

    def __init__(self) -> None:
        self._authorities: list[str] = []
        self._bundle: Path | None = None
        self._lock = threading.Lock()

    def add(self, server: ServerProcess) -> None:
        authority = server.authority.read_text()
        with self._lock:
            if authority in self._authorities:
                return
            self._authorities.append(authority)
            self._bundle = self._bundle or server.data / "authorities.pem"
            growing = self._bundle.with_suffix(".growing")
            growing.write_text("".join(self._authorities))
            growing.replace(self._bundle)
            os.environ["REQUESTS_CA_BUNDLE"] = str(self._bundle)


_trust = Trust()


def admin_client(server: ServerProcess, connection_string: str | None = None) -> ServiceBusAdministrationClient:
    if not PLAIN_TCP:
        _trust.add(server)
    return ServiceBusAdministrationClient.from_connection_string(
        connection_string or server.admin_connection_string, connection_verify=str(server.authority)
    )
