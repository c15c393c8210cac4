"""The page of `kind: sla`: latency, deliveries and dead letters over windows, as plots and as numbers.

Plots go on in time from left to right; tables begin with the newest window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from polybus.pipelines import charts
from polybus.pipelines.charts import Series
from polybus.pipelines.fields import duration_text
from polybus.pipelines.reports import Cell, ReportTable, Section, page

LATENCIES = ("p50", "p95", "p99", "max")
_WINDOW = "window (UTC)"


@dataclass(frozen=True)
class Targets:
    """What was promised; nothing where a promise is missing."""

    latency_ms: dict[str, int] = field(default_factory=dict)
    """p50, p95, p99 or max to the most milliseconds."""
    dead_letter_rate: float | None = None

    def __bool__(self) -> bool:
        return bool(self.latency_ms) or self.dead_letter_rate is not None


@dataclass(frozen=True)
class SlaWindow:
    """What happened between a time and the next."""

    start: datetime
    enqueued: int = 0
    completed: int = 0
    dead: int = 0
    expired: int = 0
    """Of these, where the entity dead-letters what expires, the dead ones are counted there as well."""
    returned: int = 0
    """Abandoned, or the lock expired: a delivery that came to nothing."""
    latency_ms: dict[str, float] = field(default_factory=dict)
    """From enqueue to completion, of what was completed in the window."""
    deliveries: float | None = None
    """How often what was completed had to be delivered, on average."""

    @property
    def dead_letter_rate(self) -> float | None:
        ended = self.completed + self.dead
        return self.dead / ended if ended else None

    def broken(self, targets: Targets) -> list[str]:
        """The promises that the window does not keep."""
        late = [name for name, most in targets.latency_ms.items() if self.latency_ms.get(name, 0) > most]
        rate, most = self.dead_letter_rate, targets.dead_letter_rate
        return late + (["dead letters"] if rate is not None and most is not None and rate > most else [])


def filled(windows: Sequence[SlaWindow], length_ms: int, most: int) -> list[SlaWindow]:
    """The newest windows without gaps: a window in which nothing happened is one as well."""
    if not windows:
        return []
    known = {window.start: window for window in windows}
    last, step = max(known), timedelta(milliseconds=length_ms)
    count = min((last - min(known)) // step + 1, most)
    starts = [last - step * back for back in range(count - 1, -1, -1)]
    return [known.get(start, SlaWindow(start)) for start in starts]


@dataclass(frozen=True)
class Sla:
    """Everything that the page shows."""

    entity: str
    when: str
    windows: Sequence[SlaWindow]
    deliveries: Sequence[tuple[int, int]]
    """How often delivered, and how many messages."""
    reasons: Sequence[tuple[str, int]]
    """Why messages died, and how many."""
    targets: Targets

    @property
    def broken(self) -> int:
        return sum(1 for window in self.windows if window.broken(self.targets))

    def html(self) -> str:
        sections = [self._latency(), self._flow(), self._dead(), self._deliveries()]
        done = sum(window.completed for window in self.windows)
        return page(f"Service levels of {self.entity}", f"{done:,} messages completed, {self.when}", sections)

    def _names(self) -> list[str]:
        days = {window.start.date() for window in self.windows}
        form = "%m-%d %H:%M" if len(days) > 1 else "%H:%M"
        if any(window.start.second for window in self.windows):
            form += ":%S"
        return [f"{window.start.astimezone(UTC):{form}}" for window in self.windows]

    def _latency(self) -> Section:
        names = self._names()
        series = [Series(each, [window.latency_ms.get(each) for window in self.windows]) for each in LATENCIES]
        rows: list[list[Cell]] = [
            [name, window.completed, *(window.latency_ms.get(each) for each in LATENCIES), self._verdict(window)]
            for name, window in zip(names, self.windows, strict=True)
        ]
        return Section(
            "Latency",
            f"From enqueue to completion. {self._promise()}",
            charts.lines("Latency by window (UTC), ms", names, series),
            ReportTable([_WINDOW, "completed", *(f"{each}, ms" for each in LATENCIES), "broken"], rows[::-1]),
        )

    def _verdict(self, window: SlaWindow) -> str:
        return ", ".join(window.broken(self.targets))

    def _promise(self) -> str:
        if not self.targets:
            return ""
        told = [f"{name} at most {duration_text(most)}" for name, most in self.targets.latency_ms.items()]
        if self.targets.dead_letter_rate is not None:
            told.append(f"dead letters at most {self.targets.dead_letter_rate:.2%}")
        return f"Promised: {', '.join(told)}. {self.broken} of {len(self.windows)} windows broke a promise."

    def _flow(self) -> Section:
        names = self._names()
        series = [
            Series("enqueued", [window.enqueued for window in self.windows]),
            Series("completed", [window.completed for window in self.windows]),
            Series("returned", [window.returned for window in self.windows]),
        ]
        rows: list[list[Cell]] = [
            [name, window.enqueued, window.completed, window.dead, window.expired, window.returned]
            for name, window in zip(names, self.windows, strict=True)
        ]
        return Section(
            "Flow",
            "Messages that came, that were completed, and deliveries that were abandoned or whose lock expired.",
            charts.lines("Messages by window (UTC)", names, series),
            ReportTable([_WINDOW, "enqueued", "completed", "dead", "expired", "returned"], rows[::-1]),
        )

    def _dead(self) -> Section:
        names = self._names()
        rates = [
            None if window.dead_letter_rate is None else 100 * window.dead_letter_rate for window in self.windows
        ]
        died = sum(window.dead for window in self.windows)
        ended = died + sum(window.completed for window in self.windows)
        return Section(
            "Dead letters",
            f"Of what ended in a window, the part that died, in percent. In all {died:,} of {ended:,}.",
            charts.lines("Dead letters by window (UTC), %", names, [Series("dead letters, %", rates)]),
            ReportTable(["reason", "messages"], [[reason, count] for reason, count in self.reasons]),
        )

    def _deliveries(self) -> Section:
        names = [str(times) for times, _ in self.deliveries]
        return Section(
            "Deliveries",
            "How often a message had to be delivered until it was completed.",
            charts.bars("Messages by number of deliveries", names, [count for _, count in self.deliveries]),
            ReportTable(["deliveries", "messages"], [[times, count] for times, count in self.deliveries]),
        )
