"""What a query of Spark reports of a batch, as numbers and as a line. Pure: reports in, values out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from polybus.errors import ConfigError
from polybus.pipelines.fields import duration_text
from polybus.spark.offsets import Offset, offset_from


@dataclass(frozen=True)
class Progress:
    name: str
    batch: int
    began: str
    """When the batch began, in ISO 8601."""
    rows: int
    ms: int
    lag: dict[int, int]
    """Messages of each partition that are in the log and not read yet; empty where no source of ours is read."""

    @property
    def began_seconds(self) -> float:
        """When the batch began, in seconds since 1970; 0 where the report did not say."""
        try:
            return datetime.fromisoformat(self.began).timestamp()
        except ValueError:
            return 0.0

    @property
    def lag_messages(self) -> int:
        return sum(self.lag.values())

    @property
    def rows_per_second(self) -> float:
        return self.rows * 1000 / self.ms if self.ms else 0.0

    def line(self) -> str:
        """For people: what was done, what is left, and how long that takes where it is more than a batch."""
        done = f"batch {self.batch}: {self.rows:,} rows, lag {self.lag_messages:,}, {self.ms:,} ms"
        if self.rows and self.lag_messages > self.rows:
            left_ms = round(self.lag_messages / self.rows * self.ms)
            return f"{done}, {self.rows_per_second:,.0f} rows/s, {duration_text(left_ms - left_ms % 1000)} to go"
        return done

    def record(self) -> dict[str, object]:
        """For the status page."""
        kept = {"batch": self.batch, "began": self.began, "rows": self.rows, "ms": self.ms}
        return {**kept, "lag": self.lag_messages}


def progress_from(name: str, report: Mapping[str, Any]) -> Progress:
    """Reads a report as `StreamingQueryProgress.json` has it."""
    sources = report.get("sources") or []
    durations = report.get("durationMs") or {}
    lag: dict[int, int] = {}
    for source in sources:
        for index, behind in _lag(source).items():
            lag[index] = lag.get(index, 0) + behind
    return Progress(
        name=name,
        batch=int(report["batchId"]),
        began=str(report.get("timestamp", "")),
        rows=sum(int(source.get("numInputRows") or 0) for source in sources),
        ms=int(durations.get("triggerExecution", 0)),
        lag=lag,
    )


def _lag(source: Mapping[str, Any]) -> dict[int, int]:
    end, latest = _offset(source.get("endOffset")), _offset(source.get("latestOffset"))
    if end is None or latest is None or end.entity_id != latest.entity_id:
        return {}
    return {index: max(head - end.position(index), 0) for index, head in sorted(latest.positions.items())}


def _offset(told: object) -> Offset | None:
    """An offset of our own source; None for anything else."""
    if isinstance(told, str):
        try:
            told = json.loads(told)
        except ValueError:
            return None
    try:
        return offset_from(told) if isinstance(told, dict) else None
    except ConfigError:
        return None
