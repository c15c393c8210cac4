"""The pictures in docs/architecture.md are what the code says; scripts/architecture.py draws them anew."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_pictures_are_true() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/architecture.py", "--check"],
        cwd=ROOT,
        env={**os.environ, "POLYBUS_BUILD": "plain"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"run scripts/architecture.py\n{done.stdout}{done.stderr}"
