"""Arrow tables as Avro files, and back. Spark reads them with its own (unregistered) format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import pyarrow as pa

from polybus.errors import ConfigError

SPARK_FORMAT: Final = "org.apache.spark.sql.avro.AvroFileFormat"
"""Avro's classes are in Spark's own jar; only the short name is not registered."""


_PLAIN: Final = {
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
}


def avro_type(kind: Any, name: str) -> Any:
    """`name` tells records apart, which Avro wants to be called differently."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": "timestamp-micros"}
    if pa.types.is_date32(kind):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_map(kind):
        return {"type": "map", "values": ["null", avro_type(kind.item_type, f"{name}_value")]}
    if pa.types.is_list(kind):
        return {"type": "array", "items": ["null", avro_type(kind.value_type, f"{name}_item")]}
    if pa.types.is_struct(kind):
        return {"type": "record", "name": name, "fields": _avro_fields(kind, f"{name}_")}
    raise ConfigError(f"a column of type {kind} cannot be written as Avro")


def _avro_fields(fields: Any, prefix: str = "") -> list[dict[str, Any]]:
    return [
        {"name": field.name, "type": ["null", avro_type(field.type, f"{prefix}{field.name}")], "default": None}
        for field in fields
    ]


def avro_schema(schema: Any) -> dict[str, Any]:
    return {"type": "record", "name": "message", "namespace": "polybus", "fields": _avro_fields(schema)}


class AvroWriter:
    def __init__(self, sink: BinaryIO, schema: Any) -> None:
        from fastavro.schema import parse_schema
        from fastavro.write import Writer

        self._writer = Writer(sink, parse_schema(avro_schema(schema)), codec="deflate")

    def write(self, table: Any) -> None:
        for batch in table.to_batches():
            for row in batch.to_pylist(maps_as_pydicts="strict"):
                self._writer.write(row)

    def close(self) -> None:
        self._writer.flush()


def arrow_schema_of(source: BinaryIO) -> Any:
    """The Arrow schema of a file that `AvroWriter` wrote."""
    from fastavro import reader

    fields = reader(source).writer_schema["fields"]
    return pa.schema([(each["name"], _arrow_type(each["type"][1])) for each in fields])


def _arrow_type(kind: Any) -> Any:
    if isinstance(kind, str):
        plain = {"string": pa.string(), "bytes": pa.binary(), "int": pa.int32(), "long": pa.int64()}
        return {**plain, "float": pa.float32(), "double": pa.float64(), "boolean": pa.bool_()}[kind]
    logical = kind.get("logicalType")
    if logical == "timestamp-micros":
        return pa.timestamp("us", tz="UTC")
    if logical == "date":
        return pa.date32()
    if logical == "decimal":
        return pa.decimal128(kind["precision"], kind["scale"])
    if kind["type"] == "map":
        return pa.map_(pa.string(), _arrow_type(kind["values"][1]))
    if kind["type"] == "array":
        return pa.list_(_arrow_type(kind["items"][1]))
    return pa.struct([(each["name"], _arrow_type(each["type"][1])) for each in kind["fields"]])


def read_avro(source: BinaryIO, schema: Any) -> Iterator[Any]:
    """A file's rows as Arrow batches of the schema that it was written with."""
    from fastavro import reader

    rows: list[dict[str, Any]] = []
    for row in reader(source):
        rows.append(row)
        if len(rows) == 5_000:
            yield _batch(rows, schema)
            rows = []
    if rows:
        yield _batch(rows, schema)


def _batch(rows: list[Any], schema: Any) -> Any:
    return pa.RecordBatch.from_pylist(rows, schema)
