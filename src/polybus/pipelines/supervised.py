"""One pipeline under the runner's care: when it is started, what its batches say, when it is started again.

A state machine that is stepped with the time. What it starts is a `RunHandle`; it knows neither Spark nor threads.

The moves are those of `MOVES`, which docs/architecture.md shows as a picture.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from polybus.errors import PolybusError
from polybus.limits import PIPELINE_DUE_MS
from polybus.pipelines.alerts import LagAlert, lag_of, send_alert
from polybus.pipelines.backoff import Restart, pause_ms
from polybus.pipelines.control import PauseMark
from polybus.pipelines.fields import duration_text
from polybus.pipelines.handles import RunHandle
from polybus.pipelines.history import RunHistory
from polybus.pipelines.kind import Context, JobKind, PipelineKind, StreamKind
from polybus.pipelines.progress import Progress, progress_from
from polybus.spark.secrets import one_line


class Phase(enum.Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FAILED = "failed"
    """It is started again when its pause is over."""
    PAUSED = "paused"
    """Until somebody lets it go on."""
    DONE = "done"
    GIVEN_UP = "given up"


OVER: Final = (Phase.DONE, Phase.GIVEN_UP)
MOVES: Final[dict[tuple[Phase, str], Phase]] = {
    (Phase.WAITING, "started"): Phase.RUNNING,
    (Phase.WAITING, "failed"): Phase.FAILED,
    (Phase.WAITING, "failed too often"): Phase.GIVEN_UP,
    (Phase.RUNNING, "ended, to come again"): Phase.WAITING,
    (Phase.RUNNING, "ended for good"): Phase.DONE,
    (Phase.RUNNING, "stopped"): Phase.WAITING,
    (Phase.RUNNING, "failed"): Phase.FAILED,
    (Phase.RUNNING, "failed too often"): Phase.GIVEN_UP,
    (Phase.WAITING, "paused"): Phase.PAUSED,
    (Phase.RUNNING, "paused"): Phase.PAUSED,
    (Phase.FAILED, "paused"): Phase.PAUSED,
    (Phase.PAUSED, "resumed"): Phase.WAITING,
    (Phase.PAUSED, "ended for good"): Phase.DONE,
    (Phase.FAILED, "started"): Phase.RUNNING,
    (Phase.FAILED, "failed"): Phase.FAILED,
    (Phase.FAILED, "failed too often"): Phase.GIVEN_UP,
}
"""What is missing cannot happen: with --once, or without `every`, an end is for good, and so is
a pause with --once; a failure is followed by a wait."""


class Supervised:
    def __init__(
        self,
        kind: PipelineKind,
        context: Context,
        launch: Callable[[], RunHandle],
        restart: Restart,
        rng: random.Random,
    ) -> None:
        self.kind = kind
        self.context = context
        self.phase = Phase.WAITING
        self.failures = 0
        self.restarts = 0
        self.error: str | None = None
        self.progress: Progress | None = None
        self.history = RunHistory(context.checkpoint)
        self.paused = PauseMark(context.checkpoint)
        self.alert = LagAlert(kind.alert) if isinstance(kind, StreamKind) and kind.alert is not None else None
        self._launch = launch
        self._restart = restart
        self._rng = rng
        self._handle: RunHandle | None = None
        self._due_ms = 0
        self._asked_ms = 0
        self._watched_ms = 0
        self._started_ms = 0

    def step(self, now_ms: int) -> None:
        """Does what is to be done now; never waits for the pipeline itself."""
        self._watch(now_ms)
        if self.phase not in OVER and bool(self.paused) != (self.phase is Phase.PAUSED):
            self._pause_or_resume(now_ms)
        elif self.phase is Phase.RUNNING:
            self._look(now_ms)
        elif self.phase is Phase.PAUSED:
            return
        elif self.phase not in OVER and (now_ms >= self._due_ms or self._early(now_ms)):
            self._start(now_ms)

    def stop(self) -> None:
        if self._stopped():
            self._move("stopped")

    def _stopped(self) -> bool:
        """Whether there was something to stop."""
        handle, self._handle = self._handle, None
        if handle is None:
            return False
        handle.stop()
        self._tell(handle)
        self.history.end()
        return True

    def _pause_or_resume(self, now_ms: int) -> None:
        if self.phase is Phase.PAUSED:
            self.context.say("goes on")
            self._move("resumed")
            self._due_ms = now_ms
            return
        self._stopped()
        self._move("paused")
        self.context.say(f"is paused; `polybus pipelines resume` lets {self.kind.name} go on")
        if self.context.once:
            self._move("ended for good")

    def _watch(self, now_ms: int) -> None:
        """Asks the bus now and then how much waits, and tells when that is too much."""
        alert, kind = self.alert, self.kind
        if alert is None or now_ms < self._watched_ms or not isinstance(kind, StreamKind):
            return
        self._watched_ms = now_ms + PIPELINE_DUE_MS
        try:
            changed = alert.look(lag_of(kind), now_ms)
            self.context.metrics.put("polybus_pipeline_alert", int(alert.text is not None), pipeline=kind.name)
            if changed:
                self.context.say(f"ALERT: {alert.text}" if alert.text else "the alert is over")
                if alert.settings.to is not None:
                    send_alert(alert.settings.to, alert.message(kind.name))
        except (PolybusError, OSError) as error:  # The bus may be away; that is told by the pipeline itself.
            self.context.say(f"cannot look at its lag: {one_line(str(error))}")

    def record(self) -> dict[str, object]:
        """For the status page."""
        told: dict[str, object] = {"name": self.kind.name, "kind": self.kind.kind, "state": self.phase.value}
        told |= {"what": self.kind.describe(), "restarts": self.restarts}
        if self.error is not None and self.phase is not Phase.DONE:
            told["error"] = self.error
        if self.progress is not None:
            told |= self.progress.record()
        if self.alert is not None and self.alert.text is not None:
            told["alert"] = self.alert.text
        return told

    def _move(self, given: str) -> None:
        self.phase = MOVES[self.phase, given]

    # Starting

    def _early(self, now_ms: int) -> bool:
        """Whether a pipeline that rests has enough to do already; asked now and then."""
        kind = self.kind
        if self.phase is not Phase.WAITING or not isinstance(kind, StreamKind) or now_ms < self._asked_ms:
            return False
        self._asked_ms = now_ms + PIPELINE_DUE_MS
        try:
            return kind.due(self.context)
        except Exception as error:  # The bus may be away; the next planned start will tell.
            self.context.say(f"cannot look ahead: {one_line(str(error))}")
            return False

    def _start(self, now_ms: int) -> None:
        if self.phase is Phase.FAILED:
            self.restarts += 1
            self.context.metrics.add("polybus_pipeline_restarts_total", 1, pipeline=self.kind.name)
        self._started_ms = now_ms
        self.history.begin()
        try:
            self._handle = self._launch()
        except Exception as error:  # A pipeline may fail in any way; the others go on.
            self._failed(str(error) or type(error).__name__, now_ms)
            return
        self._move("started")
        self._up(1)

    # Looking

    def _look(self, now_ms: int) -> None:
        handle = self._handle
        assert handle is not None
        ended = handle.ended()
        self._tell(handle)
        if not ended:
            return
        self._handle = None
        error = handle.error()
        if error is None and self._surprising():
            error = "the query has ended by itself"
        if error is None:
            self._ended_well(handle, now_ms)
        else:
            self._failed(error, now_ms)

    def _surprising(self) -> bool:
        """Whether an end without an error is a failure: a stream that was to go on."""
        kind = self.kind
        return isinstance(kind, StreamKind) and kind.recurring_ms is None and not self.context.once

    def _ended_well(self, handle: RunHandle, now_ms: int) -> None:
        self.failures, self.error = 0, None
        figures = handle.figures()
        self.history.end(figures=dict(figures))
        for name, value in figures.items():
            self.context.metrics.put("polybus_pipeline_job", value, pipeline=self.kind.name, figure=name)
        if figures:
            shown = ", ".join(f"{name} {value:,.10g}" for name, value in figures.items())
            self.context.say(f"{shown} in {now_ms - self._started_ms:,} ms")
        every = self._every_ms()
        if self.context.once or every is None:
            self._move("ended for good")
        else:
            self._move("ended, to come again")
            self._due_ms = self._started_ms + every

    def _every_ms(self) -> int | None:
        kind = self.kind
        if isinstance(kind, StreamKind):
            return kind.recurring_ms
        return kind.every_ms if isinstance(kind, JobKind) else None

    def _failed(self, error: str, now_ms: int) -> None:
        self.failures += 1
        self.error = one_line(error)
        self.history.end(self.error)
        self._up(0)
        if self._restart.given_up(self.failures, self.context.once):
            self._move("failed too often")
            self.context.say(f"failed and given up after {self.failures} attempts: {self.error}")
            return
        pause = pause_ms(self._restart, self.failures, self._rng)
        self._move("failed")
        self._due_ms = now_ms + pause
        self.context.say(f"failed, starts again in {duration_text(pause)}: {self.error}")

    # Telling

    def _tell(self, handle: RunHandle) -> None:
        for report in handle.reports():
            self._batch(progress_from(self.kind.name, report))

    def _batch(self, progress: Progress) -> None:
        """A batch that is done says that the pipeline works: the next failure is a first one.

        With --once failures are counted over the whole run, for a run must end.
        """
        landed = self.context.landed.pop(progress.batch, None)
        if landed is not None:  # Spark counts a row again for each time that a batch reads it
            progress = replace(progress, rows=landed.rows)
        self.progress, self.error = progress, None
        self.failures = self.failures if self.context.once else 0
        metrics, labels = self.context.metrics, {"pipeline": self.kind.name}
        metrics.add("polybus_pipeline_batches_total", 1, **labels)
        metrics.add("polybus_pipeline_rows_total", progress.rows, **labels)
        metrics.put("polybus_pipeline_batch_seconds", progress.ms / 1000, **labels)
        metrics.put("polybus_pipeline_rows_per_second", progress.rows_per_second, **labels)
        metrics.put("polybus_pipeline_last_batch", progress.batch, **labels)
        metrics.put("polybus_pipeline_last_batch_timestamp_seconds", progress.began_seconds, **labels)
        for partition, lag in progress.lag.items():
            metrics.put("polybus_pipeline_lag_messages", lag, partition=partition, **labels)
        kind = self.kind
        assert isinstance(kind, StreamKind)
        kind.on_progress(progress, self.context)
        self.history.batch(progress, *((landed.files, landed.bytes) if landed is not None else (0, 0)))
        self.context.say(kind.progress_text(progress))

    def _up(self, value: int) -> None:
        self.context.metrics.put("polybus_pipeline_up", value, pipeline=self.kind.name)
