"""The bus is killed while dead letters go back: each is in exactly one place before, meanwhile and after.

It needs no Spark: what is proven is what happens to letters that were chosen.
"""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from polybus.pipelines.repairs import Repaired, letter_of
from polybus.pipelines.resubmitting import Letter, Resubmission, SendRate
from polybus.spark.bus import BusClient
from polybus.spark.connection import BusConnection
from polybus.testing.server import ServerProcess
from tests.sdk.python.bus import admin_client, text

COUNT = 240
KILLS = 3
LETTERS_AT_ONCE = 5


def _numbers(client: ServiceBusClient, queue: str) -> list[int]:
    """The dead letters that are there."""
    found: list[int] = []
    with client.get_queue_receiver(queue, sub_queue="deadletter") as receiver:
        while peeked := receiver.peek_messages(100, sequence_number=found[-1] + 1 if found else 0):
            found += [message.sequence_number for message in peeked]
    return found


def _bury(client: ServiceBusClient, queue: str) -> None:
    with client.get_queue_sender(queue) as sender:
        for number in range(COUNT):
            sender.send_messages(
                ServiceBusMessage(f"m{number}", message_id=str(number), partition_key=f"k{number % 9}")
            )
    with client.get_queue_receiver(queue) as receiver:
        left = COUNT
        while left:
            for message in receiver.receive_messages(max_message_count=left, max_wait_time=10):
                receiver.dead_letter_message(message, reason="why")
                left -= 1


def _drained(client: ServiceBusClient, queue: str, count: int) -> list[str]:
    found: list[str] = []
    with client.get_queue_receiver(queue) as receiver:
        while len(found) < count:
            for message in receiver.receive_messages(max_message_count=100, max_wait_time=10):
                receiver.complete_message(message)
                found.append(text(message))
        found += [text(message) for message in receiver.peek_messages(10)]
    return found


class Redrive(threading.Thread):
    """Moves letters, a few at a time and without a pause, and says when so many have an outcome."""

    def __init__(self, server: ServerProcess, queue: str, letters: list[Letter], tell_at: int) -> None:
        super().__init__()
        self.outcomes: Counter[str] = Counter()
        self.under_way = threading.Event()
        self._bus = BusClient(BusConnection(server.connection_string), f"{queue}/$DeadLetterQueue", 60)
        self._letters = letters
        self._tell_at = tell_at
        self._seconds = 0.0

    def _wait(self, seconds: float) -> bool:
        self._seconds += seconds
        return False

    def run(self) -> None:
        pace = SendRate(LETTERS_AT_ONCE, lambda: self._seconds, self._wait)
        try:
            for outcome in Resubmission(self._bus, pace).run(self._letters):
                self.outcomes[outcome.what] += 1
                if self.outcomes.total() >= self._tell_at:
                    self.under_way.set()
        finally:
            self.under_way.set()
            self._bus.close()


def test_letters_are_moved_exactly_once_though_the_bus_is_killed_again_and_again(tmp_path: Path) -> None:
    queue, target = "orders", "again"
    with ServerProcess(tmp_path / "bus", "--stores", "2") as server:
        with admin_client(server) as admin:
            admin.create_queue(queue, enable_partitioning=True)
            admin.create_queue(target, enable_partitioning=True, requires_duplicate_detection=False)
        with ServiceBusClient.from_connection_string(server.connection_string) as client:
            _bury(client, queue)
        for kill in range(KILLS):
            with ServiceBusClient.from_connection_string(server.connection_string) as client:
                numbers = _numbers(client, queue)
            letters = [letter_of(Repaired(number, target, None, {}, {"body": b"repaired"})) for number in numbers]
            if kill % 2 == 0:
                letters = [Letter(number, target) for number in numbers]
            redrive = Redrive(server, queue, letters[: COUNT // (KILLS + 1)], 5)
            redrive.start()
            assert redrive.under_way.wait(60)
            server.restart(kill=True)
            redrive.join()
            assert set(redrive.outcomes) <= {"moved", "missing"}
        with ServiceBusClient.from_connection_string(server.connection_string) as client:
            last = Redrive(server, queue, [Letter(number, target) for number in _numbers(client, queue)], 0)
            last.start()
            last.join()
            assert _numbers(client, queue) == []
            bodies = Counter(_drained(client, target, COUNT))
    repaired = bodies.pop("repaired")
    assert repaired == COUNT // (KILLS + 1)
    assert set(bodies.values()) == {1}
    assert len(bodies) == COUNT - repaired
