"""A store that was full and is drained has space again by itself: what is deleted leaves the disk without a restart."""

from __future__ import annotations

import os
import time
from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from polybus.testing.server import ServerProcess
from tests.requirements.kit import Gate

MESSAGES = 200


def size(folder: Path) -> int:
    """Of everything but the journal, whose files are made beforehand and used again."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() and not path.name.startswith("journal-") else 0
        except FileNotFoundError:  # merged away meanwhile
            continue
    return total


def test_the_files_of_a_drained_store_go_while_it_is_full(tmp_path: Path) -> None:
    store = tmp_path / "data" / "stores"
    with ServerProcess(tmp_path / "data", "--stores", "1") as server:
        with ServiceBusAdministrationClient.from_connection_string(
            server.admin_connection_string, connection_verify=str(server.authority)
        ) as admin:
            admin.create_queue("q")
        gate = Gate(server)
        with ServiceBusClient.from_connection_string(server.connection_string) as client:
            with client.get_queue_sender("q") as sender:
                for _ in range(MESSAGES):
                    sender.send_messages(ServiceBusMessage(os.urandom(200_000)))
            filled = size(store)
            gate.switch("stores/0/full", reserve_only=True)
            with client.get_queue_receiver("q", receive_mode="receiveanddelete", max_wait_time=3) as receiver:
                assert sum(1 for _ in receiver) == MESSAGES
        deadline = time.monotonic() + 30
        while size(store) > filled // 4:
            assert time.monotonic() < deadline, f"{size(store)} of {filled} bytes are still there"
        gate.close()
