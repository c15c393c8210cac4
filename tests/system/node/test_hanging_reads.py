"""A store that takes commits and does not read, or the other way round: it is fenced, and peeks go on without it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver
from azure.servicebus.exceptions import ServiceBusServerBusyError
from azure.servicebus.management import ServiceBusAdministrationClient

from polybus.testing.server import ServerProcess
from tests.requirements.kit import Gate

BATCHES, IN_A_BATCH = 16 * 8, 5
MESSAGES = BATCHES * IN_A_BATCH
BEYOND_MEMORY = 35
"""Of a partition's 40 messages, which are more than it keeps in memory."""
LARGE = b"x" * 40_000
"""Large enough for a body record of its own, which a peek gets by its key."""
FENCED_WITHIN_S = 40


def until(true: Callable[[], bool], seconds: float = FENCED_WITHIN_S) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", "--stores", "2") as server:
        with ServiceBusAdministrationClient.from_connection_string(
            server.admin_connection_string, connection_verify=str(server.authority)
        ) as admin:
            admin.create_queue("spread", enable_partitioning=True)
        with (
            ServiceBusClient.from_connection_string(server.connection_string) as client,
            client.get_queue_sender("spread") as sender,
        ):
            for _ in range(BATCHES):
                sender.send_messages([ServiceBusMessage(LARGE) for _ in range(IN_A_BATCH)])
        server.restart()
        yield server


def peek_all(receiver: ServiceBusReceiver) -> set[int]:
    found: set[int] = set()
    number = 1
    while messages := receiver.peek_messages(100, sequence_number=number):
        found |= {message.sequence_number or 0 for message in messages}
        number = max(found) + 1
    return found


@pytest.mark.parametrize("kind", ["get", "scan", "commit"])
def test_a_store_of_which_one_thing_hangs_is_fenced_and_the_others_answer(server: ServerProcess, kind: str) -> None:
    gate = Gate(server)
    store = gate.store_numbers("spread")[0]  # of the partition that is asked first
    with (
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
        client.get_queue_receiver("spread") as receiver,
        client.get_queue_sender("spread") as sender,
    ):
        gate.switch(f"stores/{store}/hang", calls=[kind])
        began = time.monotonic()
        first = receiver.peek_messages(1, sequence_number=BEYOND_MEMORY)
        assert len(first) == 1
        assert time.monotonic() - began < 8, "a partition that hangs holds up those that answer"
        if kind == "commit":
            for _ in range(4):
                sender.send_messages(ServiceBusMessage("rerouted"))
        until(lambda: len(gate.missing("spread")) == 8)
        began = time.monotonic()
        reachable = peek_all_or_busy(receiver)
        assert {number >> 48 for number in reachable} == set(range(16)) - set(gate.missing("spread"))
        assert time.monotonic() - began < 10
        gate.switch("heal")
        until(lambda: not gate.missing("spread"), 60)
        everything = peek_all(receiver)
        assert len(everything) >= MESSAGES
        assert {number >> 48 for number in everything} == set(range(16))
    gate.close()


def peek_all_or_busy(receiver: ServiceBusReceiver) -> set[int]:
    """Everything that can be reached; the end is a refusal that can be tried again, never an empty answer."""
    found: set[int] = set()
    number = 1
    while True:
        try:
            messages = receiver.peek_messages(100, sequence_number=number)
        except ServiceBusServerBusyError:
            return found
        assert messages, "an empty answer says that there is no more"
        found |= {message.sequence_number or 0 for message in messages}
        number = max(found) + 1
