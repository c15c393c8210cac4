"""Compaction of Iceberg tables: the same rows in fewer files, in one snapshot, whatever happens meanwhile."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Transaction

from polybus.errors import ConfigError
from polybus.limits import LAKE_COMMIT_TRIES
from polybus.pipelines.iceberg import IcebergLake, local_path
from polybus.pipelines.iceberg_compacting import Overtaken, compact_iceberg
from polybus.pipelines.lake import CheckpointBehind
from polybus.pipelines.layout import HIVE
from polybus.pipelines.merging import Compacted
from tests.unit.pipelines.lakes import opened, rows, write
from tests.unit.pipelines.test_lakes import Fall, falling, positions

LARGE = 1 << 30
LATER = 1e12


def iceberg(root: Path, levels: tuple[str, ...] = HIVE) -> IcebergLake:
    lake = opened(root, "iceberg", levels)
    assert isinstance(lake, IcebergLake)
    return lake


def filled(root: Path, batches: int = 4, levels: tuple[str, ...] = HIVE) -> IcebergLake:
    lake = iceberg(root, levels)
    for number in range(batches):
        write(lake, number, rows(number * 4, 4, seconds=1))
    return lake


def content(lake: IcebergLake, snapshot: int | None = None) -> Any:
    """Every row and column, by the table's own reader."""
    return lake.table().scan(snapshot_id=snapshot).to_arrow().sort_by("position")


def seen(lake: IcebergLake) -> list[int]:
    """Positions as three readers see them, who must agree."""
    own = content(lake).column("position").to_pylist()
    files = [str(path) for path in lake.files()]
    duck = duckdb.read_parquet(files).select("position").fetchall()
    assert own == sorted(row[0] for row in duck) == positions(lake)
    return list(own)


def left_over(lake: IcebergLake) -> set[Path]:
    """Data files that no snapshot names."""
    table = lake.table()
    named = {
        local_path(entry.data_file.file_path)
        for snapshot in table.snapshots()
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
    }
    return set(Path(str(lake.root)).rglob("*.parquet")) - named


def before_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], times: int = 1) -> None:
    """Something happens between what a compaction has seen and its commit."""
    commit = Transaction.commit_transaction
    acts = [act] * times

    def late(self: Transaction) -> Any:
        if acts:
            todo = acts.pop()
            with monkeypatch.context() as patch:
                patch.setattr(Transaction, "commit_transaction", commit)
                todo()
        return commit(self)

    monkeypatch.setattr(Transaction, "commit_transaction", late)


@pytest.mark.parametrize(("levels", "files"), [(HIVE, 4), (("date", "partition"), 2), (("date",), 1), ((), 1)])
def test_the_rows_are_the_same_in_fewer_files_and_one_more_snapshot(
    tmp_path: Path, levels: tuple[str, ...], files: int
) -> None:
    lake = filled(tmp_path / "lake", levels=levels)
    before, count = content(lake), len(lake.files())
    old = lake.table().current_snapshot()
    assert compact_iceberg(lake, LARGE, LATER) == Compacted(count, files, 16)
    assert len(lake.files()) == files
    assert content(lake).equals(before)
    assert seen(lake) == list(range(16))
    new = lake.table().current_snapshot()
    assert new.parent_snapshot_id == old.snapshot_id
    assert new.summary["polybus.compaction"].startswith("compact-")
    assert (new.summary["added-data-files"], new.summary["total-records"]) == (str(files), "16")
    # Whoever reads by the snapshot before finds everything as well.
    assert content(lake, old.snapshot_id).equals(before)
    assert left_over(lake) == set()
    assert not list(Path(f"{lake.root}/_staging").glob("compact-*"))


def test_rows_stay_in_the_order_of_their_files(tmp_path: Path) -> None:
    lake = filled(tmp_path, levels=())
    compact_iceberg(lake, LARGE, LATER)
    (path,) = lake.files()
    assert pq.read_table(path).column("position").to_pylist() == list(range(16))


def test_a_reader_that_has_planned_before_reads_on(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    scan = lake.table().scan()
    planned = [task.file.file_path for task in scan.plan_files()]
    compact_iceberg(lake, LARGE, LATER)
    assert sorted(pq.ParquetFile(path).metadata.num_rows for path in planned) == [1] * 4 + [2] * 6
    assert sorted(scan.to_arrow().column("position").to_pylist()) == list(range(16))


def test_a_batch_that_was_compacted_is_still_known(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    compact_iceberg(lake, LARGE, LATER)
    again = iceberg(tmp_path)
    assert not write(again, 3, rows(12, 4))
    with pytest.raises(CheckpointBehind):
        write(again, 0, rows(0, 4))
    assert write(again, 4, rows(16, 4, seconds=1))
    compact_iceberg(again, LARGE, LATER)
    assert not write(again, 4, rows(16, 4))
    assert seen(again) == list(range(20))


def test_compacting_again_changes_nothing(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    compact_iceberg(lake, LARGE, LATER)
    snapshot, files = lake.table().current_snapshot(), lake.files()
    assert compact_iceberg(lake, LARGE, LATER) == Compacted(4, 4, 0)
    assert (lake.table().current_snapshot(), lake.files()) == (snapshot, files)


def test_young_files_and_large_ones_are_left_alone(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    files = lake.files()
    assert compact_iceberg(lake, LARGE, time.time() - 3_600) == Compacted(10, 10, 0)
    assert compact_iceberg(lake, 1, LATER) == Compacted(10, 10, 0)
    assert lake.files() == files


def test_where_nothing_was_captured_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert compact_iceberg(iceberg(tmp_path / "nowhere"), LARGE, LATER) == Compacted(0, 0, 0)
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "empty").mkdir()
    assert compact_iceberg(iceberg(tmp_path / "empty"), LARGE, LATER) == Compacted(0, 0, 0)


# Others at the same time


@pytest.mark.parametrize("times", [1, 3])
def test_a_batch_that_is_captured_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    lake = filled(tmp_path)
    numbers = iter(range(4, 9))

    def capture() -> None:
        number = next(numbers)
        write(iceberg(tmp_path), number, rows(number * 4, 4, seconds=1))

    before_commit(monkeypatch, capture, times)
    done = compact_iceberg(lake, LARGE, LATER)
    assert (done.files_before, done.rows) == (10, 16)
    assert seen(lake) == list(range(16 + 4 * times))
    assert left_over(lake) == set()
    assert not write(iceberg(tmp_path), 3 + times, rows(0, 4))


def test_a_capture_that_finds_the_table_compacted_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = filled(tmp_path)
    commit = Transaction.commit_transaction

    def late(self: Transaction) -> Any:
        monkeypatch.undo()
        compact_iceberg(iceberg(tmp_path), LARGE, LATER)
        return commit(self)

    monkeypatch.setattr(Transaction, "commit_transaction", late)
    assert write(lake, 4, rows(16, 4, seconds=1))
    assert seen(lake) == list(range(20))
    # Four large files, and the four that were on their way.
    assert len(lake.files()) in (6, 7, 8)


def test_what_somebody_else_has_deleted_meanwhile_stays_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = filled(tmp_path, levels=("partition",))
    before_commit(monkeypatch, lambda: iceberg(tmp_path).table().delete("position == 5"))
    with pytest.raises(Overtaken, match="nothing was changed"):
        compact_iceberg(lake, LARGE, LATER)
    expected = [number for number in range(16) if number != 5]
    assert content(lake).column("position").to_pylist() == expected
    assert left_over(lake) == set()
    # Next time what the other has written, with columns by number, is left as it is.
    compact_iceberg(lake, LARGE, LATER)
    assert content(lake).column("position").to_pylist() == expected


def test_where_others_commit_all_the_time_it_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = filled(tmp_path)
    tries: list[None] = []

    def refused(self: Transaction) -> Any:
        tries.append(None)
        raise CommitFailedException

    monkeypatch.setattr(Transaction, "commit_transaction", refused)
    with pytest.raises(ConfigError, match="others commit all the time"):
        compact_iceberg(lake, LARGE, LATER)
    monkeypatch.undo()
    assert len(tries) == LAKE_COMMIT_TRIES
    assert seen(lake) == list(range(16))
    assert left_over(lake) == set()


def test_a_table_is_compacted_by_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = filled(tmp_path)

    def second() -> None:
        with pytest.raises(ConfigError, match="is being compacted by somebody else"):
            compact_iceberg(iceberg(tmp_path), LARGE, LATER)

    before_commit(monkeypatch, second)
    compact_iceberg(lake, LARGE, LATER)
    assert seen(lake) == list(range(16))


def test_while_captures_and_compactions_go_on_a_reader_sees_whole_batches_once(tmp_path: Path) -> None:
    filled(tmp_path, batches=2, levels=("partition",))
    done = threading.Event()
    failed: list[BaseException] = []

    def capture() -> None:
        try:
            lake = iceberg(tmp_path, ("partition",))
            for number in range(2, 12):
                write(lake, number, rows(number * 4, 4, seconds=1))
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()

    def compact() -> None:
        try:
            while not done.is_set():
                compact_iceberg(iceberg(tmp_path, ("partition",)), LARGE, LATER)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for work in (capture, compact)]
    for thread in threads:
        thread.start()
    last = 8
    while not done.is_set():
        found = content(iceberg(tmp_path, ("partition",))).column("position").to_pylist()
        assert found == list(range(len(found)))
        assert len(found) >= last
        assert len(found) % 4 == 0
        last = len(found)
    for thread in threads:
        thread.join()
    assert failed == []
    assert seen(iceberg(tmp_path)) == list(range(48))


# Crashes


def test_whatever_moment_a_compaction_dies_at_readers_see_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = filled(tmp_path / "origin", batches=3)
    before = content(origin)
    after, fell = 0, True
    while fell:
        lake = filled(tmp_path / str(after), batches=3)
        with monkeypatch.context() as patch:
            falling(patch, after)
            try:
                compact_iceberg(lake, LARGE, LATER)
                fell = False
            except Fall:
                fell = True
        assert content(lake).equals(before)
        done = compact_iceberg(lake, LARGE, LATER)
        assert done.files_after == len(lake.files()) == 4
        assert content(lake).equals(before)
        assert seen(lake) == list(range(12))
        assert left_over(lake) == set()
        assert not list(Path(f"{lake.root}/_staging").glob("compact-*"))
        after += 1
    assert after > 4, "there are more moments than that"


def test_a_commit_of_which_nobody_knows_whether_it_is_in_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of a catalogue is lost: once the commit is in, once it is not."""
    for landed in (True, False):
        lake = filled(tmp_path / str(landed))
        before = content(lake)
        commit = Transaction.commit_transaction

        def lost(self: Transaction, landed: bool = landed, commit: Any = commit) -> Any:
            if landed:
                commit(self)
            raise TimeoutError

        with monkeypatch.context() as patch:
            patch.setattr(Transaction, "commit_transaction", lost)
            with pytest.raises(TimeoutError):
                compact_iceberg(lake, LARGE, LATER)
        assert content(lake).equals(before)
        assert bool(left_over(lake)) != landed
        compact_iceberg(lake, LARGE, LATER)
        assert content(lake).equals(before)
        assert left_over(lake) == set()
        assert len(lake.files()) == 4


def answered_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalogue that was asked twice says of a commit that is in that it has failed."""
    commit = Transaction.commit_transaction

    def late(self: Transaction) -> Any:
        monkeypatch.setattr(Transaction, "commit_transaction", commit)
        commit(self)
        raise CommitFailedException

    monkeypatch.setattr(Transaction, "commit_transaction", late)


def test_a_compaction_that_is_in_though_the_catalogue_denies_it_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = filled(tmp_path)
    before = content(lake)
    answered_twice(monkeypatch)
    assert compact_iceberg(lake, LARGE, LATER) == Compacted(10, 4, 16)
    assert content(lake).equals(before)
    assert len(lake.table().snapshots()) == 5


def test_a_batch_that_is_in_though_the_catalogue_denies_it_is_in_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = filled(tmp_path)
    answered_twice(monkeypatch)
    assert write(lake, 4, rows(16, 4, seconds=1))
    assert seen(lake) == list(range(20))
    assert len(lake.table().snapshots()) == 5


# What a capture has not written


def test_files_of_another_partitioning_or_other_columns_are_not_mixed(tmp_path: Path) -> None:
    lake = filled(tmp_path, batches=2, levels=())
    with lake.table().update_schema() as schema:
        from pyiceberg.types import StringType

        schema.add_column("remark", StringType())
    wide = pa.Table.from_batches([rows(8, 4, seconds=1)]).append_column("remark", pa.array(["x"] * 4, pa.string()))
    for number in range(2):
        pq.write_table(wide, tmp_path / f"wide-{number}.parquet")
    shutil.copy(tmp_path / "wide-1.parquet", tmp_path / "other.parquet")
    lake.table().add_files([str(tmp_path / name) for name in ("wide-0.parquet", "wide-1.parquet")])
    before = content(lake)
    assert compact_iceberg(lake, LARGE, LATER) == Compacted(4, 2, 16)
    assert content(lake).select(["position", "remark"]).equals(before.select(["position", "remark"]))
    with lake.table().update_spec() as spec:
        spec.add_identity("partition")
    write(lake, 2, rows(30, 1, seconds=1))
    write(lake, 3, rows(32, 1, seconds=1))
    assert compact_iceberg(lake, LARGE, LATER) == Compacted(4, 3, 2)
    assert len(content(lake)) == 18
