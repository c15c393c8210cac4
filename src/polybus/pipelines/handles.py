"""Work that was started, seen the same way by the runner whether it is a query of Spark or a thread."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from polybus.limits import PIPELINE_STOP_SECONDS

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

Report = Mapping[str, Any]


class RunHandle(ABC):
    @abstractmethod
    def ended(self) -> bool:
        """Whether the work is over, well or not."""

    @abstractmethod
    def error(self) -> str | None:
        """What went wrong, once it is over."""

    @abstractmethod
    def stop(self) -> None:
        """Ends the work and waits for that."""

    def reports(self) -> list[Report]:
        """Batches that were done since this was asked last."""
        return []

    def figures(self) -> Mapping[str, float]:
        """What a job gave at its end."""
        return {}


class StreamHandle(RunHandle):
    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._seen: tuple[int, str] = (-1, "")

    def ended(self) -> bool:
        return not self._query.isActive

    def error(self) -> str | None:
        failure = self._query.exception()
        return None if failure is None else str(failure)

    def reports(self) -> list[Report]:
        """Spark reports now and then without a batch; those are left out."""
        last = self._query.lastProgress
        if last is None or _key(last) == self._seen:
            return []
        told = [json.loads(each.json) for each in self._query.recentProgress]
        new = [each for each in told if (each["batchId"], each["timestamp"]) > self._seen]
        self._seen = _key(last)
        return [each for each in new if "addBatch" in (each.get("durationMs") or {})]

    def stop(self) -> None:
        self._query.stop()


def _key(progress: Any) -> tuple[int, str]:
    return progress["batchId"], progress["timestamp"]


class JobHandle(RunHandle):
    """A job in a thread of its own. `cancel` ends what Spark does for it, should it not end by itself."""

    def __init__(
        self,
        name: str,
        work: Callable[[], Mapping[str, float]],
        stopping: threading.Event,
        cancel: Callable[[], None] = lambda: None,
    ) -> None:
        self._work = work
        self._stopping = stopping
        self._cancel = cancel
        self._error: str | None = None
        self._figures: Mapping[str, float] = {}
        self._thread = threading.Thread(target=self._run, name=f"pipeline-{name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._figures = self._work()
        except Exception as error:  # A pipeline may fail in any way; the others go on.
            self._error = str(error) or type(error).__name__

    def ended(self) -> bool:
        return not self._thread.is_alive()

    def error(self) -> str | None:
        return self._error

    def figures(self) -> Mapping[str, float]:
        return self._figures

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(PIPELINE_STOP_SECONDS)
        if self._thread.is_alive():
            self._cancel()
            self._thread.join(PIPELINE_STOP_SECONDS)

    def wait(self) -> None:
        """Returns when the job is over."""
        self._thread.join()
