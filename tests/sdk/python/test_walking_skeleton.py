"""One message through every room: administration client over TLS, sender and receiver over AMQP, a synced store."""

from __future__ import annotations

import contextlib

import pytest
from azure.servicebus import ServiceBusMessage

from polybus.testing.server import ServerProcess
from tests.sdk.python.bus import Bus, peek_all, receive_one
from tests.sdk.python.table import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_one_message_through_every_room(server: ServerProcess, kind: str) -> None:
    with contextlib.closing(Bus(server, kind)) as bus:
        queue = bus.queue()
        queue.send(ServiceBusMessage(b"hello", message_id="1"))
        assert queue.runtime().active_message_count == 1
        receiver = queue.receiver()
        message = receive_one(receiver)
        assert (b"".join(message.body), message.message_id) == (b"hello", "1")
        receiver.complete_message(message)
        assert peek_all(receiver) == []
        assert queue.runtime().total_message_count == 0
