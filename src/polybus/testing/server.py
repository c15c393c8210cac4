"""A bus in a process of its own, for tests: real ports, real signals, real restarts.

with ServerProcess(tmp_path) as server:
    client = ServiceBusClient.from_connection_string(server.connection_string)
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType

from polybus.client.addresses import BusAddresses

START_SECONDS = 60.0
STOP_SECONDS = 30.0


class ServerProcess(BusAddresses):
    """`polybus serve` on loopback; `restart` takes the same ports again."""

    program: tuple[str, ...] = (sys.executable, "-m", "polybus")

    def __init__(self, data: Path, *options: str, environment: dict[str, str] | None = None) -> None:
        super().__init__()
        self.data = data
        self.options = options
        self.output: list[str] = []
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def __enter__(self) -> ServerProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.stop()

    # Life

    def start(self) -> None:
        """Returns when the bus is ready: a send works."""
        command = [*self.program, "serve", "--data", str(self.data), *self._ports(), *self.options]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self._environment
        )
        ready = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(self._process, ready), daemon=True)
        self._reader.start()
        if not ready.wait(START_SECONDS) or self._process.stdout is None or self._process.stdout.closed:
            process, self._process = self._process, None
            process.kill()
            process.wait()
            self._reader.join()
            raise RuntimeError("the bus did not start:\n" + "".join(self.output[-40:]))

    def _ports(self) -> list[str]:
        if any(option.startswith("--port") for option in self.options):
            return []
        ports = {name: address.rsplit(":", 1)[1] for name, address in self.addresses.items()}
        return [word for name in ("amqp", "http", "tls") for word in (f"--{name}-port", ports.get(name, "0"))]

    def _read(self, process: subprocess.Popen[str], ready: threading.Event) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.output.append(line)
            if line.startswith("ready "):
                self.addresses = dict(word.split("=", 1) for word in line.split()[1:])
                ready.set()
        process.stdout.close()
        ready.set()

    @property
    def pid(self) -> int:
        assert self._process is not None, "the bus is not running"
        return self._process.pid

    def stop(self) -> int:
        """Stops it as an operator would; gives the exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it without a warning, as a power cut would."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> int:
        process, self._process = self._process, None
        assert process is not None, "the bus is not running"
        process.send_signal(how)
        try:
            code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise RuntimeError("the bus did not stop:\n" + "".join(self.output[-40:])) from None
        if self._reader is not None:
            self._reader.join()
        return code

    def restart(self, *, kill: bool = False) -> None:
        """Stops (or kills) the bus and starts it again with the same data and ports."""
        if kill:
            self.kill()
        else:
            self.stop()
        self.start()

    # Where it is

    @property
    def authority(self) -> Path:
        return self.data / "certificates" / "ca.pem"
