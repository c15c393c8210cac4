"""`kind: skew`: who sends how much, where it goes, and where it would go with another number of partitions.

A stream with a cursor of its own sees every message, also those that receivers take at once. Each batch is counted by
partition and key and written under its number, so that a batch that is repeated counts once; the page is made anew from
the counts of the last while.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from polybus.errors import Unauthorized
from polybus.pipelines.fields import Fields, duration_text
from polybus.pipelines.folders import Folder
from polybus.pipelines.kind import Context, Origin, StreamKind, read_stream
from polybus.pipelines.object_stores import Location
from polybus.pipelines.places import EntityReference, entity_from
from polybus.pipelines.report_folder import ReportFolder
from polybus.pipelines.reports import time_text
from polybus.pipelines.skew_page import Lag, Skew
from polybus.pipelines.traffic import HotKey, KeyBucket, Loads, PartitionLoad, spread_batches, what_if
from polybus.spark.bus import BusClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

PAGE: Final = "skew.html"
COUNTS: Final = "counts"
EVERY_MS: Final = 60_000
OVER_MS: Final = 86_400_000
PARTITIONS: Final = (1, 2, 4, 8, 16, 32, 64)
_MOST_PARTITIONS: Final = 1_024
_SPREAD: Final = "partitions int, partition int, messages bigint"


class SkewKind(StreamKind):
    kind: ClassVar[str] = "skew"

    def __init__(
        self,
        name: str,
        origin: EntityReference,
        folder: Location,
        every_ms: int,
        over_ms: int,
        partitions: tuple[int, ...],
        top: int,
        sizes: bool,
        by_message_id: bool,
    ) -> None:
        super().__init__(name)
        self._origin = origin
        self._folder = ReportFolder(folder)
        self._every_ms = every_ms
        self._over_ms = over_ms
        self._partitions = partitions
        self._top = top
        self._sizes = sizes
        self._by_message_id = by_message_id

    @classmethod
    def parse(cls, name: str, fields: Fields, origin: Origin) -> Self:
        return cls(
            name,
            entity_from(fields, "from", origin.bus),
            origin.location(fields, "to", "a folder for the counts and the page"),
            fields.duration_ms("every", EVERY_MS),
            fields.duration_ms("over", OVER_MS, least=1_000),
            _numbers(fields),
            fields.number("top", 20, least=1, most=1_000),
            fields.flag("bytes", True),
            fields.flag("byMessageId", False),
        )

    def entities(self) -> list[EntityReference]:
        return [self._origin]

    def describe(self) -> str:
        return f"keys and partitions of {self._origin.entity}, over {duration_text(self._over_ms)}, to {self._folder}"

    def start(self, session: SparkSession, context: Context) -> StreamingQuery:
        self._folder.keep(context.checkpoint)
        columns = ["partition", "session_id", "partition_key", "message_id", "enqueued_time"]
        columns += ["body"] if self._sizes else []
        frame = read_stream(session, self._origin, cursor=self.name, columns=",".join(columns))
        context.metrics.describe(
            "polybus_pipeline_skew_imbalance", "gauge", "Messages of the fullest partition against the mean."
        )
        context.metrics.describe(
            "polybus_pipeline_skew_hottest_key_share", "gauge", "Share of the messages that the hottest key has."
        )

        def counted(batch: DataFrame, number: int) -> None:
            journal = Folder(context.checkpoint).journal()
            assert journal is not None, "a query that has a batch has a journal"
            # A new checkpoint numbers its batches anew. Whoever asks first whether there are rows reads some twice.
            self.count(batch, f"{journal.query[:8]}-{number:012d}")
            self.report(session, context)

        return (
            frame.writeStream.foreachBatch(counted)
            .queryName(self.name)
            .option("checkpointLocation", context.stream_folder())
            .trigger(**context.trigger(self._every_ms))
            .start()
        )

    # One batch

    def count(self, batch: DataFrame, number: str) -> None:
        """Writes the counts of a batch; those of the same batch, written before, are replaced."""
        key = f"coalesce(session_id, partition_key{', message_id' if self._by_message_id else ''})"
        size = "octet_length(body)" if self._sizes else "0"
        shown = batch.selectExpr("partition", f"{key} as key", f"cast({size} as bigint) as size", "enqueued_time")
        counts = shown.groupBy("partition", "key").agg({"*": "count", "size": "sum", "enqueued_time": "max"})
        named = counts.selectExpr(
            "partition", "key", "`count(1)` as messages", "`sum(size)` as bytes", "`max(enqueued_time)` as until"
        )
        named.coalesce(1).write.mode("overwrite").parquet(str(self._folder.table(COUNTS) / f"batch={number}"))

    def report(self, session: SparkSession, context: Context) -> Skew:
        """Makes the page from the counts of the last while."""
        since = datetime.now(UTC) - timedelta(milliseconds=self._over_ms)
        self._folder.remove_older(COUNTS, since)
        bus = self._origin.open()
        try:
            lags = lags_of(bus, self.name)
        finally:
            bus.close()
        skew = self._skew(session, since, lags)
        context.report = skew.html()
        self._folder.publish(PAGE, context.report, COUNTS)
        context.metrics.put("polybus_pipeline_skew_imbalance", skew.imbalance, pipeline=self.name)
        context.metrics.put("polybus_pipeline_skew_hottest_key_share", skew.hottest_share, pipeline=self.name)
        return skew

    def _skew(self, session: SparkSession, since: datetime, lags: list[Lag]) -> Skew:
        counts = session.read.parquet(str(self._folder.table(COUNTS)))
        counts = counts.where(f"until >= timestamp_millis({int(since.timestamp() * 1000)})").persist()
        try:
            keyed = counts.where("key is not null").groupBy("key")
            keys = keyed.agg({"messages": "sum", "bytes": "sum", "partition": "max"}).selectExpr(
                "key", "`sum(messages)` as messages", "`sum(bytes)` as bytes", "`max(partition)` as partition"
            )
            hot = _hot(keys, self._top)
            loads, keyless = _loads(counts, len(lags))
            numbers = tuple(sorted({*self._partitions, len(lags)}))
            hottest = hot[0].messages if hot else 0
            return Skew(
                entity=self._origin.entity,
                when=f"enqueued since {time_text(since)}, seen at {time_text(datetime.now(UTC))}",
                partitions=loads,
                buckets=_buckets(keys),
                hot=hot,
                keyless=keyless,
                lags=lags,
                lines=what_if(_spread(keys, numbers), keyless, hottest, numbers),
            )
        finally:
            counts.unpersist()


def _numbers(fields: Fields) -> tuple[int, ...]:
    given = fields.raw("partitions")
    if given is None:
        return PARTITIONS
    good = (
        isinstance(given, list)
        and given
        and all(type(each) is int and 1 <= each <= _MOST_PARTITIONS for each in given)
    )
    if not good:
        fields.refuse("partitions", given, f"a list of whole numbers from 1 to {_MOST_PARTITIONS}")
    return tuple(sorted(set(given)))


def _loads(counts: DataFrame, partitions: int) -> tuple[list[PartitionLoad], int]:
    """What each partition has had, and how many messages had no key."""
    from pyspark.sql.functions import expr

    rows = counts.groupBy("partition").agg(
        expr("sum(messages)").alias("messages"),
        expr("sum(bytes)").alias("bytes"),
        expr("approx_count_distinct(key)").alias("keys"),
        expr("sum(if(key is null, messages, 0))").alias("keyless"),
    )
    found = {row["partition"]: row for row in rows.collect()}
    loads = [
        PartitionLoad(index, found[index]["messages"], found[index]["bytes"], found[index]["keys"])
        if index in found
        else PartitionLoad(index, 0, 0, 0)
        for index in range(max([partitions, *(index + 1 for index in found)]))
    ]
    return loads, sum(row["keyless"] for row in found.values())


def _hot(keys: DataFrame, top: int) -> list[HotKey]:
    rows = keys.selectExpr("*", "-messages as rank").orderBy("rank", "key").limit(top).collect()
    return [HotKey(row["key"], row["partition"], row["messages"], row["bytes"]) for row in rows]


def _buckets(keys: DataFrame) -> list[KeyBucket]:
    """Keys by the power of two that their number of messages reaches."""
    grouped = keys.selectExpr("cast(floor(log2(messages)) as int) as power", "messages").groupBy("power")
    rows = sorted(grouped.agg({"*": "count", "messages": "sum"}).collect())
    return [
        KeyBucket(1 << row["power"], (2 << row["power"]) - 1, row["count(1)"], row["sum(messages)"]) for row in rows
    ]


def _spread(keys: DataFrame, counts: Sequence[int]) -> Loads:
    spread = keys.select("key", "messages").mapInArrow(partial(spread_batches, counts), _SPREAD)
    rows = spread.groupBy("partitions", "partition").agg({"messages": "sum"}).collect()
    return {(row["partitions"], row["partition"]): row["sum(messages)"] for row in rows}


def lags_of(bus: BusClient, own: str) -> list[Lag]:
    """What waits in each partition, for receivers and for the cursors of others."""
    ends = bus.log().ends
    waiting = _waiting(bus)
    cursors: dict[str, dict[str, Any]] = {
        each["name"]: each["positions"] for each in bus.cursors() if each["name"] != own
    }
    return [
        Lag(
            end.index,
            waiting.get(end.index) if end.available else None,
            {
                name: max(end.stable_end - positions.get(str(end.index), 0), 0)
                for name, positions in cursors.items()
                if end.available
            },
        )
        for end in ends
    ]


def _waiting(bus: BusClient) -> dict[int, int]:
    """Active messages by partition; only a key that may manage is told."""
    try:
        return {each["index"]: each["counts"]["active"] for each in bus.partitions()}
    except Unauthorized:
        return {}
