"""Where the hot rooms are compiled nothing can be planted into them, so that is done in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import polybus


@pytest.mark.skipif(polybus.BUILD == "plain", reason="they run here already")
@pytest.mark.parametrize("name", ["test_planted.py", "test_planted_wishes.py"])
def test_planted_faults_are_found_in_plain_python(name: str) -> None:
    planted = Path(__file__).parent / name
    command = [sys.executable, "-m", "pytest", "-q", str(planted)]
    environment = {**os.environ, "POLYBUS_BUILD": "plain"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=planted.parents[2])
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
