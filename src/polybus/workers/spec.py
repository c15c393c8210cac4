"""What a supervisor tells a worker when it starts it, and what the two say to each other afterwards.

The spec goes through the worker's standard input, so that keys are in no command line and no environment. Then there
is one socket: the supervisor says single bytes, with a client's socket where it hands one over; the worker says lines.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from polybus.node import NodeOptions

CLIENT = b"C"
"""A client's socket comes with it."""
DRAIN = b"D"
"""Take no more clients, answer what is in flight, let them go."""
STOP = b"S"
"""Close the stores and end."""
RELOAD = b"H"
"""Read the certificates again."""


@dataclass(frozen=True)
class WorkerSpec:
    options: NodeOptions
    index: int
    workers: int
    links: Path
    """The folder of the sockets between workers."""
    addresses: dict[str, tuple[str, int]]
    """Where the supervisor listens."""
    json_logs: bool = False
    verbose: bool = False

    @property
    def name(self) -> str:
        return worker_name(self.index)

    def owners(self) -> dict[str, str]:
        """Stores are dealt in turn; a worker for which none is left is a gateway."""
        return {url: worker_name(number % self.workers) for number, url in enumerate(self.options.stores)}

    def write(self, to: IO[bytes]) -> None:
        pickle.dump(self, to)


def read_spec(source: IO[bytes]) -> WorkerSpec:
    """Only ever read from the process that started this one."""
    spec = pickle.load(source)  # noqa: S301
    assert isinstance(spec, WorkerSpec), "a supervisor sends a spec"
    return spec


def worker_name(index: int) -> str:
    return f"worker-{index}"


LEADER = worker_name(0)
"""Whoever writes the catalogue."""
