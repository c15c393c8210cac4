"""Tables on real object stores: a batch is in once, whatever the store, the wire or the writer does."""

from __future__ import annotations

import io
import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polybus.errors import ConfigError
from polybus.pipelines import lake_files, object_folder
from polybus.pipelines.avro import arrow_schema_of, read_avro
from polybus.pipelines.compacting import compact_folder
from polybus.pipelines.delta import compact_delta
from polybus.pipelines.iceberg import IcebergLake
from polybus.pipelines.iceberg_compacting import compact_iceberg
from polybus.pipelines.lake import CheckpointBehind, Lake, open_lake
from polybus.pipelines.layout import HIVE, Layout
from polybus.pipelines.manifests import MANIFESTS, Manifest
from polybus.pipelines.object_folder import WRITING, ObjectFolder, ObjectStore, StoreFailed
from polybus.pipelines.object_stores import ObjectUrl
from tests.lake.servers import ObjectServer, Wire
from tests.unit.pipelines.lakes import FORMATS, QUERY, rows, write

LARGE = 256 << 20


def opened(url: ObjectUrl, form: str, tmp_path: Path, levels: tuple[str, ...] = HIVE) -> Lake:
    catalogue = {"type": "sql", "uri": f"sqlite:///{tmp_path / 'catalogue.db'}"} if form == "iceberg" else {}
    return open_lake(form, url, Layout(levels, "orders"), catalogue)


def positions(lake: Lake) -> list[int]:
    """What is in, by the files that count."""
    found: list[int] = []
    for name in lake.files():
        path = lake.inside(name) if isinstance(lake, IcebergLake) else name.removeprefix(f"{lake.root}/")
        assert path is not None
        with lake.folder.open(path) as source:
            data = io.BytesIO(source.read())
        if path.endswith(".avro"):
            schema = arrow_schema_of(data)
            data.seek(0)
            table = pa.Table.from_batches(read_avro(data, schema), schema)
        else:
            table = pq.read_table(data)
        found += table.column("position").to_pylist()
    return sorted(found)


def objects(url: ObjectUrl, ending: str) -> list[str]:
    return [name for name in ObjectStore(url).names() if name.endswith(ending)]


def test_of_many_that_create_an_object_at_once_one_does(server: ObjectServer, folder: str) -> None:
    """What everything here stands on; a server that lets two through proves nothing."""
    made: list[int] = []
    store = ObjectStore(server.url(folder))
    store.names()
    gate = threading.Barrier(8)

    def create(number: int) -> None:
        gate.wait()
        if store.create("one", str(number).encode()):
            made.append(number)

    for _ in range(5):
        store.remove(["one"])
        made.clear()
        threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(made) == 1
        assert store.read("one") == str(made[0]).encode()


@pytest.mark.parametrize("form", FORMATS)
def test_a_batch_is_in_once(server: ObjectServer, folder: str, tmp_path: Path, form: str) -> None:
    url = server.url(folder)
    lake = opened(url, form, tmp_path)
    assert write(lake, 0, rows(0, 10), rows(10, 10))
    assert write(lake, 1, rows(20, 10))
    again = opened(url, form, tmp_path)
    again.recover(QUERY)
    assert not write(again, 1, rows(20, 10))
    assert positions(again) == list(range(30))
    assert write(again, 2, rows(30, 1))
    assert positions(again) == list(range(31))
    assert ObjectStore(url).names(WRITING) == {}


@pytest.mark.parametrize("form", FORMATS)
def test_a_checkpoint_that_was_put_back_is_refused(
    server: ObjectServer, folder: str, tmp_path: Path, form: str
) -> None:
    url = server.url(folder)
    lake = opened(url, form, tmp_path)
    write(lake, 0, rows(0, 4), ends="[4]")
    write(lake, 1, rows(4, 4), ends="[8]")
    again = opened(url, form, tmp_path)
    with pytest.raises(CheckpointBehind, match="has batch 1 of this query"):
        write(again, 0, rows(0, 4), ends="[4]")
    with pytest.raises(CheckpointBehind, match="with a new checkpoint"):
        write(again, 1, rows(4, 9), ends="[13]")
    assert positions(again) == list(range(8))


class Fall(BaseException):
    """The process dies here."""


def falling(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Lets so many requests that change something be made, and then no more."""
    done = itertools.count()

    def guarded(name: str) -> None:
        work = getattr(ObjectStore, name)

        def wrapped(*words: Any) -> Any:
            if next(done) >= after:
                raise Fall
            return work(*words)

        monkeypatch.setattr(ObjectStore, name, wrapped)

    for name in ("put", "create", "remove"):
        guarded(name)


@pytest.mark.parametrize("form", FORMATS)
def test_whatever_moment_a_capture_dies_at_its_batch_is_in_once(
    server: ObjectServer, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    url, fell, after, first = server.url(folder), True, 0, 0
    while fell:
        lake = opened(url, form, tmp_path, ("partition",))
        with monkeypatch.context() as patch:
            falling(patch, after)
            try:
                write(lake, after, rows(first, 4), rows(first + 4, 4))
                fell = False
            except Fall:
                pass
        assert positions(opened(url, form, tmp_path)) in (list(range(first)), list(range(first + 8)))
        again = opened(url, form, tmp_path, ("partition",))
        again.recover(QUERY)
        write(again, after, rows(first, 8))
        first += 8
        assert positions(again) == list(range(first))
        suffix = f".{again.suffix}"
        if form != "iceberg":
            # Nothing is left over that does not count.
            data = [name for name in objects(url, suffix) if "checkpoint" not in name]
            assert sorted(data) == sorted(name.removeprefix(f"{url}/") for name in again.files())
        after += 1
    assert after > 4, "there are more moments than that"
    assert ObjectStore(url).names(WRITING) == {}


def tried(work: Callable[[], object]) -> Exception | None:
    try:
        work()
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("form", FORMATS)
def test_what_a_busy_store_answers_is_retried_or_ends_the_batch_and_nothing_is_doubled(
    server: ObjectServer, folder: str, tmp_path: Path, form: str
) -> None:
    # The libraries of tables ask more often, and pause longer.

    def attempt(number: int) -> None:
        lake = opened(url, form, tmp_path, ("partition",))
        lake.recover(QUERY)
        write(lake, number, rows(number * 8, 8))

    every, batches = (3, 4) if form in ("parquet", "avro") else (11, 2)
    with Wire(server.port, every, "503", "after", "429", "before") as wire:
        url = server.url(folder, wire.port)
        for number in range(batches):
            for _ in range(40):
                failure = tried(lambda number=number: attempt(number))  # type: ignore[misc]
                if failure is None:
                    break
                # Of the store or of a table's library, each in its own words; never a fault of ours.
                assert not isinstance(failure, (CheckpointBehind, AssertionError, TypeError, LookupError)), failure
            else:
                raise AssertionError("the batch found no way in")
        assert {line.split()[0] for line in wire.faults()} >= {"503", "429", "after", "before"}
    assert positions(opened(server.url(folder), form, tmp_path)) == list(range(batches * 8))


@pytest.mark.parametrize("form", FORMATS)
def test_a_store_that_is_killed_between_batches_and_comes_again_has_each_once(
    server: ObjectServer, folder: str, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.url(folder)
    write(opened(url, form, tmp_path), 0, rows(0, 8))
    put = ObjectStore.put

    first = iter([True])

    def killed(*words: Any) -> None:
        put(*words)
        if next(first, False):  # several files are put at a time
            server.kill()
            server.begin(0.5)

    def attempt() -> None:
        lake = opened(url, form, tmp_path)
        lake.recover(QUERY)
        write(lake, 1, rows(8, 4), rows(12, 4))

    monkeypatch.setattr(ObjectStore, "put", killed)
    for _ in range(40):
        failure = tried(attempt)
        server.wait()
        if failure is None:
            break
        assert not isinstance(failure, CheckpointBehind)
    assert positions(opened(url, form, tmp_path)) == list(range(16))


def test_a_store_that_stays_busy_ends_the_batch_with_a_line_that_holds_no_key(
    server: ObjectServer, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polybus.pipelines.object_stores._RETRY", {"max_retries": 1})
    with Wire(server.port, 1, "503") as wire:
        lake = opened(server.url(folder, wire.port), "parquet", tmp_path)
        with pytest.raises(StoreFailed) as caught:
            write(lake, 0, rows(0, 4))
    told = str(caught.value)
    assert "\n" not in told
    for line in server.secrets.read_text().splitlines():
        assert line.partition("=")[2] not in told
    assert "ignature" not in told


@pytest.mark.parametrize("form", ["parquet", "avro"])
def test_small_files_become_few_and_a_capture_goes_on(
    server: ObjectServer, folder: str, tmp_path: Path, form: str
) -> None:
    url = server.url(folder)
    lake = opened(url, form, tmp_path, ("partition",))
    for number in range(4):
        write(lake, number, rows(number * 4, 4))
    done = compact_folder(lake.folder, LARGE, time.time() + 60)
    assert (done.files_before, done.files_after, done.rows) == (8, 2, 16)
    assert positions(lake) == list(range(16))
    assert len(objects(url, f".{form}")) == 2
    again = opened(url, form, tmp_path, ("partition",))
    assert not write(again, 3, rows(12, 4))
    write(again, 4, rows(16, 4))
    assert compact_folder(again.folder, LARGE, time.time() + 60).files_after == 2
    assert positions(again) == list(range(20))
    assert list(ObjectStore(url).names(MANIFESTS)) == [f"{MANIFESTS}/compact-00000001.json"]


def test_whatever_moment_a_compaction_dies_at_every_row_is_there_once(
    server: ObjectServer, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fell, after = True, 0
    while fell:
        url = server.url(f"{folder}-{after}")
        lake = opened(url, "parquet", tmp_path, ("partition",))
        for number in range(3):
            write(lake, number, rows(number * 4, 4))
        with monkeypatch.context() as patch:
            falling(patch, after)
            try:
                compact_folder(lake.folder, LARGE, time.time() + 60)
                fell = False
            except Fall:
                pass
        assert positions(opened(url, "parquet", tmp_path)) == list(range(12))
        monkeypatch.setattr(object_folder, "OBJECT_COMPACTION_SECONDS", -60)
        monkeypatch.setattr(ObjectFolder, "commit", _untimed(ObjectFolder.commit))
        compact_folder(opened(url, "parquet", tmp_path, ("partition",)).folder, LARGE, time.time() + 60)
        monkeypatch.undo()
        assert positions(opened(url, "parquet", tmp_path)) == list(range(12))
        assert len(objects(url, ".parquet")) == 2
        after += 1
    assert after > 6, "there are more moments than that"


def _untimed(commit: Any) -> Callable[[ObjectFolder, Manifest], None]:
    def timeless(folder: ObjectFolder, manifest: Manifest) -> None:
        folder._until = float("inf")
        commit(folder, manifest)

    return timeless


def test_of_two_compactions_one_is_refused_and_no_row_is_doubled(
    server: ObjectServer, folder: str, tmp_path: Path
) -> None:
    url = server.url(folder)
    lake = opened(url, "parquet", tmp_path, ("partition",))
    for number in range(3):
        write(lake, number, rows(number * 4, 4))
    with lake.folder.compacting() as identity:
        lake.folder.begin(identity)
        with pytest.raises(ConfigError, match="is being compacted by somebody else"):
            compact_folder(opened(url, "parquet", tmp_path).folder, LARGE, time.time() + 60)
    assert positions(lake) == list(range(12))


def test_delta_and_iceberg_are_compacted_by_their_own_commits(
    server: ObjectServer, folder: str, tmp_path: Path
) -> None:
    for form in ("delta", "iceberg"):
        url = server.url(f"{folder}-{form}")
        lake = opened(url, form, tmp_path, ("partition",))
        for number in range(3):
            write(lake, number, rows(number * 4, 4))
        if isinstance(lake, IcebergLake):
            done = compact_iceberg(lake, LARGE, time.time() + 60)
            assert (done.files_before, done.files_after) == (6, 2)
        else:
            assert compact_delta(url, LARGE) == (6, 2, 12)
        assert positions(lake) == list(range(12))


def test_a_writer_whose_batch_was_begun_anew_by_another_is_refused(
    server: ObjectServer, folder: str, tmp_path: Path
) -> None:
    url = server.url(folder)
    slow, quick = opened(url, "parquet", tmp_path), opened(url, "parquet", tmp_path)
    slow.folder.begin("batch-1f0c2a9e-00000000")
    assert write(quick, 0, rows(0, 4))
    with pytest.raises(ConfigError, match="somebody else writes here under the same checkpoint"):
        slow.folder.commit(Manifest("batch-1f0c2a9e-00000000", "parquet", {QUERY: (0, "")}, []))
    assert positions(quick) == list(range(4))


def test_files_that_count_are_listed_for_any_reader(
    server: ObjectServer, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.url(folder)
    lake = opened(url, "parquet", tmp_path)
    write(lake, 0, rows(0, 4))
    for name, value in url.resolved().items():
        monkeypatch.setenv(name, value)
    assert lake_files(str(url)) == lake.files()
    assert len(lake.files()) == 2
