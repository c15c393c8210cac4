"""A real `polybus serve` in a process of its own, and the command line pointed at it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from polybus.cli.app import app

COMMAND = [sys.executable, "-c", "from polybus.cli.main import main; main()"]


class Served:
    """A bus that runs until `stop`."""

    def __init__(self, data: Path, *options: str) -> None:
        self.data = data
        arguments = ["serve", "--port", "0", "--data", str(data), "--stores", "2", "--partitions", "4", *options]
        self._process = subprocess.Popen(
            [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip())
            if line.startswith("ready"):
                break
        ready = re.fullmatch(r"ready amqp=(\S+):(\d+) http=(\S+):(\d+).*", self.lines[-1] if self.lines else "")
        assert ready is not None, (self.lines, self.stop())
        self.host, self.port = ready[1], int(ready[2])

    @property
    def authority(self) -> str:
        return f"{self.host}:{self.port}"

    def connection(self, key: str = "SAS_KEY_VALUE", emulator: bool = True, host: str | None = None) -> str:
        text = f"Endpoint=sb://{host or self.host}:{self.port};SharedAccessKeyName=RootManageSharedAccessKey"
        return f"{text};SharedAccessKey={key};" + ("UseDevelopmentEmulator=true;" if emulator else "")

    def stop(self) -> tuple[int, str]:
        """Exit code and log."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        _, log = self._process.communicate(timeout=30)
        return self._process.returncode, log


class Shell:
    """Runs commands against one bus."""

    def __init__(self, connection: str | None, columns: int = 200) -> None:
        self.connection = connection or ""
        self._environment = {"POLYBUS_CONNECTION": connection, "COLUMNS": str(columns)}

    def run(self, *arguments: str, code: int = 0, stdin: bytes | None = None) -> str:
        """What the command printed; on standard error where it is expected to fail."""
        result = CliRunner().invoke(app, list(arguments), env=self._environment, input=stdin)
        assert result.exit_code == code, (arguments, result.exit_code, result.stdout, result.stderr, result.exception)
        if code:
            lines = result.stderr.splitlines()
            assert len(lines) == 1, result.stderr
            assert lines[0].startswith("polybus: ")
            return lines[0]
        return result.stdout

    def outcome(self, *arguments: str) -> tuple[int, str]:
        """Exit code and standard output, whatever they are."""
        result = CliRunner().invoke(app, list(arguments), env=self._environment)
        return result.exit_code, result.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json"))

    def lines(self, *arguments: str) -> list[Any]:
        """What a command printed that writes one object on each line."""
        return [json.loads(line) for line in self.run(*arguments, "--json").splitlines()]


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POLYBUS_CONN")}
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, env=environment, check=False, timeout=60
    )
