"""The Arrow schema is the one that Spark wants, to the last detail, and the bus has every column."""

from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from polybus.gateway.bulk.rows import WRITE_COLUMNS
from polybus.message.columns import READ_COLUMNS
from polybus.spark.columns import COLUMNS, ON_REQUEST, WRITTEN, arrow_schema, chosen_columns, spark_schema

EVERY = (*COLUMNS, *ON_REQUEST)


@pytest.mark.parametrize("columns", [tuple(COLUMNS), EVERY, ("body",), ("properties", "partition")])
def test_spark_takes_our_arrow_schema(columns: tuple[str, ...]) -> None:
    assert to_arrow_schema(spark_schema(columns), timezone="UTC").equals(arrow_schema(columns))


def test_the_bus_has_every_column() -> None:
    assert set(EVERY) == set(READ_COLUMNS)
    assert set(WRITTEN) == set(WRITE_COLUMNS) - {"body_base64"}


def test_a_read_of_several_states_says_which_is_which() -> None:
    assert "state" not in chosen_columns(None, body=True, properties=True, state=False)
    assert chosen_columns(None, body=True, properties=True, state=True)[-1] == "state"
