"""What the scripts do on a machine where setting up fails: they end, say so, and try again the next time."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = """#!/bin/sh
echo "$@" >>"$(dirname "$0")/calls"
case "$*" in *install*) exit {install} ;; *pip*) exit {pip} ;; *) exit 0 ;; esac
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    for name in ("pyproject.toml", "scripts/environment.sh"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def python_in(folder: Path, *, install: int = 0, pip: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / "python"
    python.write_text(PYTHON.format(install=install, pip=pip))
    python.chmod(0o755)
    return python


def prepare(project: Path, python: Path | None = None) -> tuple[int, str]:
    """As scripts/test does it, which goes on after failures."""
    command = "set -u; . scripts/environment.sh; prepare dev; echo went on"
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": str(python or "/none")}
    done = subprocess.run(["bash", "-c", command], cwd=project, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout


def test_an_installation_that_fails_ends_the_script_and_is_tried_again(project: Path) -> None:
    for _ in range(2):
        python_in(project / ".venv" / "bin", install=1)
        code, said = prepare(project)
        assert code != 0
        assert "installing" in said
        assert "went on" not in said
        assert not list((project / ".venv").glob(".ready-*"))


def test_an_installation_that_is_done_is_not_repeated(project: Path) -> None:
    python_in(project / ".venv" / "bin")
    assert prepare(project)[1].splitlines()[-1] == "went on"
    assert prepare(project)[1] == "went on\n"


def test_an_environment_that_was_not_finished_is_made_anew(project: Path) -> None:
    python_in(project / ".venv" / "bin", pip=1)
    elsewhere = python_in(project / "elsewhere")
    prepare(project, elsewhere)
    assert f"-m venv {project / '.venv'}" in (project / "elsewhere" / "calls").read_text()
