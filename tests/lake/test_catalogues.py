"""Iceberg tables through a REST catalogue, which is Iceberg's own server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from polybus.pipelines.iceberg import IcebergLake
from polybus.pipelines.iceberg_compacting import compact_iceberg
from polybus.pipelines.layout import HIVE, Layout
from tests.lake.servers import RestCatalogue, rest_jars
from tests.unit.pipelines.lakes import rows, write


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogue]:
    if rest_jars() is None:
        pytest.skip("there is no REST catalogue: scripts/test lake fetches its jars")
    with RestCatalogue(tmp_path_factory.mktemp("rest")) as running:
        yield running


def opened(catalogue: RestCatalogue, root: Path, table: str) -> IcebergLake:
    options = {"type": "rest", "uri": f"http://127.0.0.1:{catalogue.port}", "table": f"sales.{table}"}
    return IcebergLake(root, Layout(HIVE, "orders"), options)


def positions(lake: IcebergLake) -> list[int]:
    return sorted(lake.table().scan().to_arrow().column("position").to_pylist())


def test_a_batch_is_in_once_and_small_files_become_few(
    catalogue: RestCatalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    lake = opened(catalogue, tmp_path / "lake", "orders")
    assert write(lake, 0, rows(0, 10), rows(10, 10))
    assert write(lake, 1, rows(20, 10))
    again = opened(catalogue, tmp_path / "lake", "orders")
    assert not write(again, 1, rows(20, 10))
    assert positions(again) == list(range(30))
    done = compact_iceberg(again, 256 << 20, time.time() + 60)
    assert done.files_after < done.files_before
    assert positions(again) == list(range(30))
    assert sorted(pl.scan_iceberg(again.table()).collect()["position"].to_list()) == list(range(30))


def test_two_captures_commit_to_one_table_at_the_same_time(catalogue: RestCatalogue, tmp_path: Path) -> None:
    write(opened(catalogue, tmp_path / "lake", "both"), 0, rows(0, 4), query="aaaaaaaa-0")
    failures: list[BaseException] = []

    def capture(query: str, first: int) -> None:
        try:
            lake = opened(catalogue, tmp_path / "lake", "both")
            for number in range(1, 4):
                write(lake, number, rows(first + number * 4, 4), query=query)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=capture, args=each) for each in (("aaaaaaaa-0", 0), ("bbbbbbbb-0", 100))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert positions(opened(catalogue, tmp_path / "lake", "both")) == [*range(16), *range(104, 116)]
