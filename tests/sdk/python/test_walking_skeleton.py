"""One message through every room: administration client over TLS, sender and receiver over AMQP, a synced store."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from polybus.testing.server import ServerProcess


@pytest.mark.parametrize("partitioned", [False, True], ids=["plain", "partitioned"])
def test_one_message_through_every_room(
    server: ServerProcess, admin: ServiceBusAdministrationClient, partitioned: bool
) -> None:
    name = f"skeleton-{partitioned}"
    admin.create_queue(name, enable_partitioning=partitioned)
    with ServiceBusClient.from_connection_string(server.connection_string) as client:
        with client.get_queue_sender(name) as sender:
            sender.send_messages(ServiceBusMessage(b"hello", message_id="1"))
        assert admin.get_queue_runtime_properties(name).active_message_count == 1
        with client.get_queue_receiver(name, max_wait_time=10) as receiver:
            message = next(receiver)
            assert (b"".join(message.body), message.message_id) == (b"hello", "1")
            receiver.complete_message(message)
    assert admin.get_queue_runtime_properties(name).total_message_count == 0
