"""Every kind of table takes a batch once, and hides what is not in; what a crash leaves is made good."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polybus.errors import ConfigError
from polybus.pipelines import file_writing, lake_files, manifests
from polybus.pipelines.avro import avro_schema
from polybus.pipelines.file_writing import StagedFile, TaskFiles
from polybus.pipelines.lake import CheckpointBehind, Lake
from polybus.pipelines.layout import HIVE, Layout
from polybus.pipelines.manifests import LakeFile, Manifest, ManifestFolder, manifest_from
from tests.unit.pipelines.lakes import FORMATS, QUERY, SCHEMA, avro_table, opened, rows, staging, write


def positions(lake: Lake) -> list[int]:
    """What is in, by the files that count."""
    found: list[int] = []
    for path in lake.files():
        table = avro_table(path) if lake.suffix == "avro" else pa.parquet.read_table(path)
        found += table.column("position").to_pylist()
    return sorted(found)


def plain(root: Path) -> list[int]:
    """What a reader sees that knows nothing of manifests."""
    if not any(root.rglob("*.parquet")):
        return []
    arrow = ds.dataset(str(root), format="parquet", partitioning="hive").to_table().column("position").to_pylist()
    glob = duckdb.sql(f"select position from read_parquet('{root}/**/*.parquet')").fetchall()
    assert sorted(arrow) == sorted(row[0] for row in glob)
    return sorted(arrow)


@pytest.mark.parametrize("levels", [HIVE, (), ("date",)])
@pytest.mark.parametrize("form", FORMATS)
def test_a_batch_is_in_once(tmp_path: Path, form: str, levels: tuple[str, ...]) -> None:
    lake = opened(tmp_path / "lake", form, levels, entity="orders/$DeadLetterQueue é")
    assert write(lake, 0, rows(0, 10), rows(10, 10))
    assert write(lake, 1, rows(20, 10))
    again = opened(tmp_path / "lake", form, levels, entity="orders/$DeadLetterQueue é")
    assert not write(again, 1, rows(20, 10))
    assert positions(again) == list(range(30))
    assert write(again, 2, rows(30, 1))
    assert positions(again) == list(range(31))
    assert not any((tmp_path / "lake" / "_staging").iterdir())


@pytest.mark.parametrize("form", FORMATS)
def test_a_checkpoint_that_was_put_back_is_refused_before_anything_is_lost(tmp_path: Path, form: str) -> None:
    lake = opened(tmp_path / "lake", form)
    write(lake, 0, rows(0, 4), ends="[4]")
    write(lake, 1, rows(4, 4), ends="[8]")
    again = opened(tmp_path / "lake", form)
    with pytest.raises(CheckpointBehind, match="has batch 1 of this query"):
        write(again, 0, rows(0, 4), ends="[4]")
    with pytest.raises(CheckpointBehind, match="with a new checkpoint"):
        write(again, 1, rows(4, 9), ends="[13]")
    assert not write(again, 1, rows(4, 4), ends="[8]")
    assert positions(again) == list(range(8))


@pytest.mark.parametrize("form", FORMATS)
def test_a_query_with_another_checkpoint_overwrites_nothing(tmp_path: Path, form: str) -> None:
    lake = opened(tmp_path / "lake", form)
    write(lake, 0, rows(0, 4))
    write(lake, 0, rows(4, 4), query="2f0c2a9e-other")
    assert positions(lake) == list(range(8))


def test_delta_and_iceberg_are_whole_tables_for_their_own_readers(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    for form in ("delta", "iceberg"):
        write(opened(tmp_path / form, form), 0, rows(0, 20))
    delta = DeltaTable(str(tmp_path / "delta")).to_pyarrow_dataset().to_table()
    iceberg = opened(tmp_path / "iceberg", "iceberg").table().scan().to_arrow()  # type: ignore[attr-defined]
    assert set(delta.column_names) == {*SCHEMA.names, "entity", "date", "hour"}
    assert iceberg.column_names == SCHEMA.names
    for table in (delta, iceberg):
        found = sorted(
            zip(*(table.column(name).to_pylist() for name in ("position", "partition", "body")), strict=True)
        )
        assert found == [(n, n % 2, f"message {n}".encode()) for n in range(20)]
        assert dict(table.slice(0, 1).column("properties").to_pylist()[0])["number"].isdigit()
    assert set(delta.column("hour").to_pylist()) == {11, 12}


@pytest.mark.parametrize("levels", [("hour",), ("partition", "hour"), ("date", "hour"), ("entity",)])
def test_an_iceberg_table_takes_a_batch_of_two_days_in_any_layout(tmp_path: Path, levels: tuple[str, ...]) -> None:
    lake = opened(tmp_path / "lake", "iceberg", levels)
    write(lake, 0, rows(0, 20, seconds=21_600))
    assert positions(lake) == list(range(20))


def test_an_iceberg_snapshot_names_its_batch(tmp_path: Path) -> None:
    lake = opened(tmp_path / "lake", "iceberg")
    write(lake, 7, rows(0, 2))
    summary = lake.table().current_snapshot().summary  # type: ignore[attr-defined]
    assert (summary["polybus.query"], summary["polybus.batch"]) == (QUERY, "7")


class Fall(Exception):
    """The process dies here."""


def falling(monkeypatch: pytest.MonkeyPatch, after: int) -> list[str]:
    """Lets so many changes of the file system happen, and then no more."""
    done: list[str] = []

    def guarded(owner: Any, name: str) -> None:
        work = getattr(owner, name)

        def wrapped(*words: Any, **more: Any) -> Any:
            if len(done) >= after:
                raise Fall
            done.append(name)
            return work(*words, **more)

        monkeypatch.setattr(owner, name, wrapped)

    for name in ("rename", "replace", "unlink"):
        guarded(Path, name)
    guarded(shutil, "rmtree")
    return done


@pytest.mark.parametrize("after", range(8))
def test_whatever_moment_a_capture_dies_at_its_batch_is_in_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    lake = opened(tmp_path / "lake", "parquet")
    write(lake, 0, rows(0, 10))
    with monkeypatch.context() as patch:
        falling(patch, after)
        try:
            write(lake, 1, rows(10, 10), rows(20, 10))
            fell = False
        except Fall:
            fell = True
    assert fell == (after < 7), "the test must reach every step"
    # Whoever reads now sees the batch whole or not at all.
    assert positions(lake) in (list(range(10)), list(range(30)))
    again = opened(tmp_path / "lake", "parquet")
    again.recover(QUERY)
    write(again, 1, rows(10, 20))
    assert positions(again) == list(range(30))
    assert plain(tmp_path / "lake") == list(range(30))


def test_nothing_is_seen_of_a_batch_that_is_being_written(tmp_path: Path) -> None:
    lake = opened(tmp_path / "lake", "parquet")
    write(lake, 0, rows(0, 4))
    folder = staging(lake, "batch-1f0c2a9e-00000001")
    files = TaskFiles(folder, lake.layout, "parquet", False, 0, "0")
    files.write(rows(4, 4))
    files.close()
    assert positions(lake) == plain(tmp_path / "lake") == [0, 1, 2, 3]
    assert lake_files(tmp_path / "lake") == lake.files()


def test_a_batch_that_was_committed_is_finished_when_it_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = opened(tmp_path / "lake", "parquet", ())
    with monkeypatch.context() as patch:
        patch.setattr(manifests, "move", lambda *words: (_ for _ in ()).throw(Fall()))
        with pytest.raises(Fall):
            write(lake, 0, rows(0, 4))
    assert plain(tmp_path / "lake") == []
    assert not write(lake, 0, rows(0, 4))
    assert positions(lake) == plain(tmp_path / "lake") == [0, 1, 2, 3]


def test_recovery_leaves_the_work_of_others_alone(tmp_path: Path) -> None:
    lake = opened(tmp_path / "lake", "parquet")
    other = staging(lake, "compact-12345678")
    own = staging(lake, "batch-1f0c2a9e-00000009")
    lake.recover(QUERY)
    assert other.exists()
    assert not own.exists()


def test_a_manifest_is_written_as_it_is_read() -> None:
    import json

    manifest = Manifest("a", "parquet", {"q": (3, "[1]")}, [LakeFile("x/y", "0.part", 3, 99, 1, 2)], ["b"])
    assert manifest_from(json.dumps(manifest.record()), "m") == manifest
    assert manifest.rows == 3


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 1}', '{"version": 2}'])
def test_what_is_no_manifest_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match=r"m: is (no|a) manifest"):
        manifest_from(text, "m")


def test_a_file_that_is_gone_is_told(tmp_path: Path) -> None:
    folder = ManifestFolder(tmp_path)
    manifest = Manifest("a", "parquet", {}, [LakeFile("x", "0.part", 1, 1)])
    with pytest.raises(ConfigError, match="somebody else writes here"):
        folder.commit(manifest)
    assert folder.manifests() == []
    with pytest.raises(ConfigError, match="is named by a manifest and not there"):
        folder.finish(manifest)


def test_a_task_with_more_folders_than_open_files_makes_further_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_writing, "CAPTURE_OPEN_FILES", 1)
    lake = opened(tmp_path / "lake", "parquet", ("partition",))
    write(lake, 0, rows(0, 4))
    parts = TaskFiles(staging(lake, "x"), lake.layout, "parquet", False, 0, "0")
    for number in range(4):
        parts.write(rows(number, 1))
    told = parts.close()
    assert [(each["folder"], each["part"], each["rows"]) for each in told] == [
        ("partition=0", 0, 1),
        ("partition=1", 0, 1),
        ("partition=0", 1, 1),
        ("partition=1", 1, 1),
    ]
    assert len({each["staged"] for each in told}) == 4


def test_small_batches_become_one_row_group(tmp_path: Path) -> None:
    files = TaskFiles(tmp_path, Layout((), ""), "parquet", False, 0, "0")
    for number in range(50):
        files.write(rows(number, 1))
    (told,) = files.close()
    found = pa.parquet.ParquetFile(tmp_path / told["staged"])
    assert (found.num_row_groups, found.metadata.num_rows, told["rows"]) == (1, 50, 50)
    assert told["last_time"] - told["first_time"] == 49 * 60 * 1_000_000


def test_rows_in_memory_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writing, "CAPTURE_BUFFER_BYTES", 1)
    files = TaskFiles(tmp_path, Layout((), ""), "parquet", False, 0, "0")
    for number in range(3):
        files.write(rows(number, 1))
    (told,) = files.close()
    assert pa.parquet.ParquetFile(tmp_path / told["staged"]).num_row_groups == 3


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.none() | st.text(), st.none() | st.binary(), st.dictionaries(st.text(), st.text()))))
def test_avro_is_read_back_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, values: list[Any]) -> None:
    schema = pa.schema(
        [("subject", pa.string()), ("body", pa.binary()), ("properties", pa.map_(pa.string(), pa.string()))]
    )
    table = [{"subject": s, "body": b, "properties": list(p.items())} for s, b, p in values]
    path = tmp_path_factory.mktemp("avro") / "x.part"
    file = StagedFile(path, schema, "avro", "", 0)
    file.add(pa.RecordBatch.from_pylist(table, schema), None)
    file.close()
    assert avro_table(path).schema == schema
    assert avro_table(path).to_pylist() == table


def test_a_type_that_avro_has_not_is_told() -> None:
    with pytest.raises(ConfigError, match="cannot be written as Avro"):
        avro_schema(pa.schema([("x", pa.duration("s"))]))


def test_a_list_of_files_is_read_with_the_columns_of_the_folders(tmp_path: Path) -> None:
    write(opened(tmp_path, "parquet", entity="a/b"), 0, rows(0, 20))
    files = lake_files(tmp_path)
    arrow = ds.dataset(files, format="parquet", partitioning="hive").to_table()
    duck = duckdb.read_parquet(files, hive_partitioning=True).select("entity, hour, partition").fetchall()
    assert set(duck) == {("a/b", hour, partition) for hour in (11, 12) for partition in (0, 1)}
    assert set(arrow.column("entity").to_pylist()) == {"a/b"}
    assert set(arrow.column("partition").to_pylist()) == {0, 1}
    assert lake_files(tmp_path / "nothing") == []
