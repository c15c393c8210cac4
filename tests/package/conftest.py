"""The package as users get it: built from a copy of the checkout, installed where nothing of the checkout is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILT_FROM = ("LICENSE", "README.md", "pyproject.toml", "setup.py", "src")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: compiles; run it with -m slow")


def environment(**more: str) -> dict[str, str]:
    """Without what would lead back to the checkout, or choose the build of the tests for the package."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "POLYBUS_BUILD", "CC")}
    return kept | more


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy, so that a build leaves nothing behind."""
    copy = tmp_path / "checkout"
    copy.mkdir()
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / name, copy / name)
    return copy


class Installation:
    """A fresh environment. What the package depends on is that of the tests; the package itself is not."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.python = folder / "bin" / "python"
        packages = next(folder.glob("lib/python*/site-packages"))
        shared = [path for path in sys.path if path.endswith("site-packages")]
        (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in shared))
        self.packages = packages

    def pip(self, *words: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pip", "--python", self.python, "install", "--no-deps", "--no-index"]
        return run([*command, "--no-build-isolation", *words], **more)  # type: ignore[arg-type, list-item]

    def polybus(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return run([self.python.parent / "polybus", *words], check=False, **more)


def run(command: list[str | Path], *, check: bool = True, **more: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, env=environment(**more), capture_output=True, text=True, cwd="/")
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    return Installation(tmp_path / "environment")
