"""Numbers of pipelines for Prometheus, in its text format. Counters and gauges, each with labels; thread-safe."""

from __future__ import annotations

import threading
from typing import Final

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

HELP: dict[str, tuple[str, str]] = {
    "polybus_pipeline_up": (GAUGE, "1 while the pipeline runs or rests as planned, 0 while it is broken."),
    "polybus_pipeline_restarts_total": (COUNTER, "Starts after a failure."),
    "polybus_pipeline_batches_total": (COUNTER, "Batches done."),
    "polybus_pipeline_rows_total": (COUNTER, "Rows read by the batches that are done."),
    "polybus_pipeline_batch_seconds": (GAUGE, "Duration of the last batch."),
    "polybus_pipeline_rows_per_second": (GAUGE, "Rows that the last batch processed in a second."),
    "polybus_pipeline_lag_messages": (GAUGE, "Messages in the log that are not read yet, by partition."),
    "polybus_pipeline_last_batch": (GAUGE, "Number of the last batch."),
    "polybus_pipeline_last_batch_timestamp_seconds": (GAUGE, "When the last batch began."),
    "polybus_pipeline_alert": (GAUGE, "1 while more messages wait, for longer, than the file allows."),
    "polybus_pipeline_job": (GAUGE, "Figures of the last run of a job."),
}
"""Metrics of the runner: type and meaning. Kinds add theirs with `Metrics.describe`."""

Labels = tuple[tuple[str, str], ...]


class Metrics:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._help = dict(HELP)
        self._values: dict[str, dict[Labels, float]] = {}

    def describe(self, name: str, kind: str, meaning: str) -> None:
        """Makes a metric known; saying it again is harmless."""
        with self._lock:
            self._help[name] = (kind, meaning)

    def put(self, name: str, value: float, **labels: object) -> None:
        with self._lock:
            self._of(name)[_key(labels)] = float(value)

    def add(self, name: str, value: float, **labels: object) -> None:
        with self._lock:
            values, key = self._of(name), _key(labels)
            values[key] = values.get(key, 0.0) + value

    def get(self, name: str, **labels: object) -> float | None:
        with self._lock:
            return self._values.get(name, {}).get(_key(labels))

    def _of(self, name: str) -> dict[Labels, float]:
        assert name in self._help, f"the metric {name} has no meaning yet"
        return self._values.setdefault(name, {})

    def text(self) -> str:
        """Everything, as Prometheus reads it."""
        lines = []
        with self._lock:
            for name in sorted(self._values):
                kind, meaning = self._help[name]
                lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
                lines += [_sample(name, labels, value) for labels, value in sorted(self._values[name].items())]
        return "\n".join(lines) + "\n"


def _key(labels: dict[str, object]) -> Labels:
    return tuple(sorted((name, str(value)) for name, value in labels.items()))


def _sample(name: str, labels: Labels, value: float) -> str:
    shown = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels)
    number = repr(int(value)) if value.is_integer() else repr(value)
    return f"{name}{{{shown}}} {number}" if shown else f"{name} {number}"
