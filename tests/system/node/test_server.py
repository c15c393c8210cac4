"""A bus inside of the test's own process, used with the official SDK: synchronously, and on the loop at hand."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from polybus import Server, ServerOptions
from polybus.errors import ConfigError

READY_SECONDS = 0.3
CONFIG: dict[str, Any] = {
    "UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [{"Name": "orders"}], "Topics": []}]}
}


def send(server: Server, text: str) -> None:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage(text))


def receive(server: Server) -> str:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        (message,) = receiver.receive_messages(max_wait_time=10)
        receiver.complete_message(message)
        return str(message)


def test_a_bus_in_memory_serves_synchronous_clients() -> None:
    with Server(config=CONFIG) as server:
        folder = server.authority.parent.parent
        send(server, "one")
        assert receive(server) == "one"
        with ServiceBusAdministrationClient.from_connection_string(
            server.admin_connection_string, connection_verify=str(server.authority)
        ) as administration:
            assert administration.get_queue("orders").name == "orders"
    assert not folder.exists()


def test_it_is_ready_within_a_third_of_a_second() -> None:
    with Server():
        pass  # What is loaded once for the process is loaded by now.
    took = []
    for _ in range(3):
        began = time.perf_counter()
        with Server(stores=4):
            took.append(time.perf_counter() - began)
    assert min(took) < READY_SECONDS


def test_a_bus_serves_clients_on_its_own_loop() -> None:
    async def use() -> str:
        async with (
            Server(config=CONFIG) as server,
            AsyncClient.from_connection_string(server.connection_string) as client,
        ):
            async with client.get_queue_sender("orders") as sender:
                await sender.send_messages(ServiceBusMessage("two"))
            async with client.get_queue_receiver("orders") as receiver:
                (message,) = await receiver.receive_messages(max_wait_time=10)
                await receiver.complete_message(message)
                return str(message)

    assert asyncio.run(use()) == "two"


def test_a_folder_keeps_what_was_sent(tmp_path: Path) -> None:
    server = Server(ServerOptions(data=tmp_path, stores=2, config=CONFIG))
    with server:
        send(server, "three")
    with server:
        assert receive(server) == "three"
    assert sorted(path.name for path in (tmp_path / "stores").iterdir()) == ["0", "1"]


def test_time_passes_when_it_is_told_to() -> None:
    with (
        Server(config=CONFIG, movable_clock=True) as server,
        ServiceBusClient.from_connection_string(server.connection_string) as client,
    ):
        send(server, "late")
        receiver = client.get_queue_receiver("orders")
        (message,) = receiver.receive_messages(max_wait_time=10)
        server.advance_clock(60_000)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
        receiver.close()


def test_stores_are_lost_and_come_back() -> None:
    with Server(config=CONFIG) as server:
        shown = server.switch("stores/0/down")
        assert shown["stores"][0]["state"] != "open"
        with (
            ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
            client.get_queue_sender("orders") as sender,
            pytest.raises(ServiceBusError),
        ):
            sender.send_messages(ServiceBusMessage("lost"))
        server.switch("heal")
        send(server, "found")
        assert receive(server) == "found"


def test_keys_of_ones_own_replace_the_well_known_one() -> None:
    with Server(config=CONFIG, keys={"app": "secret:Send,Listen"}) as server:
        assert "SharedAccessKeyName=app;SharedAccessKey=secret;" in server.connection_string
        send(server, "four")
        assert receive(server) == "four"


def test_several_run_side_by_side() -> None:
    with Server(config=CONFIG) as one, Server(config=CONFIG) as other:
        send(one, "one's")
        send(other, "other's")
        assert (receive(one), receive(other)) == ("one's", "other's")


def test_what_cannot_start_says_why_and_leaves_nothing() -> None:
    server = Server(host="0.0.0.0")
    with pytest.raises(ConfigError, match="keys of your own"):
        server.start()
    server.stop()
    with Server() as running, pytest.raises(ConfigError, match="running already"):
        running.start()
