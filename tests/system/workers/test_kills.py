"""A worker that is killed under load: nothing that was acknowledged is lost, and sends without a key go on."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from polybus.testing.server import ServerProcess
from tests.requirements.kit import Gate
from tests.system.workers.kit import admin, clients_of, port_of, until, workers_of

# The SDK forgets sockets whose peer has gone.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
SENDERS = 4


class Load:
    """Senders without a key, one message at a time, that try again on a new link when they are refused."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self.accepted: list[str] = []
        self.tried: set[str] = set()
        self.refused: list[tuple[int, str]] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(number,)) for number in range(SENDERS)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _send(self, sender: int) -> None:
        number = 0
        while not self._ended.is_set():
            try:
                with (
                    ServiceBusClient.from_connection_string(self._server.connection_string, retry_total=0) as client,
                    client.get_queue_sender("work") as link,
                ):
                    while not self._ended.is_set():
                        number += 1
                        body = f"{sender}-{number}"
                        self.tried.add(body)
                        link.send_messages(ServiceBusMessage(body))
                        self.accepted.append(body)
            except ServiceBusError as error:
                self.refused.append((sender, str(error)))


def test_nothing_acknowledged_is_lost_and_sends_go_on_when_workers_are_killed(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--workers", "2") as server:
        with admin(server) as managing:
            managing.create_queue("work", enable_partitioning=True)
        port = port_of(server)
        with Load(server) as load:
            for _ in range(4):
                victim = max(workers_of(server), key=lambda pid: clients_of(pid, port))
                os.kill(victim, signal.SIGKILL)
                went_on = len(load.accepted) + 100  # through the other one, with half of the partitions
                until(lambda went_on=went_on: len(load.accepted) >= went_on)
                until(lambda victim=victim: len(workers_of(server)) == 2 and victim not in workers_of(server))
                gate = Gate(server)
                until(lambda gate=gate: not gate.missing("work"))
                gate.http.close()
        received: list[str] = []
        with (
            ServiceBusClient.from_connection_string(server.connection_string) as client,
            client.get_queue_receiver("work", prefetch_count=200) as receiver,
        ):
            while set(load.accepted) - set(received):
                messages = receiver.receive_messages(200, max_wait_time=20)
                assert messages, "acknowledged messages are missing"
                for message in messages:
                    received.append(str(message))
                    receiver.complete_message(message)
        assert set(received) <= load.tried
        # Whoever was connected to the victim, or had a send under way to it, heard so once for each kill.
        assert len(load.refused) <= 2 * SENDERS * 4
