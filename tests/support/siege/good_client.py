"""A well-behaved client in a process of its own: sends a message and receives it, again and again.

Each round is told on a line of standard output: when it began (the machine's monotonic clock, which all processes
share), how long it took, or what went wrong. In the adversary's own process it would wait for the adversary.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage

PAUSE_SECONDS = 0.01


@dataclass(frozen=True)
class ClientRound:
    begun_s: float
    took_s: float


class GoodClient:
    """The process, and what it has told so far."""

    def __init__(self, connection: str) -> None:
        self.rounds: list[ClientRound] = []
        self.errors: list[str] = []
        command = [sys.executable, "-m", "tests.support.siege.good_client", connection]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            if "error" in told:
                self.errors.append(told["error"])
            else:
                self.rounds.append(ClientRound(told["begun_s"], told["took_s"]))

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


def main(connection: str) -> None:
    stopped = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stopped.set()), daemon=True).start()
    with ServiceBusClient.from_connection_string(connection) as client:
        sender, receiver = client.get_queue_sender("good"), client.get_queue_receiver("good")
        with sender, receiver:
            while not stopped.is_set():
                begun_s = time.monotonic()
                try:
                    _round(sender, receiver)
                except Exception as error:
                    print(json.dumps({"error": repr(error)}), flush=True)
                else:
                    print(json.dumps({"begun_s": begun_s, "took_s": time.monotonic() - begun_s}), flush=True)
                stopped.wait(PAUSE_SECONDS)


def _round(sender: Any, receiver: Any) -> None:
    sender.send_messages(ServiceBusMessage("good"))
    for message in receiver.receive_messages(1, max_wait_time=30):
        receiver.complete_message(message)


if __name__ == "__main__":
    main(sys.argv[1])
