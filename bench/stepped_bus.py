"""A bus that measures the steps of its event loop: `python -m bench.stepped_bus serve …`.

On SIGUSR1 it prints how long the longest step since the last time took, by the processor's time of the loop's thread
and by the clock.
"""

from __future__ import annotations

import asyncio.events
import os
import signal
import sys
import time
from typing import Any

from polybus.testing.server import ServerProcess

LINE = "longest step"


class SteppedServer(ServerProcess):
    program = (sys.executable, "-m", "bench.stepped_bus")

    def longest_step_ms(self) -> tuple[float, float]:
        """Milliseconds of the processor and of the clock; from now on they are counted anew."""
        seen = self._told()
        os.kill(self.pid, signal.SIGUSR1)
        while len(told := self._told()) == len(seen):
            time.sleep(0.05)
        cpu_ms, wall_ms = told[-1].split()[-2:]
        return float(cpu_ms), float(wall_ms)

    def _told(self) -> list[str]:
        return [line for line in self.output if line.startswith(LINE)]


class Steps:
    """Stands between the loop and what it calls."""

    def __init__(self) -> None:
        self._cpu = self._wall = 0.0
        self._call: Any = asyncio.events.Handle._run

    def install(self) -> None:
        steps = self

        def run(handle: Any) -> None:
            cpu, wall = time.thread_time(), time.perf_counter()
            steps._call(handle)
            steps._cpu = max(steps._cpu, time.thread_time() - cpu)
            steps._wall = max(steps._wall, time.perf_counter() - wall)

        asyncio.events.Handle._run = run  # type: ignore[assignment, method-assign]
        signal.signal(signal.SIGUSR1, self._tell)

    def _tell(self, *_: object) -> None:
        print(LINE, f"{1000 * self._cpu:.2f} {1000 * self._wall:.2f}", flush=True)
        self._cpu = self._wall = 0.0


if __name__ == "__main__":
    from polybus.cli.main import main

    Steps().install()
    sys.argv[0] = "polybus"
    main()
