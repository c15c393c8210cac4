"""A slice of what `scripts/soak` plays: every seed must be clean, and the same seed must be the same run."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from tests.support.simulation import simulate

SEEDS = 240
SHUFFLED = 30


def soak(*arguments: str, **environment: str) -> str:
    """Runs the soak as a user would; its output, and a failure that shows it where anything was found."""
    command = [sys.executable, "-m", "tests.support.soak", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_hundreds_of_seeds_are_clean() -> None:
    said = soak("--seeds", str(SEEDS), "--jobs", "2")
    assert f"{SEEDS} seeds from 0" in said
    assert "acknowledged" in said


def test_no_order_is_relied_on_that_an_event_loop_does_not_promise() -> None:
    said = soak("--seeds", str(SHUFFLED), "--start", "100000", "--jobs", "2", "--shuffle")
    assert f"{SHUFFLED} seeds from 100000" in said


@pytest.mark.parametrize("seed", range(4))
def test_a_seed_gives_the_same_history_byte_for_byte(seed: int) -> None:
    first, second = simulate(seed), simulate(seed)
    assert first.history.to_bytes() == second.history.to_bytes()
    assert len(first.history) > 100


def test_another_seed_gives_another_history() -> None:
    assert simulate(1).history.to_bytes() != simulate(2).history.to_bytes()


@pytest.mark.parametrize("seed", ["1", "5"])
def test_hashing_has_no_part_in_a_history(seed: str) -> None:
    histories = {
        hashlib.sha256(soak("--seed", seed, "--trace", PYTHONHASHSEED=hashing).encode()).hexdigest()
        for hashing in ("1", "77")
    }
    assert len(histories) == 1
