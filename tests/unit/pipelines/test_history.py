"""What a pipeline's folder remembers of its runs, also when the runner was killed in the middle of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from polybus.pipelines import history
from polybus.pipelines.history import RunHistory
from polybus.pipelines.progress import Progress


def progress(batch: int, rows: int, lag: int) -> Progress:
    return Progress("lake", batch, "2026-01-31T12:00:00Z", rows, 250, {0: lag})


def test_a_run_adds_its_batches_up(tmp_path: Path) -> None:
    kept = RunHistory(tmp_path)
    kept.begin()
    kept.batch(progress(4, 100, 30), files=2, size=2048)
    kept.batch(progress(5, 30, 0), files=1, size=512)
    kept.end()
    (run,) = RunHistory(tmp_path).runs()
    assert (run.batches, run.batch, run.rows, run.files, run.bytes, run.ms, run.lag) == (2, 5, 130, 3, 2560, 500, 0)
    assert run.outcome(running=False) == "ended"


def test_a_run_that_failed_says_why(tmp_path: Path) -> None:
    kept = RunHistory(tmp_path)
    kept.begin()
    kept.end("the bus is away")
    (run,) = kept.runs()
    assert (run.outcome(running=False), run.error) == ("failed", "the bus is away")


def test_a_run_without_an_end_has_died_unless_somebody_runs_it(tmp_path: Path) -> None:
    kept = RunHistory(tmp_path)
    kept.begin()
    kept.batch(progress(0, 1, 0), 0, 0)
    with (tmp_path / "runs.jsonl").open("a") as out:
        out.write('{"event": "ba')  # the moment of the kill
    (run,) = kept.runs()
    assert (run.outcome(running=False), run.outcome(running=True), run.rows) == ("died", "running", 1)


def test_a_line_that_was_cut_off_hides_no_later_run(tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").write_text('{"at": "x", "event": "begin"}\n{"event": "ba')
    kept = RunHistory(tmp_path)
    kept.begin()
    kept.end(figures={"messages": 3})
    assert [run.outcome(running=False) for run in kept.runs()] == ["died", "ended"]
    assert kept.runs()[-1].record(running=False)["messages"] == 3


def test_old_runs_are_dropped_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "PIPELINE_HISTORY_LINES", 12)
    kept = RunHistory(tmp_path)
    for number in range(8):
        kept.begin()
        kept.batch(progress(number, number, 0), 0, 0)
        kept.end()
    found = kept.runs()
    assert [run.rows for run in found] == [3, 4, 5, 6, 7]
    assert all(run.batches == 1 and run.ended for run in found)


def test_nothing_is_remembered_of_a_pipeline_that_never_ran(tmp_path: Path) -> None:
    assert RunHistory(tmp_path).runs() == []
