"""Arrow tables as Avro files, and back. Spark reads them with its own (unregistered) format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa

from polybus.errors import ConfigError

SPARK_FORMAT: Final = "org.apache.spark.sql.avro.AvroFileFormat"
"""Avro's classes are in Spark's own jar; only the short name is not registered."""


def avro_type(kind: Any) -> Any:
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": "timestamp-micros"}
    if pa.types.is_map(kind):
        return {"type": "map", "values": ["null", "string"]}
    plain = {pa.string(): "string", pa.binary(): "bytes", pa.int32(): "int", pa.int64(): "long"}
    plain |= {pa.float64(): "double", pa.bool_(): "boolean", pa.large_string(): "string", pa.large_binary(): "bytes"}
    if kind not in plain:
        raise ConfigError(f"a column of type {kind} cannot be written as Avro")
    return plain[kind]


def avro_schema(schema: Any) -> dict[str, Any]:
    fields = [{"name": field.name, "type": ["null", avro_type(field.type)], "default": None} for field in schema]
    return {"type": "record", "name": "message", "namespace": "polybus", "fields": fields}


class AvroWriter:
    def __init__(self, sink: BinaryIO, schema: Any) -> None:
        from fastavro.schema import parse_schema
        from fastavro.write import Writer

        self._maps = [field.name for field in schema if pa.types.is_map(field.type)]
        self._writer = Writer(sink, parse_schema(avro_schema(schema)), codec="deflate")

    def write(self, table: Any) -> None:
        for batch in table.to_batches():
            for row in batch.to_pylist():
                for name in self._maps:
                    row[name] = None if row[name] is None else dict(row[name])
                self._writer.write(row)

    def close(self) -> None:
        self._writer.flush()


def arrow_schema_of(path: Path) -> Any:
    """The Arrow schema of a file that `AvroWriter` wrote."""
    from fastavro import reader

    with path.open("rb") as source:
        fields = reader(source).writer_schema["fields"]
    return pa.schema([(each["name"], _arrow_type(each["type"][1])) for each in fields])


def _arrow_type(kind: Any) -> Any:
    if isinstance(kind, dict):
        return pa.map_(pa.string(), pa.string()) if kind["type"] == "map" else pa.timestamp("us", tz="UTC")
    plain = {"string": pa.string(), "bytes": pa.binary(), "int": pa.int32(), "long": pa.int64()}
    return {**plain, "double": pa.float64(), "boolean": pa.bool_()}[kind]


def read_avro(path: Path, schema: Any) -> Iterator[Any]:
    """A file's rows as Arrow batches of the schema that it was written with."""
    from fastavro import reader

    with path.open("rb") as source:
        rows: list[dict[str, Any]] = []
        for row in reader(source):
            rows.append(row)
            if len(rows) == 5_000:
                yield _batch(rows, schema)
                rows = []
        if rows:
            yield _batch(rows, schema)


def _batch(rows: list[Any], schema: Any) -> Any:
    maps = [field.name for field in schema if pa.types.is_map(field.type)]
    for row in rows:
        for name in maps:
            row[name] = None if row[name] is None else list(row[name].items())
    return pa.RecordBatch.from_pylist(rows, schema)
