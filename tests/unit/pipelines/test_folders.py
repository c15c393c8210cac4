"""The folder of a pipeline: held by one runner at a time, and read for its journal; `status` on top of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from polybus.errors import ConfigError
from polybus.pipelines.declaration import Declaration, parse
from polybus.pipelines.folders import Folder
from polybus.pipelines.page import Page, json_answer
from polybus.pipelines.status import pipeline_states
from polybus.spark.offsets import Offset

TEXT = """
bus: {connectionStringEnv: BUS}
checkpoints: checkpoints
pipelines: [{name: lake, kind: capture, from: orders, to: {path: lake}}]
"""


def journal(folder: Path, planned: int, done: int, *offsets: Any) -> None:
    """A checkpoint as Spark lays it out."""
    stream = folder / "stream"
    for name, last in (("offsets", planned), ("commits", done)):
        (stream / name).mkdir(parents=True)
        for number in range(last + 1):
            (stream / name / str(number)).write_text("v1\n{}\n")
            (stream / name / f".{number}.crc").write_text("")
    (stream / "metadata").write_text(json.dumps({"id": "1f0c"}))
    (stream / "offsets" / str(planned)).write_text("\n".join(["v1", "{}", *(json.dumps(each) for each in offsets)]))


def declaration(tmp_path: Path) -> Declaration:
    return parse(TEXT, "p.yml", tmp_path)


def test_a_folder_has_one_runner(tmp_path: Path) -> None:
    first, second = Folder(tmp_path / "a"), Folder(tmp_path / "a")
    assert first.runner() is None
    first.hold("127.0.0.1:9")
    assert second.runner() == "127.0.0.1:9"
    with pytest.raises(ConfigError, match="another runner has this pipeline"):
        second.hold("")
    first.leave()
    assert second.runner() is None
    second.hold("")
    assert first.runner() == ""
    second.leave()
    second.leave()


def test_the_journal_says_how_far_a_query_is(tmp_path: Path) -> None:
    assert Folder(tmp_path).journal() is None
    journal(tmp_path, 4, 3, Offset("1-1", {0: 7}).record(), {"logOffset": 1}, 5)
    found = Folder(tmp_path).journal()
    assert found is not None
    assert (found.query, found.planned, found.done) == ("1f0c", 4, 3)
    assert [end.positions for end in found.ends] == [{0: 7}]


def test_a_query_without_a_batch_has_a_journal_too(tmp_path: Path) -> None:
    (tmp_path / "stream").mkdir()
    (tmp_path / "stream" / "metadata").write_text('{"id": "x"}')
    found = Folder(tmp_path).journal()
    assert found is not None
    assert (found.planned, found.done, found.ends) == (-1, -1, [])


def test_status_of_what_never_ran(tmp_path: Path) -> None:
    (found,) = pipeline_states(declaration(tmp_path))
    assert (found["name"], found["kind"], found["state"]) == ("lake", "capture", "not running")
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize(("done", "state"), [(4, "not running"), (3, "not running, with a batch to repeat")])
def test_status_from_the_checkpoint(tmp_path: Path, done: int, state: str) -> None:
    journal(tmp_path / "checkpoints" / "lake", 4, done, Offset("1-1", {0: 7, 3: 1}).record())
    (found,) = pipeline_states(declaration(tmp_path))
    assert (found["state"], found["batch"], found["positions"]) == (state, done, [{"0": 7, "3": 1}])


def test_status_from_the_runner(tmp_path: Path) -> None:
    told = {"pipelines": [{"name": "lake", "state": "failed", "error": "x", "batch": 3}]}
    page = Page(0, {"/status": lambda: json_answer(told)})
    folder = Folder(tmp_path / "checkpoints" / "lake")
    folder.hold(page.address)
    try:
        (found,) = pipeline_states(declaration(tmp_path))
    finally:
        folder.leave()
        page.close()
    assert (found["state"], found["error"], found["batch"], found["runner"]) == ("failed", "x", 3, page.address)


def test_status_of_a_runner_that_does_not_answer(tmp_path: Path) -> None:
    page = Page(0, {})
    page.close()
    folder = Folder(tmp_path / "checkpoints" / "lake")
    folder.hold(page.address)
    try:
        (found,) = pipeline_states(declaration(tmp_path))
    finally:
        folder.leave()
    assert found["state"] == "running"
