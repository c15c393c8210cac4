"""`kind: sla`: how long messages take from enqueue to completion, how often they are delivered, how many die.

It reads the entity's log of events, which is off unless somebody asks (`enable: true` does), keeps them as a table for
a while, and makes a page of windows with plots.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Self

from polybus.errors import ConfigError
from polybus.pipelines import events
from polybus.pipelines.events import Journal
from polybus.pipelines.fields import Fields, duration_text
from polybus.pipelines.kind import Context, JobKind, Origin
from polybus.pipelines.object_stores import Location
from polybus.pipelines.places import EntityReference, entity_from
from polybus.pipelines.report_folder import ReportFolder
from polybus.pipelines.reports import time_text
from polybus.pipelines.sla_page import LATENCIES, Sla, SlaWindow, Targets, filled
from polybus.spark.bus import BusClient, LogState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

PAGE: Final = "sla.html"
EVENTS: Final = "events"
EVERY_MS: Final = 60_000
WINDOW_MS: Final = 300_000
KEEP_MS: Final = 7 * 86_400_000
_WINDOWS_SHOWN: Final = 300
_REASONS_SHOWN: Final = 50
_DIED: Final = "change = 'dead-lettered'"


class SlaKind(JobKind):
    kind: ClassVar[str] = "sla"

    def __init__(
        self,
        name: str,
        origin: EntityReference,
        folder: Location,
        every_ms: int,
        window_ms: int,
        keep_ms: int,
        enable: bool,
        targets: Targets,
    ) -> None:
        super().__init__(name)
        self._origin = origin
        self._folder = ReportFolder(folder)
        self.every_ms = every_ms
        self._window_ms = window_ms
        self._keep_ms = keep_ms
        self._enable = enable
        self._targets = targets

    @classmethod
    def parse(cls, name: str, fields: Fields, origin: Origin) -> Self:
        window = fields.duration_ms("window", WINDOW_MS, least=1_000)
        return cls(
            name,
            entity_from(fields, "from", origin.bus),
            origin.location(fields, "to", "a folder for the events and the page"),
            fields.duration_ms("every", EVERY_MS, least=1_000),
            window,
            fields.duration_ms("keep", KEEP_MS, least=window),
            fields.flag("enable", False),
            _targets(fields.mapping("targets")),
        )

    def entities(self) -> list[EntityReference]:
        return [self._origin]

    def describe(self) -> str:
        return (
            f"service levels of {self._origin.entity}, windows of {duration_text(self._window_ms)}, to {self._folder}"
        )

    def run(self, session: SparkSession, context: Context) -> Mapping[str, float]:
        self._folder.keep(context.checkpoint)
        bus = self._origin.open()
        try:
            log = bus.log()
            self._ask_for_events(bus, log)
        finally:
            bus.close()
        place = context.checkpoint / "journal.json"
        journal = events.load_journal(place, log.entity_id) or self._journal_of_table(session, log.entity_id)
        after, count, lost = self._read(session, log, journal)
        events.save_journal(place, after if count else journal)
        if lost:
            context.say(f"{lost:,} events were gone before they were read: run it more often")
        figures: dict[str, float] = {"events": count, "lost": lost}
        if not self._table.exists():
            return figures
        since = datetime.now(UTC) - timedelta(milliseconds=self._keep_ms)
        self._folder.remove_older(EVENTS, since)
        sla = self._sla(session, since)
        context.report = sla.html()
        self._folder.publish(PAGE, context.report, EVENTS)
        return {**figures, **_last(sla)}

    def _ask_for_events(self, bus: BusClient, log: LogState) -> None:
        partition = next((end.index for end in log.ends if end.available), 0)
        if bus.events(partition, 1, 1)["enabled"]:
            return
        if not self._enable:
            raise ConfigError(
                f"'{self._origin.entity}' keeps no events: say `enable: true` (the key must be allowed to manage)"
            )
        bus.keep_events()

    # The table of events

    @property
    def _table(self) -> Path:
        return self._folder.table(EVENTS)

    def _journal_of_table(self, session: SparkSession, entity_id: str) -> Journal:
        """How far the table goes, where nothing else tells."""
        run = events.last_run(self._table)
        if not run:
            return Journal(entity_id, 0, {})
        kept = session.read.schema(events.SCHEMA).parquet(str(self._table))
        spans = spans_of(kept.where(kept["entity_id"] == entity_id))
        return Journal(entity_id, run, {index: last + 1 for index, (_, last, _) in spans.items()})

    def _read(self, session: SparkSession, log: LogState, journal: Journal) -> tuple[Journal, int, int]:
        """Writes the events that were not read yet; gives the journal after them, and how many came and were gone."""
        parts = [(end.index, journal.first(end.index)) for end in log.ends if end.available]
        if not parts:
            return journal, 0, 0
        wanted = session.createDataFrame(parts, "partition int, first bigint").repartition(min(len(parts), 8))
        folder = str(events.run_folder(self._table, journal.run + 1))
        wanted.mapInArrow(partial(events.read_batches, self._origin, log.entity_id), events.SCHEMA).write.mode(
            "overwrite"
        ).parquet(folder)
        spans = spans_of(session.read.schema(events.SCHEMA).parquet(folder))
        after, lost = events.advanced(journal, {index: (first, last) for index, (first, last, _) in spans.items()})
        return after, sum(count for _, _, count in spans.values()), lost

    # The page

    def _sla(self, session: SparkSession, since: datetime) -> Sla:
        kept = session.read.schema(events.SCHEMA).parquet(str(self._table))
        kept = kept.where(f"time >= timestamp_millis({int(since.timestamp() * 1000)})").persist()
        try:
            windows = [_window(row) for row in windows_of(kept, self._window_ms).collect()]
            deliveries = kept.where("change = 'completed'").selectExpr("delivery_count + 1 as times").groupBy("times")
            reasons = kept.where(_DIED).selectExpr("coalesce(reason, '(none)') as reason").groupBy("reason")
            died = sorted(((row[0], row[1]) for row in reasons.count().collect()), key=lambda row: (-row[1], row[0]))
            return Sla(
                entity=self._origin.entity,
                when=f"since {time_text(since)}, seen at {time_text(datetime.now(UTC))}",
                windows=filled(windows, self._window_ms, _WINDOWS_SHOWN),
                deliveries=sorted((row[0], row[1]) for row in deliveries.count().collect()),
                reasons=died[:_REASONS_SHOWN],
                targets=self._targets,
            )
        finally:
            kept.unpersist()


def spans_of(found: DataFrame) -> dict[int, tuple[int, int, int]]:
    """First event, last event and their number, of each partition."""
    from pyspark.sql.functions import expr

    spans = found.groupBy("partition").agg(expr("min(event)"), expr("max(event)"), expr("count(*)"))
    return {row[0]: (row[1], row[2], row[3]) for row in spans.collect()}


def windows_of(kept: DataFrame, window_ms: int) -> DataFrame:
    """One row for each window in which something happened, the times in milliseconds."""
    shown = kept.selectExpr(
        f"floor(unix_millis(time) / {window_ms}) * {window_ms} as start",
        "change",
        "if(change = 'completed', unix_millis(time) - unix_millis(enqueued_time), null) as latency",
        "if(change = 'completed', delivery_count + 1, null) as deliveries",
    )
    return _aggregated(shown)


def _aggregated(shown: DataFrame) -> DataFrame:
    from pyspark.sql.functions import expr

    def counted(condition: str, name: str) -> object:
        return expr(f"count_if({condition})").alias(name)

    return (
        shown.groupBy("start")
        .agg(
            counted("change = 'enqueued'", "enqueued"),
            counted("change = 'completed'", "completed"),
            counted(_DIED, "dead"),
            counted("change = 'expired'", "expired"),
            counted("change in ('abandoned', 'lock-expired')", "returned"),
            expr("percentile_approx(latency, array(0.5, 0.95, 0.99), 10000)").alias("percentiles"),
            expr("max(latency)").alias("longest"),
            expr("avg(deliveries)").alias("deliveries"),
        )
        .orderBy("start")
    )


def _window(row: Row) -> SlaWindow:
    latency: dict[str, float] = {}
    if row["percentiles"]:
        latency = dict(zip(LATENCIES, [*row["percentiles"], row["longest"]], strict=True))
    return SlaWindow(
        start=datetime.fromtimestamp(row["start"] / 1000, UTC),
        enqueued=row["enqueued"],
        completed=row["completed"],
        dead=row["dead"],
        expired=row["expired"],
        returned=row["returned"],
        latency_ms=latency,
        deliveries=row["deliveries"],
    )


def _last(sla: Sla) -> dict[str, float]:
    """Figures of the newest window in which something was completed, and of all of them."""
    figures: dict[str, float] = {"windows": len(sla.windows), "broken": sla.broken}
    newest = next((window for window in reversed(sla.windows) if window.latency_ms), None)
    if newest is not None:
        figures |= {f"{name}_ms": value for name, value in newest.latency_ms.items()}
        figures["dead_letter_rate"] = newest.dead_letter_rate or 0.0
    return figures


def _targets(fields: Fields | None) -> Targets:
    if fields is None:
        return Targets()
    latency = {name: fields.duration_ms(name) for name in LATENCIES if fields.has(name)}
    found = Targets(latency, fields.fraction("deadLetterRate", None, most=1.0))
    fields.close()
    return found
