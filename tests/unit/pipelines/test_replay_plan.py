"""In which steps a replay sends, and when."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.errors import ConfigError
from polybus.pipelines.replay_plan import Pace, Plan, ReplayStep, read_plan, slot_us, steps

COUNTS = st.dictionaries(st.integers(0, 1_000), st.integers(1, 50)).map(lambda told: list(told.items()))


def test_without_waiting_slots_go_together_up_to_the_bound() -> None:
    found = steps([(7, 5), (1, 10), (3, 10), (4, 11)], slot=100, speed=0, max_rows=20)
    assert found == [ReplayStep(100, 400, 20), ReplayStep(400, 800, 16)]


def test_with_a_speed_each_slot_is_a_step() -> None:
    assert steps([(2, 1), (0, 1)], slot=100, speed=1.0, max_rows=20) == [
        ReplayStep(0, 100, 1),
        ReplayStep(200, 300, 1),
    ]


def test_a_slot_that_is_larger_than_the_bound_stays_whole() -> None:
    expected = [ReplayStep(0, 10, 1), ReplayStep(10, 20, 90), ReplayStep(20, 30, 1)]
    assert steps([(0, 1), (1, 90), (2, 1)], 10, 0, 20) == expected


@given(COUNTS, st.sampled_from([0.0, 2.0]), st.integers(1, 100))
def test_steps_are_in_order_apart_and_complete(counts: list[tuple[int, int]], speed: float, most: int) -> None:
    found = steps(counts, 10, speed, most)
    assert sum(step.rows for step in found) == sum(rows for _, rows in counts)
    for before, after in itertools.pairwise(found):
        assert before.first < before.end <= after.first
    for slot, _ in counts:
        assert sum(step.first <= slot * 10 < step.end for step in found) == 1
    assert all(step.rows <= most or step.end - step.first == 10 for step in found)


def test_a_slot_is_what_takes_a_window_to_send() -> None:
    assert slot_us(1.0, 5_000) == 5_000_000
    assert slot_us(10.0, 5_000) == 50_000_000
    assert slot_us(1e-9, 100) == 1
    assert slot_us(0, 5_000) == 1_000_000


def test_rows_are_due_as_far_apart_as_they_were_divided_by_the_speed() -> None:
    pace = Pace(2.0, began_us=1_000, first_us=500)
    assert [pace.due_us(at) for at in (500, 600, 900)] == [1_000, 1_050, 1_200]


def test_a_plan_is_kept_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    assert read_plan(path) is None
    plan = Plan([ReplayStep(1, 2, 3), ReplayStep(5, 6, 7)], done=True)
    plan.write(path)
    assert read_plan(path) == plan
    assert plan.rows == 10
    assert [each.name for each in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1}', '{"version": 9, "steps": []}'])
def test_what_is_no_plan_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(ConfigError, match=r"is (no|a) plan of"):
        read_plan(tmp_path / "plan.json")
