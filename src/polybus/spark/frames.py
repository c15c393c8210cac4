"""What everybody writes on DataFrames of messages: bodies decoded, dead letters by reason, rows sent again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polybus.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FORMAT: Final = "servicebus"
_DEAD: Final = "/$DeadLetterQueue"


def decode(frame: DataFrame, schema: str, column: str = "data") -> DataFrame:
    """The frame with JSON bodies as a struct of a schema (`id BIGINT, city STRING`) in a column; null where one is none."""
    from pyspark.sql import functions as F  # noqa: N812

    return frame.withColumn(column, F.from_json(F.col("body").cast("string"), schema, {"mode": "PERMISSIVE"}))


def dead_letters(spark: SparkSession, entity: str, **options: str) -> DataFrame:
    """The dead letters of a queue or subscription, now; options are those of a read, such as `connectionStringEnv`."""
    place = entity if entity.lower().endswith(_DEAD.lower()) else entity + _DEAD
    return spark.read.format(_FORMAT).options(**options).option("entity", place).load()


def by_reason(letters: DataFrame) -> DataFrame:
    """Reasons of death, most frequent first: how many, and since when until when they were enqueued."""
    from pyspark.sql import functions as F  # noqa: N812

    counted = letters.groupBy(F.coalesce("dead_letter_reason", F.lit("(none)")).alias("reason")).agg(
        F.count("*").alias("letters"),
        F.min("enqueued_time").alias("first"),
        F.max("enqueued_time").alias("last"),
    )
    return counted.orderBy(F.desc("letters"), "reason")


def send_again(frame: DataFrame, entity: str, *, keep_ids: bool = True, **options: str) -> int:
    """Sends rows of messages, of a lake or of dead letters, all at once; gives how many. What a message cannot have stays.

    Each call sends: a replay that must be exactly once over restarts is a pipeline of its own (docs/pipelines.md).
    """
    from polybus.spark.columns import WRITTEN

    names = [name for name in WRITTEN if name in frame.columns and (keep_ids or name != "message_id")]
    if "body" not in names:
        raise ConfigError(f"rows that are sent must have the column 'body'; they have: {frame.columns}")
    chosen = frame.select(*names).persist()
    try:
        count = int(chosen.count())
        chosen.write.format(_FORMAT).options(**options).option("entity", entity).mode("append").save()
        return count
    finally:
        chosen.unpersist()
