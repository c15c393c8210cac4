"""Runs behaviours of two halves: the first halves of all, one restart of the bus, the second halves of all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from polybus.testing.server import ServerProcess
from tests.sdk.python.bus import Bus
from tests.sdk.python.several import bus_server
from tests.sdk.python.table import Behaviour

HOWS = ("stop", "kill")
WORKERS = 16


class Restart:
    """One server, restarted once between the halves of every behaviour that was selected."""

    def __init__(self, folder: Path, how: str, selected: list[tuple[Behaviour, str]]) -> None:
        self.errors: dict[tuple[str, str], BaseException | None] = {}
        with bus_server(folder) as server:
            runs = [_Run(behaviour, kind, server) for behaviour, kind in selected]
            _together([run.first for run in runs])
            server.restart(kill=how == "kill")
            _together([run.second for run in runs])
        for run in runs:
            self.errors[run.behaviour.name, run.kind] = run.error

    def check(self, behaviour: Behaviour, kind: str) -> None:
        error = self.errors[behaviour.name, kind]
        if error is not None:
            raise error


class _Run:
    def __init__(self, behaviour: Behaviour, kind: str, server: ServerProcess) -> None:
        self.behaviour = behaviour
        self.kind = kind
        self.error: BaseException | None = None
        self._bus = Bus(server, kind)
        self._halves = behaviour.run(self._bus)

    def first(self) -> None:
        try:
            next(self._halves)
        except BaseException as error:
            self.error = error

    def second(self) -> None:
        try:
            if self.error is None and next(self._halves, "ended") != "ended":
                raise AssertionError(f"{self.behaviour.name} has more than two halves")
        except BaseException as error:
            self.error = error
        finally:
            self._bus.close()


def _together(jobs: list[Callable[[], None]]) -> None:
    """Runs all of them, a few at a time, and returns when all have ended."""
    waiting = list(reversed(jobs))

    def work() -> None:
        while waiting:
            try:
                job = waiting.pop()
            except IndexError:
                return
            job()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(WORKERS, len(jobs)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
