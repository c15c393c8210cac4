"""Declarations of enriching pipelines: names for SQL, tables, streams, and what would never work."""

from __future__ import annotations

from pathlib import Path

import pytest

from polybus.errors import ConfigError
from polybus.pipelines.declaration import parse
from polybus.pipelines.enrich import EnrichKind, mentions

HEAD = """
bus: {connectionStringEnv: BUS}
checkpoints: state
pipelines:
  - name: e
    kind: enrich
    from: orders
    to: enriched
%s
"""
SQL = "    sql: select m.body from messages m"


def made(text: str, folder: Path) -> EnrichKind:
    (kind,) = parse(HEAD % text, "p.yml", folder).pipelines
    assert isinstance(kind, EnrichKind)
    return kind


def test_tables_and_streams_get_names(tmp_path: Path) -> None:
    kind = made(
        """    sql: select m.body from messages m join customers join rates join payments
    tables:
      customers: lake/customers
      rates: {path: rates.csv, format: csv, options: {header: true}, schema: "a string"}
    streams:
      payments: {from: payments, watermark: 5m}
    watermark: 10m
    unknownColumns: properties""",
        tmp_path,
    )
    assert kind.describe() == "orders with customers, rates, stream payments to enriched"
    assert [each.entity for each in kind.entities()] == ["orders", "enriched", "payments"]
    assert kind.check() == []
    assert kind._tables["customers"].path == str(tmp_path / "lake" / "customers")
    assert kind._tables["rates"].options == {"header": "true"}


def test_names_that_the_query_does_not_use_are_remarked(tmp_path: Path) -> None:
    kind = made(SQL + "\n    tables: {customers: x}", tmp_path)
    assert kind.check() == ["e: the query does not use customers"]
    assert kind.describe() == "orders with customers to enriched"


def test_a_query_that_reads_no_messages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not name messages"):
        made("    sql: select body from customers\n    tables: {customers: x}", tmp_path).check()


@pytest.mark.parametrize(
    ("sql", "name", "there"),
    [
        ("select * from Messages", "messages", True),
        ("select messages.body", "messages", True),
        ("select my_messages", "messages", False),
        ("select messages2", "messages", False),
    ],
)
def test_names_are_found_as_words(sql: str, name: str, there: bool) -> None:
    assert mentions(sql, name) is there


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "sql: is missing"),
        (SQL + "\n    tables: {messages: x}", "tables.messages"),
        (SQL + "\n    tables: {a-b: x}", "tables.a-b"),
        (SQL + "\n    tables: {a: x, A: y}", "tables.A"),
        (SQL + "\n    tables: {a: {format: parquet}}", "tables.a.path: is missing"),
        (SQL + "\n    tables: {a: {path: x, format: excel}}", "tables.a.format"),
        (SQL + "\n    tables: {a: {path: x, other: 1}}", "tables.a.other"),
        (SQL + "\n    streams: {s: payments}", "streams.s.watermark: is missing"),
        (SQL + "\n    streams: {s: {from: p, watermark: 5m}}", "watermark: is missing"),
        (SQL + "\n    tables: {s: x}\n    streams: {s: {from: p, watermark: 5m}}\n    watermark: 5m", "streams.s"),
        (SQL + "\n    unknownColumns: maybe", "unknownColumns"),
    ],
)
def test_a_fault_says_where_it_is(tmp_path: Path, text: str, where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        made(text, tmp_path)
    assert where in str(caught.value)
