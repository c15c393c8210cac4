"""In which steps a replay sends, and when: pure, and written down once for each run.

Each step is an epoch of the run's producer on the bus, which publishes an epoch once. So a run that is broken off and
started again goes on with the first step that is not in, and a run that is done does nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from polybus.errors import ConfigError

VERSION: Final = 1


@dataclass(frozen=True)
class ReplayStep:
    """Rows that were enqueued from one moment to another, in microseconds since 1970; the end is not included."""

    first: int
    end: int
    rows: int


@dataclass(frozen=True)
class Plan:
    steps: list[ReplayStep]
    done: bool = False

    @property
    def rows(self) -> int:
        return sum(step.rows for step in self.steps)

    def write(self, path: Path) -> None:
        """There whole or not at all."""
        told = {
            "version": VERSION,
            "done": self.done,
            "steps": [[each.first, each.end, each.rows] for each in self.steps],
        }
        hidden = path.with_name(f".{path.name}")
        hidden.write_text(json.dumps(told))
        hidden.rename(path)


def read_plan(path: Path) -> Plan | None:
    try:
        told = json.loads(path.read_text())
        if told["version"] != VERSION:
            raise ConfigError(f"{path}: is a plan of version {told['version']!r}; this is version {VERSION}")
        return Plan([ReplayStep(*each) for each in told["steps"]], told["done"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{path}: is no plan of a replay") from None


def slot_us(speed: float, window_ms: int) -> int:
    """How much of the original time one step covers: what takes a window to send, or a second where nothing waits."""
    return max(round(window_ms * 1000 * speed), 1) if speed else 1_000_000


def steps(counts: list[tuple[int, int]], slot: int, speed: float, max_rows: int) -> list[ReplayStep]:
    """Steps from the rows of each slot, in order of time: one for each, or several together where nothing waits."""
    found: list[ReplayStep] = []
    for number, rows in sorted(counts):
        step = ReplayStep(number * slot, (number + 1) * slot, rows)
        if not speed and found and found[-1].rows + rows <= max_rows:
            before = found.pop()
            step = ReplayStep(before.first, step.end, before.rows + rows)
        found.append(step)
    return found


@dataclass(frozen=True)
class Pace:
    """When rows go: as far apart as they were, divided by the speed, beginning with a step now."""

    speed: float
    began_us: int
    """Now, when the first step of this run of the runner begins."""
    first_us: int
    """Where that step begins in the original time."""

    def due_us(self, original_us: int) -> int:
        return self.began_us + round((original_us - self.first_us) / self.speed)
