"""A bus without a network is killed at random moments under load, on real stores; `scripts/soak --kills` does more."""

from __future__ import annotations

import subprocess
import sys

import pytest

KILLS = {"rocksdb": 30, "postgres": 8}


@pytest.mark.parametrize("engine", KILLS)
def test_nothing_acknowledged_is_lost_when_the_process_is_killed(engine: str) -> None:
    command = [sys.executable, "-m", "tests.support.soak", "--kills", str(KILLS[engine]), "--engine", engine]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert f"{KILLS[engine]} kills on {engine}" in done.stdout
    assert "clean: no findings" in done.stdout
