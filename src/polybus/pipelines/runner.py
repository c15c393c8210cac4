"""Keeps the pipelines of a file going, all in one session of Spark, until they are done or it is told to stop.

The runner owns the folders of its pipelines while it runs: another one on the same folder is refused, for two
drivers on one checkpoint undo each other's work. It decides nothing by itself; `Supervised` does, for each pipeline.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from polybus.errors import ConfigError, PolybusError
from polybus.limits import PIPELINE_POLL_SECONDS
from polybus.pipelines.declaration import Declaration
from polybus.pipelines.folders import Folder
from polybus.pipelines.handles import JobHandle, RunHandle, StreamHandle
from polybus.pipelines.kind import Context, JobKind, PipelineKind, StreamKind
from polybus.pipelines.metrics import Metrics
from polybus.pipelines.supervised import OVER, Phase, Supervised
from polybus.spark.secrets import one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class PipelineFailed(PolybusError):
    """A pipeline could not be run to its end."""


class Runner:
    """`with Runner(…) as runner: runner.run()`. The session is the caller's, and stays open."""

    def __init__(
        self,
        declaration: Declaration,
        session: SparkSession,
        *,
        once: bool,
        say: Callable[[str], None] = print,
        rng: random.Random | None = None,
        address: str = "",
    ) -> None:
        if type(session).__module__.startswith("pyspark.sql.connect"):
            raise ConfigError("pipelines need a session with a driver of its own, and this is one of Spark Connect")
        self.metrics = Metrics()
        self.stopping = threading.Event()
        self._declaration = declaration
        self._session = session
        self._once = once
        self._say = say
        self._rng = rng or random.Random()
        self._address = address
        self._folders: list[Folder] = []
        self.pipelines: list[Supervised] = []

    def __enter__(self) -> Runner:
        try:
            self.pipelines = [self._supervise(kind) for kind in self._declaration.pipelines]
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        for each in self.pipelines:
            try:
                each.stop()
            except Exception as failure:  # One that cannot be stopped must not keep the others from it.
                each.context.say(f"could not be stopped: {one_line(str(failure))}")
        self._leave()

    def _leave(self) -> None:
        for folder in self._folders:
            folder.leave()

    def _supervise(self, kind: PipelineKind) -> Supervised:
        folder = Folder(self._declaration.checkpoints / kind.name)
        folder.hold(self._address)
        self._folders.append(folder)

        def say(text: str) -> None:
            self._say(f"{kind.name}: {text}")

        recurring = isinstance(kind, StreamKind) and kind.recurring_ms is not None
        context = Context(folder.path, self._once, say, self.metrics, self.stopping, ends=self._once or recurring)
        return Supervised(kind, context, lambda: self._launch(kind, context), self._declaration.restart, self._rng)

    def _launch(self, kind: PipelineKind, context: Context) -> RunHandle:
        """Starts a pipeline in a pool of its own, so that a large batch of one does not hold up the others."""
        if isinstance(kind, StreamKind):
            self._pool(kind.name)
            return StreamHandle(kind.start(self._session, context))
        assert isinstance(kind, JobKind)

        def work() -> dict[str, float]:
            self._pool(kind.name)
            self._session.sparkContext.setJobGroup(kind.name, kind.describe(), interruptOnCancel=True)
            return dict(kind.run(self._session, context))

        return JobHandle(kind.name, work, self.stopping, lambda: self._session.sparkContext.cancelJobGroup(kind.name))

    def _pool(self, name: str) -> None:
        self._session.sparkContext.setLocalProperty("spark.scheduler.pool", name)

    # Running

    def run(self) -> bool:
        """Returns when everything is over or it is told to stop; whether nothing was given up."""
        while self.step():
            self.stopping.wait(PIPELINE_POLL_SECONDS)
        return not self.failed()

    def step(self) -> bool:
        """Looks at each pipeline once; whether there is more to do."""
        for each in self.pipelines:
            if self.stopping.is_set():
                return False
            each.step(time.monotonic_ns() // 1_000_000)
        return any(each.phase not in OVER for each in self.pipelines)

    def failed(self) -> list[Supervised]:
        return [each for each in self.pipelines if each.phase is Phase.GIVEN_UP]

    def healthy(self) -> bool:
        return all(each.phase not in (Phase.GIVEN_UP, Phase.FAILED) for each in self.pipelines)

    def status(self) -> list[dict[str, object]]:
        return [each.record() for each in self.pipelines]


def run_once(declaration: Declaration, session: SparkSession, say: Callable[[str], None] = print) -> Runner:
    """Runs every pipeline over what there is now; PipelineFailed where one cannot be run to its end."""
    with Runner(declaration, session, once=True, say=say) as runner:
        runner.run()
    failed = runner.failed()
    if failed:
        raise PipelineFailed("; ".join(f"{each.kind.name}: {each.error}" for each in failed))
    return runner
