"""What a file may say of bodies, and Avro's types as Spark's; the taking apart itself is tested with Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polybus.errors import ConfigError
from polybus.pipelines.avro_bodies import record_of, spark_fields
from polybus.pipelines.declaration import parse

HEAD = "bus: {connectionString: 'Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b'}\ncheckpoints: c\n"


def capture(body: str, folder: Path) -> object:
    text = f"{HEAD}pipelines: [{{name: a, kind: capture, from: q, to: {{path: lake}}, body: {body}}}]"
    return parse(text, "f.yml", folder).pipelines[0]


@pytest.mark.parametrize(
    "body", ["json", "{as: json, schema: 'id BIGINT'}", "text", "cloudevents", "{as: json, quarantine: bad}"]
)
def test_what_is_taken(tmp_path: Path, body: str) -> None:
    assert capture(body, tmp_path)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("xml", "json, avro, text, cloudevents"),
        ("avro", "Avro schema"),
        ("{as: text, schema: 'a INT'}", "text has no schema"),
        ("{as: json, schemaFile: nowhere.ddl}", "a file that can be read"),
        ("{as: json, schema: 'a INT', schemaFile: x}", "either 'schema' or 'schemaFile'"),
        ("{as: json, scheme: x}", "scheme"),
    ],
)
def test_what_is_refused(tmp_path: Path, body: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        capture(body, tmp_path)


def test_avros_types_as_sparks() -> None:
    fields = [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": "double"}},
        {"name": "inner", "type": {"type": "record", "name": "i", "fields": [{"name": "x", "type": "int"}]}},
    ]
    found = spark_fields(json.dumps({"type": "record", "name": "r", "fields": fields}))
    assert found.simpleString() == (
        "struct<id:bigint,name:string,at:timestamp,price:decimal(9,2),tags:array<string>,more:map<string,double>,"
        "inner:struct<x:int>>"
    )


@pytest.mark.parametrize("schema", ["{", '"string"', '{"type": "record", "name": "r"}', '{"type": "int"}'])
def test_a_schema_that_cannot_be_read_is_told(schema: str) -> None:
    with pytest.raises(ConfigError, match="Avro schema of 'body'"):
        spark_fields(schema)


def test_a_body_that_is_cut_off_or_has_more_is_no_record() -> None:
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": "string"}]})
    assert record_of(b"\x06abc", schema) == {"a": "abc"}
    assert record_of(b"\x06ab", schema) is None
    assert record_of(b"\x06abcd", schema) is None
