"""The columns of a message, for Spark and for Arrow, and which of them a read has.

Spark takes Arrow batches only where names, order and types are exactly those of its schema, so both are made from
one table.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from polybus.errors import ConfigError

_TEXT: Final = (StringType(), pa.string())
_TIME: Final = (TimestampType(), pa.timestamp("us", tz="UTC"))
COLUMNS: dict[str, tuple[DataType, Any]] = {
    "partition": (IntegerType(), pa.int32()),
    "position": (LongType(), pa.int64()),
    "sequence_number": (LongType(), pa.int64()),
    "enqueued_time": _TIME,
    "expires_at": _TIME,
    "message_id": _TEXT,
    "session_id": _TEXT,
    "partition_key": _TEXT,
    "subject": _TEXT,
    "correlation_id": _TEXT,
    "content_type": _TEXT,
    "to": _TEXT,
    "reply_to": _TEXT,
    "delivery_count": (IntegerType(), pa.int32()),
    "dead_letter_reason": _TEXT,
    "dead_letter_description": _TEXT,
    "dead_letter_source": _TEXT,
    "properties": (MapType(StringType(), StringType()), pa.map_(pa.string(), pa.string())),
    "body": (BinaryType(), pa.binary()),
}
ON_REQUEST: dict[str, tuple[DataType, Any]] = {
    "state": _TEXT,
    "reply_to_session_id": _TEXT,
    "scheduled_enqueue_time": _TIME,
}
"""Columns that only a read has which names them."""
WRITTEN: Final = (
    "message_id",
    "session_id",
    "partition_key",
    "subject",
    "correlation_id",
    "to",
    "reply_to",
    "reply_to_session_id",
    "content_type",
    "body",
    "time_to_live",
    "scheduled_enqueue_time",
    "properties",
)
"""What the sink understands. `body` must be there."""


def chosen_columns(named: str | None, *, body: bool, properties: bool, state: bool) -> tuple[str, ...]:
    """The columns of a read: those that are named, or all but what is left out."""
    known = {**COLUMNS, **ON_REQUEST}
    names = [name.strip() for name in named.split(",")] if named else [*COLUMNS, *(["state"] if state else [])]
    unknown = [name for name in names if name not in known]
    if unknown or len(set(names)) != len(names):
        raise ConfigError(f"the option 'columns' names {unknown or names}; each of {', '.join(known)} may come once")
    left_out = ([] if body else ["body"]) + ([] if properties else ["properties"])
    return tuple(name for name in names if name not in left_out)


def spark_schema(columns: tuple[str, ...]) -> StructType:
    known = {**COLUMNS, **ON_REQUEST}
    return StructType([StructField(name, known[name][0]) for name in columns])


def arrow_schema(columns: tuple[str, ...]) -> Any:
    known = {**COLUMNS, **ON_REQUEST}
    return pa.schema([(name, known[name][1]) for name in columns])
