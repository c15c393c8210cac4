"""A real disk that hangs in a sync, as far as a process can tell: it holds up its own store and nobody else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMPILER = shutil.which("cc") or shutil.which("gcc")


@pytest.mark.skipif(COMPILER is None or sys.platform != "linux", reason="needs a C compiler on Linux")
def test_a_disk_that_hangs_holds_up_only_its_own_store(tmp_path: Path) -> None:
    library, hanging, while_there = tmp_path / "hanging.so", tmp_path / "hanging", tmp_path / "hang"
    assert COMPILER is not None
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", library, HERE / "hanging_disk.c", "-ldl"], check=True)
    switches = {"LD_PRELOAD": str(library), "HANGING_BELOW": str(hanging), "HANGING_WHILE": str(while_there)}
    folders = [str(hanging), str(tmp_path / "other"), str(while_there)]
    command = [sys.executable, str(HERE / "beside_a_hanging_disk.py"), *folders]
    child = subprocess.run(command, env={**os.environ, **switches}, capture_output=True, text=True, timeout=60)
    assert child.stdout.splitlines() == ["others went on", "and it came back"], child.stderr
