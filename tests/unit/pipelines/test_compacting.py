"""Compaction: fewer files with the same rows, swapped in at once, whatever happens meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.errors import ConfigError
from polybus.pipelines.compacting import compact_capture, compact_folder
from polybus.pipelines.declaration import parse
from polybus.pipelines.delta import compact_delta
from polybus.pipelines.lake import CheckpointBehind, ManifestLake
from polybus.pipelines.manifests import LakeFile
from polybus.pipelines.merging import Compacted, planned
from tests.unit.pipelines.lakes import QUERY, opened, rows, write
from tests.unit.pipelines.test_lakes import Fall, falling, plain, positions

LARGE = 1 << 30


def filled(root: Path, form: str = "parquet", batches: int = 4) -> None:
    lake = opened(root, form)
    for number in range(batches):
        write(lake, number, rows(number * 4, 4, seconds=1))


@pytest.mark.parametrize("form", ["parquet", "avro"])
def test_small_files_of_a_folder_become_one(tmp_path: Path, form: str) -> None:
    filled(tmp_path, form)
    lake = opened(tmp_path, form)
    before = len(lake.files())
    done = compact_folder(lake.folder, LARGE, time.time() + 1)
    assert done == Compacted(before, 4, 16)
    assert len(lake.files()) == 4
    assert positions(lake) == list(range(16))
    assert sorted(tmp_path.rglob(f"*.{form}")) == sorted(map(Path, lake.files()))
    assert len(list((tmp_path / "_manifests").glob("*.json"))) == 1


def test_a_batch_that_was_compacted_is_still_known(tmp_path: Path) -> None:
    filled(tmp_path)
    lake = opened(tmp_path, "parquet")
    compact_folder(lake.folder, LARGE, time.time() + 1)
    assert not write(lake, 3, rows(12, 4))
    with pytest.raises(CheckpointBehind):
        write(lake, 0, rows(0, 4))
    assert write(lake, 4, rows(16, 4, seconds=1))
    compact_folder(lake.folder, LARGE, time.time() + 1)
    assert not write(lake, 4, rows(16, 4))
    assert positions(lake) == plain(tmp_path) == list(range(20))


def test_compacting_again_changes_nothing(tmp_path: Path) -> None:
    filled(tmp_path)
    lake = opened(tmp_path, "parquet")
    compact_folder(lake.folder, LARGE, time.time() + 1)
    files = lake.files()
    done = compact_folder(lake.folder, LARGE, time.time() + 1)
    assert done.files_before == done.files_after == len(files)
    assert lake.files() == files


def test_young_batches_are_left_alone(tmp_path: Path) -> None:
    filled(tmp_path)
    lake = opened(tmp_path, "parquet")
    files = lake.files()
    assert compact_folder(lake.folder, LARGE, time.time() - 3_600) == Compacted(0, 0, 0)
    assert lake.files() == files


def test_what_is_captured_meanwhile_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)
    lake = opened(tmp_path, "parquet")
    commit = lake.folder.commit

    def late(manifest: object) -> None:
        monkeypatch.undo()
        write(opened(tmp_path, "parquet"), 4, rows(16, 4))
        commit(manifest)  # type: ignore[arg-type]

    monkeypatch.setattr(lake.folder, "commit", late)
    compact_folder(lake.folder, LARGE, time.time() + 1)
    assert positions(lake) == plain(tmp_path) == list(range(20))


@pytest.mark.parametrize("kept", [False, True])
def test_whatever_moment_a_compaction_dies_at_readers_see_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """Also where some files stay as they are, for they were compacted before."""
    after, fell = 0, True
    while fell:
        root = tmp_path / str(after)
        filled(root, batches=4)
        lake = opened(root, "parquet")
        expected = list(range(16))
        if kept:
            compact_folder(lake.folder, LARGE, time.time() + 1)
            for number in (4, 5):
                write(lake, number, rows(3_610 + number * 4, 4, seconds=1))
            expected += range(3_626, 3_634)
        with monkeypatch.context() as patch:
            falling(patch, after)
            try:
                compact_folder(lake.folder, LARGE, time.time() + 1)
                fell = False
            except Fall:
                fell = True
        assert positions(lake) == expected
        lake.recover(QUERY)
        assert positions(lake) == expected
        compact_folder(lake.folder, LARGE, time.time() + 1)
        assert positions(lake) == plain(root) == expected
        assert len(lake.files()) == (6 if kept else 4)
        after += 1
    assert after > (9 if kept else 15), "there are more moments than that"


def test_what_is_compacted_already_is_not_written_again(tmp_path: Path) -> None:
    filled(tmp_path)
    lake = opened(tmp_path, "parquet")
    compact_folder(lake.folder, LARGE, time.time() + 1)
    old = {path: Path(path).stat().st_ino for path in lake.files()}
    # An hour later, in folders of their own.
    write(lake, 4, rows(3_610, 4, seconds=1))
    write(lake, 5, rows(3_614, 4, seconds=1))
    assert compact_folder(lake.folder, LARGE, time.time() + 1) == Compacted(8, 6, 8)
    assert {path: Path(path).stat().st_ino for path in lake.files() if path in old} == old
    assert positions(lake) == plain(tmp_path) == [*range(16), *range(3_610, 3_618)]
    assert len(list((tmp_path / "_manifests").glob("*.json"))) == 1


def test_a_folder_is_compacted_by_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)
    lake = opened(tmp_path, "parquet")

    def second(manifest: object) -> None:
        with pytest.raises(ConfigError, match="is being compacted by somebody else"):
            compact_folder(opened(tmp_path, "parquet").folder, LARGE, time.time() + 1)
        raise Fall

    monkeypatch.setattr(lake.folder, "commit", second)
    with pytest.raises(Fall):
        compact_folder(lake.folder, LARGE, time.time() + 1)


@pytest.mark.parametrize("form", ["parquet", "avro", "delta"])
def test_while_captures_and_compactions_go_on_a_reader_sees_whole_batches_once(tmp_path: Path, form: str) -> None:
    filled(tmp_path, form, batches=2)
    done = threading.Event()
    failed: list[BaseException] = []

    def working(work: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                failed.append(error)
                done.set()

        thread = threading.Thread(target=guarded)
        thread.start()
        return thread

    def capture() -> None:
        lake = opened(tmp_path, form)
        for number in range(2, 16):
            write(lake, number, rows(number * 4, 4, seconds=1))
        done.set()

    def compact() -> None:
        lake = opened(tmp_path, form)
        while not done.is_set():
            if isinstance(lake, ManifestLake):
                compact_folder(lake.folder, LARGE, time.time() + 1)
            else:
                compact_delta(tmp_path, LARGE)

    threads = [working(capture), working(compact)]
    while not done.is_set():
        try:
            found = positions(opened(tmp_path, form))
        except FileNotFoundError:
            # Files without a log of versions go when they are replaced; a reader asks again.
            assert form != "delta"
            continue
        assert found == list(range(len(found)))
        assert len(found) % 4 == 0
    for thread in threads:
        thread.join()
    assert failed == []
    assert positions(opened(tmp_path, form)) == list(range(64))


def test_each_format_in_its_own_way(tmp_path: Path) -> None:
    text = """
bus: {{connectionStringEnv: BUS}}
checkpoints: c
pipelines: [{{name: lake, kind: capture, from: orders, to: {{path: {form}, format: {form}}}}},
            {{name: mine, kind: python, entry: "m:f", from: q, to: r}}]
"""
    kinds = {form: parse(text.format(form=form), "p", tmp_path).pipelines for form in ("parquet", "delta", "iceberg")}
    assert compact_capture(kinds["parquet"][0], "256m", "0s") == Compacted(0, 0, 0)
    assert compact_capture(kinds["delta"][0], "256m", "0s") == Compacted(0, 0, 0)
    filled(tmp_path / "delta", "delta")
    done = compact_capture(kinds["delta"][0], "256m", "0s")
    assert (done.files_after, done.rows) == (4, 16)
    assert positions(opened(tmp_path / "delta", "delta")) == list(range(16))
    with pytest.raises(ConfigError, match="--older-than: Delta tables are compacted whole"):
        compact_capture(kinds["delta"][0], "256m", "1h")
    filled(tmp_path / "iceberg", "iceberg")
    assert compact_capture(kinds["iceberg"][0], "256m", "1h") == Compacted(10, 10, 0)
    assert compact_capture(kinds["iceberg"][0], "256m", "0s") == Compacted(10, 4, 16)
    with pytest.raises(ConfigError, match="'mine' is no capture but 'python'"):
        compact_capture(kinds["parquet"][1], "256m", "0s")
    with pytest.raises(ConfigError, match="the command: --target: 'big' is not allowed"):
        compact_capture(kinds["parquet"][0], "big", "0s")


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 100))), st.integers(1, 200))
def test_groups_stay_in_their_folder_and_below_the_target(sizes: list[tuple[int, int]], target: int) -> None:
    files = [LakeFile(f"p={folder}/{number}", "", 1, size) for number, (folder, size) in enumerate(sizes)]
    groups = planned(files, target)
    assert sorted(file.path for group in groups for file in group) == sorted(file.path for file in files)
    for group in groups:
        assert len({file.path.split("/")[0] for file in group}) == 1
        assert len(group) == 1 or sum(file.bytes for file in group) <= target
