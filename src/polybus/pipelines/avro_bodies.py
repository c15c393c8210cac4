"""Bodies in Avro's binary form, taken apart by `fastavro` in the workers: Spark's own function needs a JAR."""

from __future__ import annotations

import io
import json
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from polybus.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

_PLAIN: Final = {
    "string": "StringType",
    "bytes": "BinaryType",
    "int": "IntegerType",
    "long": "LongType",
    "float": "FloatType",
    "double": "DoubleType",
    "boolean": "BooleanType",
    "enum": "StringType",
    "fixed": "BinaryType",
}
"""Names of Spark's types: Spark is not there when this is read."""
_LOGICAL: Final = {
    "timestamp-millis": "TimestampType",
    "timestamp-micros": "TimestampType",
    "date": "DateType",
    "uuid": "StringType",
}


def spark_fields(schema: str) -> StructType:
    """The fields of a record's schema as Spark's types."""
    from pyspark.sql.types import StructType

    try:
        told = json.loads(schema)
        if told["type"] != "record":
            raise ConfigError("the Avro schema of 'body' must be a record's")
        fields = told["fields"]
        _parsed(schema)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"the Avro schema of 'body' cannot be read: {error}") from None
    found = StructType()
    for field in fields:
        found.add(field["name"], _type(field["type"]))
    return found


def _type(kind: Any) -> DataType:
    from pyspark.sql import types
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StringType, StructType

    if isinstance(kind, list):
        others = [each for each in kind if each != "null"]
        if len(others) != 1:
            raise ConfigError("a union in the Avro schema of 'body' may be of null and one other type")
        return _type(others[0])
    if isinstance(kind, str):
        if kind not in _PLAIN:
            raise ConfigError(
                f"the Avro schema of 'body' names a type {kind!r}, which must be written where it is used"
            )
        return _plain(types, _PLAIN[kind])
    logical = kind.get("logicalType")
    if logical == "decimal":
        return DecimalType(kind["precision"], kind.get("scale", 0))
    if logical in _LOGICAL:
        return _plain(types, _LOGICAL[logical])
    if kind["type"] == "array":
        return ArrayType(_type(kind["items"]))
    if kind["type"] == "map":
        return MapType(StringType(), _type(kind["values"]))
    if kind["type"] == "record":
        inner = StructType()
        for field in kind["fields"]:
            inner.add(field["name"], _type(field["type"]))
        return inner
    return _type(kind["type"])


def _plain(types: Any, name: str) -> DataType:
    found: DataType = getattr(types, name)()
    return found


@cache
def _parsed(schema: str) -> Any:
    try:
        from fastavro.schema import parse_schema
    except ImportError:
        raise ConfigError("bodies in Avro need: pip install 'polybus[pipelines]'") from None
    return parse_schema(json.loads(schema))


def record_of(body: bytes, schema: str) -> dict[str, Any] | None:
    """The record that a body holds, whole; None where it holds none, or more."""
    from fastavro import schemaless_reader

    source = io.BytesIO(body)
    try:
        found = schemaless_reader(source, _parsed(schema), None)
    except Exception:  # what a reader does with bytes of another form is not bounded by its documentation
        return None
    return found if isinstance(found, dict) and source.tell() == len(body) else None


def decoded(frame: DataFrame, schema: str, prefix: str, reason: str, text: str) -> DataFrame:
    """The frame with a column for each field, and the reason where a body does not fit."""
    from pyspark.sql import functions as F  # noqa: N812

    fields = spark_fields(schema)

    def take_apart(body: bytes | None) -> dict[str, Any] | None:
        return None if body is None else record_of(bytes(body), schema)

    taken = frame.withColumn("_record", F.udf(take_apart, fields)("body"))
    columns = {f"{prefix}{field.name}": F.col("_record").getField(field.name) for field in fields}
    return taken.withColumns({**columns, reason: F.when(F.col("_record").isNull(), text)}).drop("_record")
