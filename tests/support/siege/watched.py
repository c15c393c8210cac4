"""A real server whose costs can be read at any time: the steps of its loop, its memory and its descriptors."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polybus.testing.server import ServerProcess

ROOT = Path(__file__).resolve().parents[3]
REPORT_SECONDS = 30.0


@dataclass
class Cost:
    """What the server spent since the last look: the longest step of its loop, its memory and descriptors now."""

    step_ms: float
    step: str
    steps: int
    resident_bytes: int
    descriptors: int


class WatchedServer(ServerProcess):
    """`polybus serve`, with its loop timed. `cost` gives what was seen since it was last asked."""

    program: tuple[str, ...] = (sys.executable, "-m", "tests.support.siege.watched_program")

    def __init__(self, data: Path, *options: str, environment: dict[str, str] | None = None) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self._report = data / "steps.json"
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        watched = {"POLYBUS_STEPS": str(self._report), "PYTHONPATH": paths}
        super().__init__(data, *options, environment={**watched, **(environment or {})})
        self._seen = 0

    def limit_files(self, most: int) -> None:
        """Starts it with so few descriptors from now on."""
        self.program = ("prlimit", f"--nofile={most}:{most}", *type(self).program)

    def start(self) -> None:
        self._report.unlink(missing_ok=True)
        self._seen = 0
        super().start()
        self.cost()

    def cost(self) -> Cost:
        seen = self._steps()
        return Cost(
            round(1000 * seen["longest_s"], 2),
            seen["what"],
            seen["steps"],
            self.resident_bytes(),
            self.descriptors(),
        )

    def _steps(self) -> dict[str, Any]:
        os.kill(self.pid, signal.SIGUSR1)
        self._seen += 1
        deadline = time.monotonic() + REPORT_SECONDS
        while time.monotonic() < deadline:
            if self._report.exists():
                seen: dict[str, Any] = json.loads(self._report.read_text())
                if seen["number"] >= self._seen:
                    return seen
            time.sleep(0.002)
        raise TimeoutError("the server does not report the steps of its loop")

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def descriptors(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())
