"""Where rows lie and how files are called."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.pipelines.layout import HIVE, Layout, batch_id, file_name, levels_in
from tests.unit.pipelines.lakes import rows


def test_rows_are_split_by_entity_date_hour_and_partition() -> None:
    layout = Layout(HIVE, "orders")
    parts = {
        layout.folder_of(values): part.column("position").to_pylist() for values, part in layout.split(rows(0, 20))
    }
    assert parts == {
        "entity=orders/date=2026-01-31/hour=11/partition=0": [0, 2, 4, 6, 8],
        "entity=orders/date=2026-01-31/hour=11/partition=1": [1, 3, 5, 7, 9],
        "entity=orders/date=2026-01-31/hour=12/partition=0": [10, 12, 14, 16, 18],
        "entity=orders/date=2026-01-31/hour=12/partition=1": [11, 13, 15, 17, 19],
    }


def test_a_flat_layout_has_no_folders() -> None:
    layout = Layout((), "orders")
    ((values, part),) = layout.split(rows(0, 5))
    assert (layout.folder_of(values), part.num_rows) == ("", 5)
    assert Layout(HIVE, "q").split(rows(0, 0)) == []


def test_columns_that_folders_tell_are_not_in_files_unless_files_are_whole() -> None:
    names = ["partition", "position", "body"]
    assert Layout(HIVE, "q").stored(names, whole=False) == ["position", "body"]
    assert Layout(HIVE, "q").stored(names, whole=True) == names
    assert Layout(("date",), "q").stored(names, whole=False) == names


@given(st.text(st.characters(exclude_categories=("Cs",)), min_size=1))  # type: ignore[arg-type]
def test_any_entity_is_a_folder_and_read_back(entity: str) -> None:
    folder = Layout(("entity",), entity).folder_of((entity,))
    assert "/" not in folder
    assert levels_in(f"{folder}/file.parquet") == {"entity": entity}


def test_names_say_query_batch_and_task() -> None:
    identity = batch_id("1f0c2a9e-1111-2222", 41)
    assert identity == "batch-1f0c2a9e-00000041"
    assert file_name(identity, 3, 0, "parquet") == "batch-1f0c2a9e-00000041-task-00003.parquet"
    assert file_name(identity, 3, 2, "avro") == "batch-1f0c2a9e-00000041-task-00003-2.avro"


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_the_hour_is_that_of_utc_whatever_the_session_shows(zone: str) -> None:
    batch = rows(10, 1).select(["enqueued_time"])
    shown = batch.cast(pa.schema([("enqueued_time", pa.timestamp("us", tz=zone))]))
    ((values, _),) = Layout(("date", "hour"), "q").split(shown)
    assert values == ("2026-01-31", "12")
