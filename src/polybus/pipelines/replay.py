"""`kind: replay`: rows of a lake back into a queue or a topic, chosen by time, key or SQL, at a speed of one's choice.

A run has a name and sends each of its rows exactly once. What it sends is chosen at its start and kept in the
pipeline's folder, cut into steps; each step is an epoch of the run's producer, which the bus publishes once. So a run
goes on where it stopped, whatever the lake has become meanwhile, and a run that is done does nothing.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Self

from polybus.errors import ConfigError
from polybus.limits import REPLAY_STEP_ROWS
from polybus.pipelines.capture import FORMATS, LakePlace, lake_place
from polybus.pipelines.epochs import Epoch, last_epoch, send_epoch
from polybus.pipelines.fields import Fields
from polybus.pipelines.kind import Context, JobKind, Origin
from polybus.pipelines.lake_reading import lake_frame
from polybus.pipelines.places import EntityReference, entity_from
from polybus.pipelines.replay_plan import Pace, Plan, ReplayStep, read_plan, slot_us, steps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIEW: Final = "lake"
TIME: Final = "enqueued_time"
_RUN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TASK_ROWS: Final = 20_000
"""Rows of a step that are worth a further task."""


@dataclass(frozen=True)
class ReplayChoice:
    """Which rows of the lake."""

    first: datetime | None
    end: datetime | None
    keys: tuple[str, ...]
    where: str | None
    sql: str | None

    def of(self, session: SparkSession, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        if self.first is not None:
            frame = frame.where(F.col(TIME) >= F.lit(self.first))
        if self.end is not None:
            frame = frame.where(F.col(TIME) < F.lit(self.end))
        if self.keys:
            frame = frame.where(F.col("session_id").isin(*self.keys) | F.col("partition_key").isin(*self.keys))
        if self.where is not None:
            frame = frame.where(self.where)
        if self.sql is None:
            return frame
        frame.createOrReplaceTempView(VIEW)
        return session.sql(self.sql)


class ReplayKind(JobKind):
    kind: ClassVar[str] = "replay"

    def __init__(
        self,
        name: str,
        place: LakePlace,
        target: EntityReference,
        run: str,
        choice: ReplayChoice,
        speed: float,
        window_ms: int,
        step_rows: int,
        keep_ids: bool,
    ) -> None:
        super().__init__(name)
        self._place = place
        self._target = target
        self._run = run
        self._choice = choice
        self._speed = speed
        self._window_ms = window_ms
        self._step_rows = step_rows
        self._keep_ids = keep_ids

    @classmethod
    def parse(cls, name: str, fields: Fields, origin: Origin) -> Self:
        source = fields.mapping("from")
        if source is None:
            fields.missing("from", f"a mapping with path and format ({', '.join(FORMATS)})")
        place = lake_place(source, origin)
        source.close()
        run = fields.text("run", "1")
        if not _RUN.fullmatch(run):
            fields.refuse("run", run, "a name of at most 100 letters, digits, dots, dashes and underscores")
        return cls(
            name,
            place,
            entity_from(fields, "to", origin.bus),
            run,
            _choice(fields),
            fields.fraction("speed", 0.0, most=1_000_000),
            fields.duration_ms("window", 5_000, least=100, most=3_600_000),
            fields.number("maxMessages", REPLAY_STEP_ROWS, least=1),
            fields.flag("keepIds", True),
        )

    def entities(self) -> list[EntityReference]:
        return [self._target]

    def check(self) -> list[str]:
        return self._target.check_sink()

    def describe(self) -> str:
        pace = f"at {self._speed:g} times the speed" if self._speed else "as fast as possible"
        return f"{self._place.path} ({self._place.format}) to {self._target.entity}, run {self._run}, {pace}"

    @property
    def _producer(self) -> str:
        """Producers are known in the whole namespace: the entity is part of the name, in a form of bounded length."""
        entity = hashlib.sha256(self._target.entity.lower().encode()).hexdigest()[:16]
        return f"replay-{self.name}-{entity}"

    # Running

    def run(self, session: SparkSession, context: Context) -> Mapping[str, float]:
        folder = context.checkpoint / self._run
        plan_path = folder / "plan.json"
        plan = read_plan(plan_path)
        if plan is not None and plan.done:
            context.say(f"the run {self._run!r} is done; another name makes another run")
            return {"messages": 0}
        last = last_epoch(self._target, self._producer, self._run)
        if plan is None:
            if last >= 0:
                raise ConfigError(
                    f"the run {self._run!r} has sent a part, and {plan_path}, which says what the rest is, is gone:"
                    " give the run another name"
                )
            plan = self._plan(session.newSession(), folder)
            plan.write(plan_path)
        sent = self._send(session, context, folder, plan, last)
        if not context.stopping.is_set():
            Plan(plan.steps, done=True).write(plan_path)
            shutil.rmtree(folder / "rows", ignore_errors=True)
        return {"messages": sent}

    def _plan(self, session: SparkSession, folder: Path) -> Plan:
        """Chooses the rows, keeps them, and cuts them into steps."""
        from pyspark.sql import functions as F  # noqa: N812

        frame = lake_frame(session, self._place, self._choice.first, self._choice.end)
        chosen = _sendable(self._choice.of(session, frame), self._keep_ids)
        rows = str(folder / "rows")
        chosen.repartitionByRange("_time").sortWithinPartitions("_time", "_order").write.mode("overwrite").parquet(
            rows
        )
        slot = slot_us(self._speed, self._window_ms)
        kept = session.read.parquet(rows)
        counted = kept.groupBy(F.floor(F.col("_time") / slot).alias("slot")).count().collect()
        counts = [(int(row["slot"]), int(row["count"])) for row in counted]
        return Plan(steps(counts, slot, self._speed, self._step_rows))

    def _send(self, session: SparkSession, context: Context, folder: Path, plan: Plan, last: int) -> int:
        """Sends the steps after the last one that is in; ends early, between two, when the runner does."""
        rest = list(enumerate(plan.steps))[last + 1 :]
        if not rest:
            return 0
        rows = session.read.parquet(str(folder / "rows"))
        pace = Pace(self._speed, _now_us(), rest[0][1].first) if self._speed else None
        sent = 0
        for number, step in rest:
            if pace is not None and context.stopping.wait(self._ahead_seconds(pace, step)):
                break
            if context.stopping.is_set():
                break
            epoch = Epoch(self._producer, self._run, number)
            if send_epoch(self._messages(rows, step, pace), self._target, epoch):
                sent += step.rows
            context.say(f"step {number + 1} of {len(plan.steps)}: {step.rows:,} rows")
        return sent

    def _ahead_seconds(self, pace: Pace, step: ReplayStep) -> float:
        """How long until a step is to be sent: a window before its first row is due, for its rows are scheduled."""
        return max((pace.due_us(step.first) - _now_us()) / 1e6 - self._window_ms / 1000, 0.0)

    def _messages(self, rows: DataFrame, step: ReplayStep, pace: Pace | None) -> DataFrame:
        """The rows of a step as messages; those of one key stay together and in order."""
        from pyspark.sql import functions as F  # noqa: N812

        part = rows.where((F.col("_time") >= step.first) & (F.col("_time") < step.end))
        tasks = min(-(-step.rows // _TASK_ROWS), rows.sparkSession.sparkContext.defaultParallelism)
        part = part.repartition(max(tasks, 1), "_key").sortWithinPartitions("_time", "_order")
        if pace is not None:
            due = F.lit(pace.began_us) + ((F.col("_time") - pace.first_us) / pace.speed).cast("long")
            part = part.withColumn("scheduled_enqueue_time", F.timestamp_micros(due))
        return part.drop("_time", "_order", "_key")


def _sendable(frame: DataFrame, keep_ids: bool) -> DataFrame:
    """What a message can have, and what orders and spreads the rows."""
    from pyspark.sql import functions as F  # noqa: N812

    from polybus.spark.columns import WRITTEN

    for name in ("body", TIME):
        if name not in frame.columns:
            raise ConfigError(f"the rows of a replay must have the column {name!r}; they have: {frame.columns}")
    names = [name for name in WRITTEN if name in frame.columns and (keep_ids or name != "message_id")]
    order = F.col("position") if "position" in frame.columns else F.monotonically_increasing_id()
    keys = [F.col(name) for name in ("session_id", "partition_key") if name in frame.columns]
    return frame.where(F.col(TIME).isNotNull()).select(
        *names,
        F.unix_micros(F.col(TIME)).alias("_time"),
        order.alias("_order"),
        F.coalesce(*keys, order.cast("string")).alias("_key"),
    )


def _choice(fields: Fields) -> ReplayChoice:
    between = fields.mapping("between")
    first = end = None
    if between is not None:
        first, end = between.moment("from", None), between.moment("to", None)
        if first is not None and end is not None and first >= end:
            between.refuse("to", end.isoformat(), f"a time after {first.isoformat()}")
        between.close()
    keys = fields.texts("keys", ())
    return ReplayChoice(first, end, keys, fields.text("where", None), fields.text("sql", None))


def _now_us() -> int:
    return time.time_ns() // 1_000
