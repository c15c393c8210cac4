"""The lines of docs/pipelines.md that read a table, run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.pipelines.lakes import opened, rows, write

DOCS = Path(__file__).parents[3] / "docs" / "pipelines.md"


def block(first: str) -> str:
    """The block of Python whose first line begins so."""
    (found,) = [
        each for each in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL) if each.startswith(first)
    ]
    return str(found)


@pytest.mark.parametrize(
    ("first", "form"), [("# Parquet", "parquet"), ("# Delta", "delta"), ("# Iceberg", "iceberg")]
)
def test_a_table_is_read_with_arrow_duckdb_and_polars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, form: str
) -> None:
    lake = opened(tmp_path / "lake" / form, form)
    write(lake, 0, rows(0, 20))
    write(lake, 1, rows(20, 4))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    names: dict[str, Any] = {}
    exec(block(first), names)
    for name in ("by_arrow", "by_duckdb", "by_polars"):
        column = names[name]["position"]
        assert sorted(column.to_list() if name == "by_polars" else column.to_pylist()) == list(range(24)), name
        assert "partition" in (names[name].columns if name == "by_polars" else names[name].column_names)
