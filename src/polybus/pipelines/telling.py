"""A runner tells the bus how its pipelines are, so that whoever looks at the bus sees them, from wherever he looks.

Telling is a courtesy: it runs in a thread of its own, and a bus that is away, too old to listen or not willing costs
nothing but that nobody sees it there.
"""

from __future__ import annotations

import contextlib
import threading
from types import TracebackType
from typing import Any

from polybus.errors import PolybusError
from polybus.limits import PIPELINE_TELL_SECONDS, PIPELINE_TOLD_RUNS
from polybus.pipelines.runner import Runner
from polybus.pipelines.supervised import Phase, Supervised
from polybus.spark.bus import BusClient

ENDED = "ended"


class BusTeller:
    """`with BusTeller(runner): …`; its end is told, too."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._over = threading.Event()
        self._clients: dict[str, BusClient] = {}
        self._thread = threading.Thread(target=self._work, name="pipelines-telling", daemon=True)

    def __enter__(self) -> BusTeller:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._over.wait(PIPELINE_TELL_SECONDS):
            self._tell_all()
        self._tell_all(ENDED)
        for client in self._clients.values():
            client.close()

    def _tell_all(self, state: str | None = None) -> None:
        for each in self._runner.pipelines:
            with contextlib.suppress(PolybusError, OSError):
                self._tell(each, state)

    def _tell(self, pipeline: Supervised, state: str | None) -> None:
        entities = pipeline.kind.entities()
        if not entities:
            return
        client = self._clients.get(pipeline.kind.name)
        if client is None:
            client = self._clients[pipeline.kind.name] = entities[0].open(retry_seconds=0)
        told = told_of(pipeline)
        if state is not None and pipeline.phase not in (Phase.DONE, Phase.GIVEN_UP):
            told["state"] = state
        client.tell_pipeline(pipeline.kind.name, told)


def told_of(pipeline: Supervised) -> dict[str, Any]:
    """What is told of a pipeline: how it is, its last runs, and its report."""
    running = pipeline.phase is Phase.RUNNING
    runs = pipeline.history.runs()[-PIPELINE_TOLD_RUNS:]
    last = len(runs) - 1
    told: dict[str, Any] = dict(pipeline.record())
    told["runs"] = [run.record(running and place == last) for place, run in enumerate(runs)]
    told["report"] = pipeline.context.report
    return told
