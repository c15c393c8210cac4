"""Rows on their way to the bus: what is refused, what their ids are, how they are cut."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, IntegerType, MapType, StringType, StructField, StructType

from polybus.errors import ConfigError
from polybus.limits import SPARK_STAGE_BYTES
from polybus.spark.rows import ContentIds, check_schema, faults, row_text, with_ids
from polybus.spark.staging import encoded, slices


def _schema(**kinds: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def _batch(**columns: list[object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (_schema(subject=StringType()), "'body' is missing"),
        (_schema(body=IntegerType()), "binary or string"),
        (_schema(body=BinaryType(), colour=StringType()), "no column colour"),
        (_schema(body=BinaryType(), message_id=IntegerType()), "cast it"),
        (_schema(body=BinaryType(), properties=StringType()), "must be a map"),
    ],
)
def test_columns_that_cannot_be_a_message_are_refused_before_anything_runs(schema: StructType, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        check_schema(schema, False, ())


def test_good_columns_pass() -> None:
    check_schema(_schema(body=StringType(), properties=MapType(StringType(), StringType())), False, ("body",))
    check_schema(_schema(body=StringType(), colour=IntegerType()), True, ("colour",))
    with pytest.raises(ConfigError, match="idColumns"):
        check_schema(_schema(body=StringType()), False, ("number",))


def test_each_rule_finds_its_row() -> None:
    batch = _batch(
        body=[b"a", None, b"c", b"d", b"e", b"f"],
        session_id=["s", "s", "x" * 129, "s", "s", None],
        partition_key=["s", None, None, "other", None, "k"],
        time_to_live=[1, 1, 1, 1, 0, None],
    )
    found = faults(batch, needs_id=False)
    assert set(found) == {1, 2, 3, 4}
    assert "null" in found[1]
    assert "128" in found[2]
    assert "same" in found[3]
    assert "greater than 0" in found[4]


def test_an_id_of_ones_own_must_be_there() -> None:
    batch = _batch(body=[b"a", b"b"], message_id=["1", None])
    assert set(faults(batch, needs_id=True)) == {1}
    assert faults(batch, needs_id=False) == {}


def test_ids_from_columns_depend_on_these_only() -> None:
    ids = [
        with_ids(_batch(body=[body], number=[7]), ("number",)).column("message_id")[0].as_py()
        for body in (b"a", b"b")
    ]
    assert ids[0] == ids[1]
    assert with_ids(_batch(body=[b"a"], number=[8]), ("number",)).column("message_id")[0].as_py() != ids[0]


rows = st.lists(st.tuples(st.binary(max_size=3), st.none() | st.text(max_size=2)), max_size=30)


@given(rows, st.integers())
def test_ids_from_content_do_not_depend_on_the_order_of_rows(
    found: list[tuple[bytes, str | None]], seed: int
) -> None:
    turned = list(found)
    random.Random(seed).shuffle(turned)
    assert sorted(_content_ids(found)) == sorted(_content_ids(turned))
    assert len(set(_content_ids(found))) == len(found)


def _content_ids(found: list[tuple[bytes, str | None]]) -> list[str]:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([row[0] for row in found], pa.binary()), pa.array([row[1] for row in found], pa.string())],
        names=["body", "subject"],
    )
    ids: list[str] = ContentIds("q:0:1").put(batch).column("message_id").to_pylist()
    return ids


def test_a_row_is_shown_and_cut_off() -> None:
    batch = _batch(body=[b"\xff\x00" * 10], subject=["s"])
    assert '"subject": "s"' in row_text(batch, 0)
    assert len(row_text(batch, 0, 20)) == 20


@pytest.mark.parametrize(("count", "megabytes"), [(1, 1), (8, 1), (9, 1), (20, 3), (2, 9)])
def test_large_rows_leave_in_requests_of_their_own(count: int, megabytes: int) -> None:
    batch = _batch(body=[bytes(megabytes << 20)] * count)
    parts = list(slices(batch))
    assert sum(part.num_rows for part in parts) == count
    assert all(part.nbytes <= SPARK_STAGE_BYTES + 4096 or part.num_rows == 1 for part in parts)


def test_a_slice_is_sent_without_its_neighbours() -> None:
    batch = _batch(body=[bytes(1000)] * 1000)
    assert len(encoded(batch.slice(10, 1))) < 5_000
