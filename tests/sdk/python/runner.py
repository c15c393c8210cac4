"""Runs behaviours many at a time.

Nearly all of a behaviour's time the SDK sleeps: half a second to open a link, half a second to close it. So every
behaviour that was selected is put into a queue at once and worked off by a handful of threads, while each test only
waits for its own. Behaviours share nothing but the server; those that move its clock or break its stores have other
servers and run one after the other there. Under pytest-xdist, whose workers do not know what they will be asked for,
each behaviour runs when it is asked for.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from polybus.testing.server import ServerProcess
from tests.sdk.python.bus import Bus
from tests.sdk.python.several import bus_server
from tests.sdk.python.table import KINDS, Behaviour

WORKERS = 16
PATIENCE = 150.0
"""Seconds after which a behaviour counts as hung; the longest waits for two locks to run out."""


class Lane:
    """A server and the threads that work off behaviours on it. Threads that hang do not keep the process."""

    def __init__(self, workers: int, server: Callable[[], ServerProcess]) -> None:
        self._jobs: queue.SimpleQueue[tuple[Behaviour, str, Future[None]]] = queue.SimpleQueue()
        self._make_server = server
        self._workers = workers
        self._server: ServerProcess | None = None
        self.doing: dict[Future[None], int] = {}

    def submit(self, behaviour: Behaviour, kind: str) -> Future[None]:
        if self._server is None:
            self._server = self._make_server()
            for _ in range(self._workers):
                threading.Thread(target=self._work, daemon=True).start()
        future: Future[None] = Future()
        self._jobs.put((behaviour, kind, future))
        return future

    def _work(self) -> None:
        assert self._server is not None
        while True:
            behaviour, kind, future = self._jobs.get()
            self.doing[future] = threading.get_ident()
            try:
                perform(behaviour, Bus(self._server, kind))
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(None)

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()


def perform(behaviour: Behaviour, bus: Bus) -> None:
    try:
        if inspect.iscoroutinefunction(behaviour.run):
            asyncio.run(behaviour.run(bus))
        else:
            behaviour.run(bus)
    finally:
        bus.close()


class Runner:
    def __init__(self, folder: Path, selected: list[tuple[Behaviour, str]]) -> None:
        self._folder = folder
        self._shared = Lane(WORKERS, lambda: self._start("shared"))
        self._alone = {kind: Lane(1, self._movable(kind)) for kind in KINDS}
        self._futures: dict[tuple[str, str, str], Future[None]] = {}
        if "PYTEST_XDIST_WORKER" not in os.environ:
            for behaviour, kind in selected:
                self._future(behaviour, kind)

    def _movable(self, kind: str) -> Callable[[], ServerProcess]:
        return lambda: self._start(kind, "--clock", "movable")

    def _start(self, name: str, *options: str) -> ServerProcess:
        server = bus_server(self._folder / name, *options)
        server.start()
        return server

    def _lane(self, behaviour: Behaviour, kind: str) -> Lane:
        return self._alone[kind] if behaviour.alone else self._shared

    def _future(self, behaviour: Behaviour, kind: str) -> Future[None]:
        name = (behaviour.run.__module__, behaviour.name, kind)
        if name not in self._futures:
            self._futures[name] = self._lane(behaviour, kind).submit(behaviour, kind)
        return self._futures[name]

    def __call__(self, behaviour: Behaviour, kind: str) -> None:
        """Waits until the behaviour was run, and raises what it raised."""
        future = self._future(behaviour, kind)
        try:
            future.result(PATIENCE)
        except TimeoutError:
            if future.done():
                raise
            frame = sys._current_frames().get(self._lane(behaviour, kind).doing.get(future, 0))
            where = "".join(traceback.format_stack(frame)) if frame else "it was never begun"
            raise AssertionError(f"{behaviour.name} hangs:\n{where}") from None

    def stop(self) -> None:
        self._shared.stop()
        for lane in self._alone.values():
            lane.stop()
