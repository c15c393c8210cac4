"""What runners tell of their pipelines, so that whoever looks at the bus sees them: kept in memory, for a while.

A runner is a client somewhere else; nobody can ask it from here. So it tells, every few seconds, and what was not told
again for long is forgotten. Nothing on the bus depends on it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polybus import limits
from polybus.errors import ArgumentError, QuotaExceeded
from polybus.message.columns import moment

if TYPE_CHECKING:
    from polybus.namespace.namespace import Namespace

_SHORT = ("kind", "state", "what", "restarts", "error", "batch", "began", "rows", "ms", "lag")
"""What a list shows of a pipeline; the rest is told when it is asked for by name."""
_LONG = ("name", "runs", "report")


@dataclass(frozen=True)
class ToldPipeline:
    """One pipeline as its runner has last told of it."""

    entity: str
    name: str
    told: dict[str, Any]
    at_ms: int

    def short(self) -> dict[str, Any]:
        shown = {name: self.told.get(name) for name in _SHORT}
        silent = _now_ms() - self.at_ms > limits.PIPELINE_SILENT_MS
        return {
            "name": self.name,
            "entity": self.entity,
            "told_at": moment(self.at_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "silent": silent,
            "has_report": bool(self.told.get("report")),
            **shown,
        }


class PipelineBoard:
    """All that was told, by namespace, entity and name. Times are the real clock's: runners live by that one."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str, str], ToldPipeline] = {}

    def put(self, namespace: Namespace, told: ToldPipeline) -> None:
        self._forget()
        key = (namespace.name, told.entity.lower(), told.name)
        if key not in self._told and len(self._told) >= limits.PIPELINES_TOLD:
            raise QuotaExceeded(f"Runners have told of {limits.PIPELINES_TOLD} pipelines already.")
        self._told[key] = told

    def find(self, namespace: Namespace, entity: str, name: str) -> ToldPipeline | None:
        return self._told.get((namespace.name, entity.lower(), name))

    def of(self, namespace: Namespace) -> list[ToldPipeline]:
        self._forget()
        return [told for key, told in sorted(self._told.items()) if key[0] == namespace.name]

    def _forget(self) -> None:
        now_ms = _now_ms()
        old = [key for key, told in self._told.items() if now_ms - told.at_ms > limits.PIPELINE_TOLD_MS]
        for key in old:
            del self._told[key]


def told_in(entity: str, name: str, body: dict[str, Any]) -> ToldPipeline:
    """What a runner says, as it may be kept; ArgumentError for what it cannot mean."""
    unknown = [word for word in body if word not in (*_SHORT, *_LONG)]
    if unknown:
        raise ArgumentError(f"{str(unknown)[:200]} is not understood; there are {', '.join((*_SHORT, *_LONG))}.")
    if not isinstance(body.get("state"), str) or not isinstance(body.get("report", ""), str | None):
        raise ArgumentError("'state' must be a string, and 'report' a page of HTML.")
    return ToldPipeline(entity, name, body, _now_ms())


def _now_ms() -> int:
    return int(time.time() * 1000)
