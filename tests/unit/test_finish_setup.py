"""What `scripts/serve` leaves for later happens beside the bus: never before it, never in its way, never by halves."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60
COMPILE = """
import pathlib, sys, time
root = pathlib.Path(__file__).parent.parent
with (root / "runs").open("a") as runs:
    runs.write("run\\n")
while not (root / "go").exists():
    time.sleep(0.02)
for done in (1, 2, 3, 4):
    print(f"polybus: compiled {done} of 4 files", flush=True)
(root / "built").mkdir()
"""
"""In the place of scripts/compile.py: it takes until it is told to end."""
COMPILED = """
import pathlib
def build_folder():
    return pathlib.Path(__file__).parents[2] / "built"
"""
BUS = ". scripts/environment.sh; finish_setup; echo serving; exec cat"
"""In the place of a bus: it lives until its input ends."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("scripts", "src/polybus"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("environment.sh", "finish_setup.py"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts" / name)
    (tmp_path / "scripts" / "compile.py").write_text(COMPILE)
    (tmp_path / "src" / "polybus" / "__init__.py").touch()
    (tmp_path / "src" / "polybus" / "_compiled.py").write_text(COMPILED)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / ".venv")], check=True)
    (tmp_path / ".venv" / ".ready-more").touch()
    return tmp_path


def start(project: Path, **environment: str) -> subprocess.Popen[str]:
    own = {"PATH": os.environ["PATH"], **environment}
    return subprocess.Popen(
        ["bash", "-c", BUS], cwd=project, env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def runs(project: Path) -> int:
    return (project / "runs").read_text().count("run") if (project / "runs").exists() else 0


def test_a_bus_serves_while_the_compiled_build_is_made(project: Path) -> None:
    with start(project) as bus:
        assert bus.stdout is not None
        assert bus.stdin is not None
        said = bus.stdout.readline()
        while said != "serving\n":  # the other line may come before it or after it
            assert "made on the side" in said
            said = bus.stdout.readline()
        assert not (project / "built").exists()
        until(lambda: runs(project) == 1)
        (project / "go").touch()
        lines = []
        while "next start runs the compiled build" not in "".join(lines):
            lines.append(bus.stdout.readline())
        assert [line for line in lines if " of 4 files" in line] == [
            f"polybus: compiled {done} of 4 files\n" for done in (1, 2, 3)
        ]
        assert (project / "built").exists()
        bus.stdin.close()
    assert bus.returncode == 0


def test_whoever_reads_the_bus_waits_for_its_end_alone(project: Path) -> None:
    bus = start(project)
    until(lambda: runs(project) == 1)
    said, _ = bus.communicate(timeout=PATIENCE_S)
    assert "serving\n" in said
    assert not (project / "built").exists()
    (project / "go").touch()
    until(lambda: (project / "built").exists())


def test_a_second_start_leaves_it_to_the_first(project: Path) -> None:
    first = start(project)
    until(lambda: runs(project) == 1)
    second = start(project)
    assert second.communicate(timeout=PATIENCE_S)[0] == "serving\n"
    (project / "go").touch()
    first.communicate(timeout=PATIENCE_S)
    until(lambda: (project / "built").exists())
    third = start(project)
    assert third.communicate(timeout=PATIENCE_S)[0] == "serving\n"
    assert runs(project) == 1


def test_who_wants_the_compiled_build_waits_for_it(project: Path) -> None:
    (project / "go").touch()
    with start(project, POLYBUS_BUILD="compiled") as bus:
        said, _ = bus.communicate(timeout=PATIENCE_S)
    assert said.splitlines()[-1] == "serving"
    assert (project / "built").exists()


def test_who_wants_the_plain_build_has_nothing_compiled(project: Path) -> None:
    with start(project, POLYBUS_BUILD="plain") as bus:
        assert bus.communicate(timeout=PATIENCE_S)[0] == "serving\n"
    assert runs(project) == 0


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """scripts/compile.py, whose compiler is a file that it writes."""
    monkeypatch.setenv("POLYBUS_BUILD", "plain")
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("compiling", ROOT / "scripts" / "compile.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module._compiled, "builds", lambda: tmp_path / "builds")
    monkeypatch.setattr(module._compiled, "build_folder", lambda: tmp_path / "builds" / "now")
    return module


def build(work: Path) -> bool:
    (work / "out").mkdir()
    (work / "out" / "module.so").write_text("whole")
    return True


def test_a_build_appears_as_a_whole(compiling: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiling, "_build", build)
    assert compiling.main() == 0
    assert [path.name for path in sorted((tmp_path / "builds").iterdir())] == ["lock", "now"]
    assert (tmp_path / "builds" / "now" / "module.so").read_text() == "whole"


def test_a_build_of_sources_that_changed_meanwhile_is_not_kept(
    compiling: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def changed(work: Path) -> bool:
        monkeypatch.setattr(compiling._compiled, "build_folder", lambda: tmp_path / "builds" / "later")
        return build(work)

    monkeypatch.setattr(compiling, "_build", changed)
    assert compiling.main() == 1
    assert [path.name for path in (tmp_path / "builds").iterdir()] == ["lock"]
