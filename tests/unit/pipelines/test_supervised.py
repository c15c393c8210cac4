"""One pipeline under care: started, told of, started again with back-off, given up; the time is moved by hand."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.errors import ConfigError
from polybus.pipelines.backoff import Restart, pause_ms
from polybus.pipelines.fields import Fields
from polybus.pipelines.handles import Report, RunHandle
from polybus.pipelines.kind import Context, JobKind, Origin, PipelineKind, StreamKind
from polybus.pipelines.progress import Progress
from polybus.pipelines.supervised import Phase, Supervised


class Work(RunHandle):
    """What was started, as a test wants it to go."""

    def __init__(self) -> None:
        self.over = False
        self.failure: str | None = None
        self.batches: list[Report] = []
        self.result: Mapping[str, float] = {}
        self.stopped = False

    def ended(self) -> bool:
        return self.over

    def error(self) -> str | None:
        return self.failure

    def reports(self) -> list[Report]:
        told, self.batches = self.batches, []
        return told

    def figures(self) -> Mapping[str, float]:
        return self.result

    def stop(self) -> None:
        self.stopped = True

    def fail(self, text: str) -> None:
        self.over, self.failure = True, text


class Stream(StreamKind):
    kind = "stream"
    wants = False
    told: list[int]

    @classmethod
    def parse(cls, name: str, fields: Fields, origin: Origin) -> Stream:
        raise NotImplementedError

    def start(self, session: Any, context: Context) -> Any:
        raise NotImplementedError

    def due(self, context: Context) -> bool:
        return self.wants

    def on_progress(self, progress: Progress, context: Context) -> None:
        context.metrics.describe("polybus_pipeline_own", "gauge", "A kind's own.")
        context.metrics.put("polybus_pipeline_own", progress.rows)


class Job(JobKind):
    kind = "job"

    @classmethod
    def parse(cls, name: str, fields: Fields, origin: Origin) -> Job:
        raise NotImplementedError

    def run(self, session: Any, context: Context) -> Mapping[str, float]:
        raise NotImplementedError


class Care:
    """A supervised pipeline, its clock, and everything that it started."""

    folder = Path()

    def __init__(self, kind: PipelineKind, once: bool = False, restart: Restart | None = None) -> None:
        self.lines: list[str] = []
        self.started: list[Work] = []
        self.broken: Exception | None = None
        self.now = 0
        context = Context(self.folder, once, self.lines.append)
        self.it = Supervised(kind, context, self._launch, restart or Restart(1_000, 8_000), random.Random(7))

    def _launch(self) -> RunHandle:
        if self.broken is not None:
            raise self.broken
        self.started.append(Work())
        return self.started[-1]

    def at(self, ms: int) -> Phase:
        self.now = ms
        self.it.step(ms)
        return self.it.phase

    @property
    def work(self) -> Work:
        return self.started[-1]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Care, "folder", tmp_path)


def batch(number: int, rows: int) -> Report:
    return {
        "batchId": number,
        "timestamp": "2026-01-31T12:00:00.000Z",
        "durationMs": {"triggerExecution": 250, "addBatch": 200},
        "sources": [{"numInputRows": rows}],
    }


def test_a_stream_is_started_at_once_and_its_batches_become_lines_and_metrics() -> None:
    care = Care(Stream("it"))
    assert care.at(0) is Phase.RUNNING
    care.work.batches = [batch(4, 100), batch(5, 50)]
    care.at(500)
    assert care.lines == ["batch 4: 100 rows, lag 0, 250 ms", "batch 5: 50 rows, lag 0, 250 ms"]
    get = care.it.context.metrics.get
    assert get("polybus_pipeline_rows_total", pipeline="it") == 150
    assert get("polybus_pipeline_batches_total", pipeline="it") == 2
    assert get("polybus_pipeline_last_batch", pipeline="it") == 5
    assert get("polybus_pipeline_batch_seconds", pipeline="it") == 0.25
    assert get("polybus_pipeline_rows_per_second", pipeline="it") == 200
    assert get("polybus_pipeline_up", pipeline="it") == 1
    assert get("polybus_pipeline_own") == 50
    assert care.it.record()["batch"] == 5


def test_a_stream_that_fails_is_started_again_after_pauses_that_grow_and_are_bounded() -> None:
    care = Care(Stream("it"))
    pauses = []
    for _ in range(6):
        assert care.at(care.now) is Phase.RUNNING
        care.work.fail("the bus\n is away")
        assert care.at(care.now) is Phase.FAILED
        began = care.now
        while care.it.phase is Phase.FAILED:
            care.at(care.now + 10)
        pauses.append(care.now - began)
    for pause, bound in zip(pauses, [1_000, 2_000, 4_000, 8_000, 8_000, 8_000], strict=True):
        assert bound / 2 <= pause <= bound + 10
    assert care.it.restarts == 6
    assert care.lines[0].endswith(": the bus is away")
    assert care.it.context.metrics.get("polybus_pipeline_restarts_total", pipeline="it") == 6


def test_a_batch_that_is_done_makes_the_next_failure_a_first_one() -> None:
    care = Care(Stream("it"))
    for _ in range(3):
        care.at(care.now)
        care.work.fail("no")
        care.at(care.now)
        care.at(care.now + 10_000)
    care.work.batches = [batch(0, 1)]
    care.at(care.now)
    assert care.it.failures == 0
    care.work.fail("no")
    care.at(care.now)
    assert care.it.failures == 1


def test_a_start_that_fails_counts_like_any_failure() -> None:
    care = Care(Stream("it"), restart=Restart(1_000, 1_000, attempts=2))
    care.broken = ConfigError("no such entity")
    assert care.at(0) is Phase.FAILED
    assert care.at(2_000) is Phase.GIVEN_UP
    assert care.it.record()["error"] == "no such entity"
    assert care.it.context.metrics.get("polybus_pipeline_up", pipeline="it") == 0
    assert care.at(9_000) is Phase.GIVEN_UP


def test_a_stream_that_ends_by_itself_in_a_resident_runner_has_failed() -> None:
    care = Care(Stream("it"))
    care.at(0)
    care.work.over = True
    assert care.at(1) is Phase.FAILED


def test_once_a_stream_ends_it_is_done() -> None:
    care = Care(Stream("it"), once=True)
    care.at(0)
    care.work.over = True
    assert care.at(1) is Phase.DONE
    assert care.at(10**9) is Phase.DONE
    assert len(care.started) == 1


def test_a_run_that_must_end_gives_up_after_three_failures_also_with_batches_between() -> None:
    care = Care(Stream("it"), once=True)
    for attempt in range(3):
        care.at(care.now + 10_000)
        care.work.batches = [batch(attempt, 1)]
        care.work.fail("no")
        care.at(care.now)
    assert care.it.phase is Phase.GIVEN_UP


def test_a_recurring_stream_rests_between_its_runs() -> None:
    kind = Stream("it")
    kind.recurring_ms = 60_000
    care = Care(kind)
    care.at(0)
    care.work.over = True
    assert care.at(5_000) is Phase.WAITING
    assert care.at(59_999) is Phase.WAITING
    assert care.at(60_000) is Phase.RUNNING
    assert len(care.started) == 2


def test_a_recurring_stream_starts_early_when_enough_waits_and_is_asked_only_now_and_then() -> None:
    kind = Stream("it")
    kind.recurring_ms = 60_000
    care = Care(kind)
    care.at(0)
    care.work.over = True
    care.at(1)
    assert care.at(2) is Phase.WAITING
    kind.wants = True
    assert care.at(3) is Phase.WAITING
    assert care.at(6_000) is Phase.RUNNING


def test_looking_ahead_may_fail_without_harm() -> None:
    class Blind(Stream):
        def due(self, context: Context) -> bool:
            raise OSError("away; SharedAccessKey=hush")

    kind = Blind("it")
    kind.recurring_ms = 60_000
    care = Care(kind)
    care.at(0)
    care.work.over = True
    care.at(1)
    assert care.at(10_000) is Phase.WAITING
    assert care.lines == ["cannot look ahead: away; SharedAccessKey=…"]


def test_a_job_tells_its_figures_and_is_done_or_comes_again() -> None:
    kind = Job("it")
    care = Care(kind)
    care.at(0)
    care.work.result = {"messages": 1200.0, "share": 0.25}
    care.work.over = True
    assert care.at(750) is Phase.DONE
    assert care.lines == ["messages 1,200, share 0.25 in 750 ms"]
    assert care.it.context.metrics.get("polybus_pipeline_job", pipeline="it", figure="messages") == 1200
    again = Job("it")
    again.every_ms = 10_000
    care = Care(again)
    care.at(0)
    care.work.over = True
    assert care.at(1) is Phase.WAITING
    assert care.at(10_000) is Phase.RUNNING


def test_stopping_ends_what_runs_and_tells_its_last_batches() -> None:
    care = Care(Stream("it"))
    care.at(0)
    care.work.batches = [batch(9, 1)]
    work = care.work
    care.it.stop()
    assert work.stopped
    assert care.lines == ["batch 9: 1 rows, lag 0, 250 ms"]
    care.it.stop()


@given(st.integers(1, 200), st.integers(10, 10_000), st.integers(0, 10**6), st.integers())
def test_pauses_are_between_half_and_all_of_their_bound(failures: int, first: int, more: int, seed: int) -> None:
    restart = Restart(first, first + more)
    pause = pause_ms(restart, failures, random.Random(seed))
    bound = min(first * 2 ** (failures - 1), first + more)
    assert bound // 2 <= pause <= bound


def test_pauses_of_one_seed_are_the_same() -> None:
    restart = Restart()
    one, two = random.Random(3), random.Random(3)
    assert [pause_ms(restart, n, one) for n in range(1, 9)] == [pause_ms(restart, n, two) for n in range(1, 9)]


@pytest.mark.parametrize(("attempts", "once", "limit"), [(0, False, None), (0, True, 3), (5, False, 5), (5, True, 5)])
def test_attempts(attempts: int, once: bool, limit: int | None) -> None:
    restart = Restart(attempts=attempts)
    assert restart.given_up(1_000_000, once) is (limit is not None)
    if limit is not None:
        assert not restart.given_up(limit - 1, once)
        assert restart.given_up(limit, once)


def test_its_folder_remembers_each_run_and_how_it_ended() -> None:
    care = Care(Stream("lake"))
    care.at(0)
    care.work.batches = [batch(0, rows=7)]
    care.at(1)
    care.work.fail("no bus")
    care.at(2)
    (run,) = care.it.history.runs()
    assert (run.rows, run.batch, run.error, run.outcome(running=False)) == (7, 0, "no bus", "failed")


def test_a_pipeline_that_is_paused_stops_and_goes_on_when_it_is_resumed() -> None:
    care = Care(Stream("it"))
    assert care.at(0) is Phase.RUNNING
    assert care.it.paused.set()
    assert not care.it.paused.set()
    assert care.at(1) is Phase.PAUSED
    assert care.work.stopped
    assert care.at(10**9) is Phase.PAUSED
    assert care.it.record()["state"] == "paused"
    assert care.it.paused.clear()
    assert care.at(10**9) is Phase.WAITING
    assert care.at(10**9) is Phase.RUNNING
    assert len(care.started) == 2
    assert care.lines == ["is paused; `polybus pipelines resume` lets it go on", "goes on"]


def test_a_pipeline_that_is_paused_is_passed_over_once() -> None:
    care = Care(Stream("it"), once=True)
    care.it.paused.set()
    assert care.at(0) is Phase.DONE
    assert care.started == []


def test_a_pipeline_that_fails_can_be_paused() -> None:
    care = Care(Stream("it"))
    care.broken = ConfigError("no")
    assert care.at(0) is Phase.FAILED
    care.it.paused.set()
    assert care.at(1) is Phase.PAUSED
    assert care.at(10**9) is Phase.PAUSED
