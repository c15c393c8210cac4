"""An alert when a stream lags: more messages wait than allowed, for longer than allowed.

What waits is asked of the bus and not of the query, so a pipeline that is broken, paused or stuck is noticed as well.
The alert is a line, a metric, a word in the status, and, where the file says so, a message in a queue.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from polybus.pipelines.fields import Fields, duration_text
from polybus.pipelines.places import BusReference, EntityReference, entity_from

if TYPE_CHECKING:
    from polybus.pipelines.kind import StreamKind


@dataclass(frozen=True)
class AlertSettings:
    """The file's `alert`."""

    lag: int
    after_ms: int
    to: EntityReference | None = None


def alert_from(fields: Fields, bus: BusReference | None) -> AlertSettings | None:
    """Reads `alert: {lag: 10000, for: 5m, to: alerts}`."""
    told = fields.mapping("alert")
    if told is None:
        return None
    found = AlertSettings(
        told.number("lag"),
        told.duration_ms("for", 0),
        entity_from(told, "to", bus) if told.has("to") else None,
    )
    told.close()
    return found


class LagAlert:
    """Whether the alert is on. Pure: lags and times in, changes out."""

    def __init__(self, settings: AlertSettings) -> None:
        self.settings = settings
        self.lag = 0
        self.text: str | None = None
        self._above_since_ms: int | None = None

    def look(self, lag: int, now_ms: int) -> bool:
        """Whether it came on or went off."""
        self.lag = lag
        before = self.text is not None
        if lag <= self.settings.lag:
            self._above_since_ms, self.text = None, None
            return before
        if self._above_since_ms is None:
            self._above_since_ms = now_ms
        if now_ms - self._above_since_ms < self.settings.after_ms:
            return False
        lasted = duration_text((now_ms - self._above_since_ms) // 1_000 * 1_000)
        self.text = f"{lag:,} messages wait, more than {self.settings.lag:,}, for {lasted}"
        return not before

    def message(self, pipeline: str) -> dict[str, Any]:
        """What is sent when it has come on or gone off."""
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        state = "over" if self.text is None else "lagging"
        return {"pipeline": pipeline, "alert": "lag", "state": state, "lag": self.lag, "at": now}


def lag_of(kind: StreamKind) -> int:
    """Messages that are in the logs and were not let go of by the pipeline's cursors."""
    behind = 0
    for entity, name in kind.cursors():
        bus = entity.open(retry_seconds=0)
        try:
            cursor, state = bus.cursor(name), bus.log()
        finally:
            bus.close()
        for end in state.ends:
            read = end.earliest - 1 if cursor is None else cursor.positions.get(end.index, 0)
            behind += max(end.stable_end - max(read, end.earliest - 1), 0)
    return behind


def send_alert(to: EntityReference, told: dict[str, Any]) -> None:
    """One message, by the bulk API: a runner has no other connection to the bus."""
    import pyarrow as pa

    from polybus.spark.staging import encoded

    body = json.dumps(told).encode()
    row = pa.RecordBatch.from_pydict({"body": [body], "subject": ["lag"], "content_type": ["application/json"]})
    bus = to.open(retry_seconds=5)
    try:
        bus.publish({"stages": [bus.stage(encoded(row), {})], "wait_seconds": 5})
    finally:
        bus.close()
