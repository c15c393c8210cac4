"""The simulated loop: virtual time, order where it is promised, permutation where it is not, one seed one run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.clock import Clock
from polybus.errors import BugError
from tests.support.sim_loop import SimClock, SimLoop


def test_time_moves_to_the_timers_and_not_by_itself() -> None:
    loop = SimLoop(1)
    seen: list[float] = []
    loop.call_later(3_600.0, lambda: seen.append(loop.time()))
    loop.call_later(0.25, lambda: seen.append(loop.time()))
    assert loop.time() == 0.0
    loop.run_until_idle()
    assert seen == [0.25, 3_600.0]
    assert loop.time() == 3_600.0


def test_run_for_runs_what_is_due_and_stops_at_the_end() -> None:
    loop = SimLoop(1)
    seen: list[str] = []
    loop.call_later(1.0, seen.append, "at the end")
    loop.call_later(1.5, seen.append, "later")
    loop.run_for(1.0)
    assert (seen, loop.time()) == (["at the end"], 1.0)
    loop.run_for(2.0)
    assert (seen, loop.time()) == (["at the end", "later"], 3.0)


def test_a_cancelled_call_does_not_happen() -> None:
    loop = SimLoop(1)
    seen: list[str] = []
    timer = loop.call_later(1.0, seen.append, "timer")
    soon = loop.call_soon(seen.append, "soon")
    timer.cancel()
    soon.cancel()
    loop.run_until_idle()
    assert seen == []
    assert loop.time() == 0.0
    assert timer.cancelled()


def test_a_delay_below_zero_is_none() -> None:
    loop = SimLoop(1)
    loop.call_later(-5.0, lambda: None)
    loop.run_until_idle()
    assert loop.time() == 0.0


def chains(seed: int, *, shuffle: bool = False) -> list[str]:
    """Three timers of one instant, each of which puts three callbacks on the loop, the last one more."""
    loop = SimLoop(seed, shuffle=shuffle)
    seen: list[str] = []

    def chain(name: str) -> None:
        seen.append(name)
        for number in range(3):
            loop.call_soon(seen.append, f"{name}{number}")

    for name in "abc":
        loop.call_later(1.0, chain, name)
    loop.run_until_idle()
    return seen


@given(st.integers(min_value=0))
def test_inside_a_chain_callbacks_keep_their_order(seed: int) -> None:
    seen = chains(seed)
    for name in "abc":
        assert [item for item in seen if item[0] == name] == [name, f"{name}0", f"{name}1", f"{name}2"]


def test_between_chains_the_seed_chooses() -> None:
    runs = {tuple(chains(seed)) for seed in range(50)}
    assert len(runs) > 20
    assert {run[0] for run in runs} == {"a", "b", "c"}
    assert any(run[1] not in (run[0], run[0] + "0") for run in runs)


def test_shuffling_permutes_a_chain_as_well() -> None:
    runs = [chains(seed, shuffle=True) for seed in range(30)]
    assert any(run.index("a1") < run.index("a0") for run in runs)
    assert all(sorted(run) == sorted(chains(0)) for run in runs)


@given(st.integers(min_value=0), st.booleans())
def test_the_same_seed_gives_the_same_run(seed: int, shuffle: bool) -> None:
    assert chains(seed, shuffle=shuffle) == chains(seed, shuffle=shuffle)


def test_calls_from_outside_are_chains_of_their_own() -> None:
    def run(seed: int) -> str:
        loop = SimLoop(seed)
        seen: list[str] = []
        loop.call_soon(seen.append, "x")
        loop.call_soon_threadsafe(seen.append, "y")
        loop.run_until_idle()
        return "".join(seen)

    assert {run(seed) for seed in range(20)} == {"xy", "yx"}


def test_what_never_comes_to_rest_is_a_bug() -> None:
    loop = SimLoop(1)

    def again() -> None:
        loop.call_soon(again)

    loop.call_soon(again)
    with pytest.raises(BugError, match="100 steps"):
        loop.run_until_idle(max_steps=100)
    assert loop.steps == 100


def test_an_exception_comes_out_and_the_loop_goes_on() -> None:
    loop = SimLoop(1)
    seen: list[str] = []

    def fail() -> None:
        loop.call_soon(seen.append, "after")
        raise ValueError("broken")

    loop.call_soon(fail)
    with pytest.raises(ValueError, match="broken"):
        loop.run_until_idle()
    loop.run_until_idle()
    assert seen == ["after"]


class TestClock:
    def clock(self) -> tuple[SimLoop, SimClock, Callable[[], tuple[int, int]]]:
        loop = SimLoop(1)
        clock = SimClock(loop, wall_ms=10_000, mono_ms=500)
        used: Clock = clock
        return loop, clock, lambda: (used.now().wall_ms, used.now().mono_ms)

    def test_it_reads_the_virtual_time(self) -> None:
        loop, _, now = self.clock()
        assert now() == (10_000, 500)
        loop.run_for(1.2345)
        assert now() == (11_234, 1_734)

    def test_the_wall_jumps_alone(self) -> None:
        _, clock, now = self.clock()
        clock.jump_wall(-9_000)
        assert now() == (1_000, 500)

    def test_both_are_moved_forward_together(self) -> None:
        _, clock, now = self.clock()
        clock.advance(250)
        assert now() == (10_250, 750)
        with pytest.raises(ValueError, match="jump_wall"):
            clock.advance(-1)
