"""Rows that are to become messages: their columns checked once, their values by the rules that are known here.

The bus has the last word on every row; what is checked here is only what would otherwise cost a request for each
row that breaks it. Ids that do not change when a batch is repeated are made here too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, MapType, StringType, StructType

from polybus.errors import ConfigError
from polybus.limits import KEY_CHARACTERS, SPARK_BAD_ROW_CHARACTERS
from polybus.spark.columns import WRITTEN

_KEYS: Final = ("message_id", "session_id", "partition_key")
_NO_TEXT: Final = ("body", "time_to_live", "scheduled_enqueue_time", "properties")


def check_schema(schema: StructType, unknown_to_properties: bool, id_columns: Sequence[str]) -> None:
    """Refuses, before a task runs, columns that cannot be parts of a message."""
    names = schema.fieldNames()
    if "body" not in names:
        raise ConfigError(f"the column 'body' is missing among {', '.join(names)}")
    unknown = [name for name in names if name not in WRITTEN]
    if unknown and not unknown_to_properties:
        raise ConfigError(
            f"there is no column {', '.join(unknown)} of a message; unknownColumns=properties makes them properties"
        )
    absent = [name for name in id_columns if name not in names]
    if absent:
        raise ConfigError(f"the option 'idColumns' names {', '.join(absent)}, which the rows do not have")
    for field in schema.fields:
        _check_type(field.name, field.dataType)


def _check_type(name: str, kind: Any) -> None:
    if name == "body" and not isinstance(kind, BinaryType | StringType):
        raise ConfigError(f"the column 'body' must be binary or string, not {kind.simpleString()}")
    if name == "properties" and not isinstance(kind, MapType):
        raise ConfigError(f"the column 'properties' must be a map, not {kind.simpleString()}")
    if name in WRITTEN and name not in _NO_TEXT and not isinstance(kind, StringType):
        raise ConfigError(f"the column '{name}' must be a string, not {kind.simpleString()}: cast it")


def faults(batch: Any, needs_id: bool) -> dict[int, str]:
    """Row number to what is wrong with it, for the rules that can be looked at for all rows at once."""
    names, found = batch.schema.names, dict[int, str]()
    required = ["body", *(["message_id"] if needs_id else [])]
    for name in required:
        if batch.column(name).null_count:
            _note(found, pc.is_null(batch.column(name)), f"'{name}' is null")
    for name in _KEYS:
        if name in names:
            too_long = pc.greater(pc.utf8_length(batch.column(name)), KEY_CHARACTERS)
            _note(found, too_long, f"'{name}' has more than {KEY_CHARACTERS} characters")
    if "session_id" in names and "partition_key" in names:
        differs = pc.not_equal(batch.column("session_id"), batch.column("partition_key"))
        _note(found, differs, "'partition_key' must be the same as 'session_id' where both are set")
    if "time_to_live" in names and not pa.types.is_duration(batch.schema.field("time_to_live").type):
        _note(found, pc.less_equal(batch.column("time_to_live"), 0), "'time_to_live' must be greater than 0")
    return found


def _note(found: dict[int, str], wrong: Any, reason: str) -> None:
    for row in pc.indices_nonzero(pc.fill_null(wrong, False)).to_pylist():
        found.setdefault(row, reason)


def row_text(batch: Any, row: int, characters: int = SPARK_BAD_ROW_CHARACTERS) -> str:
    """One row as JSON, cut off where it is long."""
    values = {name: batch.column(name)[row].as_py() for name in batch.schema.names}
    return json.dumps(values, default=_plain, ensure_ascii=False)[:characters]


def _plain(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


# Ids


def with_ids(batch: Any, id_columns: Sequence[str]) -> Any:
    """Message ids from columns that say which row it is."""
    values = [batch.column(name).to_pylist() for name in id_columns]
    return _put_ids(batch, [_digest(row) for row in zip(*values, strict=True)])


class ContentIds:
    """Message ids from what a row holds, for rows that no column tells apart.

    After a shuffle rows come in another order when a batch is repeated, so their number would be another id. What
    they hold is the same; rows that are equal are counted.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._seen: dict[str, int] = {}

    def put(self, batch: Any) -> Any:
        columns = [column.to_pylist() for column in batch.columns]
        return _put_ids(batch, [self._next(_digest(row)) for row in zip(*columns, strict=True)])

    def _next(self, digest: str) -> str:
        count = self._seen.get(digest, 0)
        self._seen[digest] = count + 1
        return f"{self._prefix}:{digest}:{count}"


def _digest(values: tuple[object, ...]) -> str:
    digest = blake2b(digest_size=16)
    for value in values:
        part = _bytes(value)
        digest.update(b"-" if part is None else b"+%d:" % len(part))
        digest.update(part or b"")
    return digest.hexdigest()


def _bytes(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, list):
        return repr(sorted(value, key=repr)).encode()
    return (value.isoformat() if isinstance(value, datetime) else str(value)).encode()


def _put_ids(batch: Any, ids: list[str]) -> Any:
    place = batch.schema.get_field_index("message_id")
    column = pa.array(ids, pa.string())
    if place >= 0:
        return batch.set_column(place, "message_id", column)
    return batch.append_column("message_id", column)
