"""`kind: redrive`: dead letters to a table with their reasons, filtered and repaired in SQL, and sent back.

Without `mode: resubmit` it is a dry run: the table is written, what would be done is written beside it, and the bus is
only read. A letter leaves its dead-letter queue in the very batch in which its copy is on its way (`resubmitting`).
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from polybus.pipelines import letters
from polybus.pipelines.fields import Fields
from polybus.pipelines.kind import Context, JobKind, Origin
from polybus.pipelines.letters import LetterSelection
from polybus.pipelines.places import EntityReference, entity_from
from polybus.pipelines.repairs import COLUMNS, PROPERTY, letter_of
from polybus.pipelines.resubmitting import (
    MOVED,
    OUTCOMES,
    PLANNED,
    REFUSED,
    Letter,
    Resubmission,
    ResubmitOutcome,
    SendRate,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORIGIN: Final = "origin"
DRY_RUN: Final = "dryRun"
RESUBMIT: Final = "resubmit"
_DESTINATIONS: Final = "origin, a queue, a topic, or topic/Subscriptions/name"
_SHOWN_REASONS: Final = 10
_OUTCOME_ROWS: Final = 1_000


class RedriveKind(JobKind):
    kind: ClassVar[str] = "redrive"

    def __init__(
        self,
        name: str,
        origin: EntityReference,
        to: str,
        selection: LetterSelection,
        rate: float | None,
        mode: str,
        table: Path | None,
        keep_runs: int,
        every_ms: int | None,
    ) -> None:
        super().__init__(name)
        self._origin = origin
        self._to = to
        self._selection = selection
        self._rate = rate
        self._mode = mode
        self._table = table
        self._keep_runs = keep_runs
        self.every_ms = every_ms

    @classmethod
    def parse(cls, name: str, fields: Fields, origin: Origin) -> Self:
        table = fields.text("table", None, "a folder for the letters and what became of them")
        return cls(
            name,
            entity_from(fields, "from", origin.bus),
            fields.text("to", ORIGIN, _DESTINATIONS).strip("/"),
            _selection(fields),
            fields.rate("rate", None),
            fields.word("mode", (DRY_RUN, RESUBMIT), DRY_RUN),
            None if table is None else origin.path(table),
            fields.number("keepRuns", 10, least=1, most=10_000),
            fields.duration_ms("every", None, least=1_000),
        )

    def entities(self) -> list[EntityReference]:
        return [self._origin, *([] if self._to == ORIGIN else [EntityReference(self._to, self._origin.bus)])]

    def check(self) -> list[str]:
        if self._mode == DRY_RUN:
            return [f"{self.name}: a dry run, nothing is sent back; `mode: {RESUBMIT}` does it"]
        return []

    def describe(self) -> str:
        what = "would send" if self._mode == DRY_RUN else "sends"
        return f"{what} dead letters of {self._origin.entity} to {self._to}"

    def run(self, session: SparkSession, context: Context) -> Mapping[str, float]:
        bus = self._origin.open()
        try:
            if not any(end.stable_end >= end.earliest for end in bus.log().ends if end.available):
                return _figures(0, 0, Counter())
            pace = SendRate(self._rate, time.monotonic, context.stopping.wait)
            return self._redrive(session, context, Resubmission(bus, pace))
        finally:
            bus.close()

    def _redrive(self, session: SparkSession, context: Context, resubmission: Resubmission) -> Mapping[str, float]:
        table = self._table or context.checkpoint / "table"
        run = f"run={datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"
        found = letters.snapshot(session, self._origin, table / "letters" / run)
        told = letters.reasons(found)
        for reason, source, count in told[:_SHOWN_REASONS]:
            context.say(f"{count:,} dead letters of {source}: {reason}")
        plan = letters.chosen(session, found, self._selection)
        count = letters.count_once(plan)
        to, counting = None if self._to == ORIGIN else self._to, self._selection.max_redrives is not None
        going = map(letter_of, letters.repaired_rows(plan, to, counting))
        outcomes = planned(going) if self._mode == DRY_RUN else resubmission.run(going)
        counted = write_outcomes(table / "outcomes" / run / "outcomes.parquet", outcomes)
        for part in ("letters", "outcomes"):
            prune(table / part, self._keep_runs)
        return _figures(sum(row[2] for row in told), count, counted)


def _selection(fields: Fields) -> LetterSelection:
    where, sql = fields.text("where", None, "a condition in SQL"), fields.text("sql", None, "a query over `letters`")
    repairs = {} if fields.raw("set") is None else _repairs(fields)
    if sql is not None and (where is not None or repairs):
        fields.refuse("sql", sql, "either sql, or where and set")
    return LetterSelection(where, repairs, sql, fields.number("maxRedrives", None, least=1, most=1_000_000))


def _repairs(fields: Fields) -> dict[str, str]:
    inner = fields.mapping("set")
    assert inner is not None
    for name in inner.names():
        good = name in COLUMNS or (name.startswith(PROPERTY) and len(name) > len(PROPERTY) and "`" not in name)
        if not good:
            inner.refuse(name, inner.raw(name), f"only the names {', '.join(COLUMNS)}, {PROPERTY}NAME")
    return {name: inner.text(name, allowed="an expression in SQL") for name in inner.names()}


def planned(going: Iterable[Letter]) -> Iterator[ResubmitOutcome]:
    """What a dry run makes of letters."""
    for letter in going:
        yield ResubmitOutcome(letter, PLANNED if letter.fault is None else REFUSED, letter.fault)


def write_outcomes(path: Path, outcomes: Iterable[ResubmitOutcome]) -> Counter[str]:
    """Writes what became of each letter, as far as a run came, and counts it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [
            ("sequence_number", pa.int64()),
            ("destination", pa.string()),
            ("outcome", pa.string()),
            ("detail", pa.string()),
        ]
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}")
    counted: Counter[str] = Counter()
    try:
        with pq.ParquetWriter(beside, schema) as writer:
            for rows in _chunks(outcomes):
                counted.update(row["outcome"] for row in rows)
                writer.write_table(pa.Table.from_pylist(rows, schema))
    finally:
        beside.replace(path)
    return counted


def _chunks(outcomes: Iterable[ResubmitOutcome]) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    for each in outcomes:
        letter = each.letter
        shown = {"sequence_number": letter.number, "destination": letter.to or None}
        rows.append({**shown, "outcome": each.what, "detail": each.detail})
        if len(rows) >= _OUTCOME_ROWS:
            yield rows
            rows = []
    if rows:
        yield rows


def prune(folder: Path, keep: int) -> None:
    """Removes all but the newest runs; their names are their times."""
    runs = sorted(path for path in folder.glob("run=*") if path.is_dir())
    for path in runs[:-keep]:
        shutil.rmtree(path, ignore_errors=True)


def _figures(found: int, count: int, counted: Counter[str]) -> dict[str, float]:
    figures: dict[str, float] = {"letters": found, "chosen": count, MOVED: counted[MOVED]}
    return {**figures, **{what: counted[what] for what in OUTCOMES if counted[what]}}
