"""An entity that is full. Its smallest size is a gigabyte, so it is spread over so many partitions that each is small."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusQuotaExceededError

from tests.sdk.python.bus import Bus, partition_of, peek_all, soon, take
from tests.sdk.python.several import bus_server


def test_a_full_entity(tmp_path: Path) -> None:
    """A key's partition refuses what it has no room for; without a key another one takes it (A9, B8)."""
    options = ("--tier", "premium", "--premium-partitions", "512", "--store", "memory:")
    with bus_server(tmp_path, *options) as server, contextlib.closing(Bus(server, "partitioned")) as bus:
        queue = bus.queue()
        sender, receiver = queue.sender(), queue.receiver()
        big = b"x" * 900_000
        for _ in range(2):
            sender.send_messages(ServiceBusMessage(big, partition_key="k"))
        with pytest.raises(ServiceBusQuotaExceededError):
            sender.send_messages(ServiceBusMessage(big, partition_key="k"))
        with pytest.raises(ServiceBusQuotaExceededError):
            sender.schedule_messages(ServiceBusMessage(big, partition_key="k"), soon(3600))
        (full,) = {partition_of(message) for message in peek_all(receiver)}
        sender.send_messages(ServiceBusMessage(big))
        assert {partition_of(message) for message in peek_all(receiver)} > {full}
        take(receiver, 3)
        assert peek_all(receiver) == []
        sender.send_messages(ServiceBusMessage(big, partition_key="k"))
        assert [partition_of(message) for message in peek_all(receiver)] == [full]
