"""Alerts, resets, back-fills: what they decide, without a bus and without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from polybus.cli.pipelines import app
from polybus.errors import ConfigError
from polybus.pipelines.alerts import AlertSettings, LagAlert
from polybus.pipelines.backfill import BackfillPlan, cut, read_backfill
from polybus.pipelines.control import moment
from polybus.pipelines.declaration import parse
from polybus.pipelines.kind import StreamKind
from polybus.pipelines.progress import Progress
from polybus.spark.planning import Range


def test_an_alert_comes_when_too_much_waits_for_too_long_and_goes_when_it_does_not() -> None:
    alert = LagAlert(AlertSettings(100, 60_000))
    assert not alert.look(100, 0)
    assert not alert.look(101, 1_000)
    assert not alert.look(500, 60_000)
    assert alert.text is None
    assert alert.look(1_500, 61_000)
    assert alert.text == "1,500 messages wait, more than 100, for 1m"
    assert not alert.look(1_400, 62_000)
    assert alert.message("lake")["state"] == "lagging"
    assert alert.look(100, 63_000)
    assert alert.message("lake")["state"] == "over"
    assert not alert.look(101, 64_000)
    assert alert.text is None


def test_an_alert_is_declared_for_streams() -> None:
    told = {
        "bus": {"connectionStringEnv": "BUS"},
        "checkpoints": "c",
        "pipelines": [
            {
                "name": "lake",
                "kind": "capture",
                "from": "orders",
                "to": {"path": "lake"},
                "alert": {"lag": 10_000, "for": "5m", "to": "alerts"},
            }
        ],
    }
    (kind,) = parse(json.dumps(told), "p.yml", Path("/x")).pipelines
    assert isinstance(kind, StreamKind)
    assert kind.alert is not None
    assert (kind.alert.lag, kind.alert.after_ms) == (10_000, 300_000)
    assert kind.alert.to is not None
    assert kind.alert.to.entity == "alerts"
    assert [(entity.entity, name) for entity, name in kind.cursors()] == [("orders", "lake")]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 300)), max_size=16),
    st.integers(1, 100),
)
def test_a_range_is_cut_into_batches_that_have_every_position_once(spans: list[tuple[int, int]], rows: int) -> None:
    ranges = [Range(index, first, first + count - 1) for index, (first, count) in enumerate(spans)]
    batches = cut(ranges, rows)
    found = [
        (each.partition, position)
        for batch in batches
        for each in batch
        for position in range(each.first, each.last + 1)
    ]
    wanted = [(each.partition, position) for each in ranges for position in range(each.first, each.last + 1)]
    assert sorted(found) == wanted
    assert all(sum(each.last - each.first + 1 for each in batch) <= max(rows, len(spans)) for batch in batches)


def test_the_plan_of_a_back_fill_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    assert read_backfill(path) is None
    plan = BackfillPlan("q", "e", [[Range(0, 1, 5), Range(1, 2, 2)], [Range(0, 6, 7)]])
    plan.write(path)
    assert read_backfill(path) == plan


def test_a_time_is_told_to_the_bus_in_utc() -> None:
    assert moment("2026-01-31T13:00:00+01:00") == moment("2026-01-31T12:00:00") == "2026-01-31T12:00:00.000Z"
    with pytest.raises(ConfigError, match="is no time in ISO 8601"):
        moment("yesterday")


def test_a_line_says_how_long_the_rest_takes() -> None:
    line = Progress("lake", 4, "", 1_000, 500, {0: 60_000, 1: 60_000}).line()
    assert line == "batch 4: 1,000 rows, lag 120,000, 500 ms, 2,000 rows/s, 1m to go"


def test_a_pipeline_is_paused_and_resumed_by_commands(tmp_path: Path) -> None:
    told = {
        "bus": {"connectionStringEnv": "BUS"},
        "checkpoints": "c",
        "pipelines": [{"name": "lake", "kind": "capture", "from": "orders", "to": {"path": "lake"}}],
    }
    file = tmp_path / "p.yml"
    file.write_text(json.dumps(told))

    def said(*words: str) -> str:
        return CliRunner().invoke(app, [words[0], str(file), *words[1:]]).output.strip()

    assert said("pause", "lake") == "lake: is paused"
    assert said("pause", "lake") == "lake: was paused already"
    (state,) = json.loads(said("status", "--json"))
    assert state["state"] == "paused"
    assert said("resume", "lake") == "lake: goes on"
    assert said("resume", "lake") == "lake: was not paused"
    assert "there is no pipeline 'other'" in said("pause", "other")


def test_a_captures_own_options_are_ones_that_the_source_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "BUS", "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true;"
    )
    told = {
        "bus": {"connectionStringEnv": "BUS"},
        "checkpoints": "c",
        "pipelines": [{"name": "lake", "kind": "capture", "from": "orders", "to": {"path": "lake"}}],
    }
    (kind,) = parse(json.dumps(told), "p.yml", Path("/x")).pipelines
    assert kind.check() == []
