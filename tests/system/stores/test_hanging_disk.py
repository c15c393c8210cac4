"""A real disk that hangs in a sync, as far as a process can tell: it holds up its own store and nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .unreliable_disk import UnreliableDisk, needs_compiler

CHILD = Path(__file__).with_name("beside_a_hanging_disk.py")


@needs_compiler
def test_a_disk_that_hangs_holds_up_only_its_own_store(tmp_path: Path) -> None:
    hanging, while_there = tmp_path / "hanging", tmp_path / "hang"
    disk = UnreliableDisk(tmp_path).environment(hanging, while_there)
    command = [sys.executable, str(CHILD), str(hanging), str(tmp_path / "other"), str(while_there)]
    child = subprocess.run(command, env={**os.environ, **disk}, capture_output=True, text=True, timeout=60)
    assert child.stdout.splitlines() == ["others went on", "and it came back"], child.stderr
