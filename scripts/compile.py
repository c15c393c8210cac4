"""Compiles the hot modules of a checkout into its environment, under a hash of their sources.

It runs the build of `setup.py`. Nothing is written into `src/`: `polybus._compiled` finds the build by the same hash,
so a changed source falls back to plain Python by itself and a stale build is never imported.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
os.environ["POLYBUS_BUILD"] = "plain"

from polybus import _compiled

ROOT = Path(__file__).resolve().parent.parent
KEPT_SECONDS = 86_400
"""How long builds of other sources are kept: a bus may still be running on one."""
PREFIX = "polybus: "


def main() -> int:
    with _alone():
        target = _compiled.build_folder()
        return 0 if target.exists() else _make(target)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One at a time: who comes second finds what the first has made."""
    _compiled.builds().mkdir(parents=True, exist_ok=True)
    with (_compiled.builds() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(target: Path) -> int:
    print(
        "polybus: compiling, once for each change of the hot modules; POLYBUS_BUILD=plain starts without ...",
        flush=True,
    )
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        if not _build(Path(work)):
            print("polybus: nothing was compiled; THE PLAIN BUILD RUNS, several times slower", file=sys.stderr)
            return 1
        if _compiled.build_folder() != target:
            print("polybus: the sources changed meanwhile; nothing was kept of the build", file=sys.stderr)
            return 1
        _install(Path(work) / "out", target)
    print(f"polybus: compiled in {time.monotonic() - started:.0f} s", flush=True)
    return 0


def _build(work: Path) -> bool:
    command = [sys.executable, "setup.py", "-q", "build_ext", f"--build-lib={work}/out", f"--build-temp={work}/temp"]
    environment = {**os.environ, "POLYBUS_BUILD": "compiled"}
    said = []
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as building:
        assert building.stdout is not None
        for line in building.stdout:
            said.append(line)
            if line.startswith(PREFIX):
                _show(line.rstrip())
    if sys.stdout.isatty():
        print(flush=True)
    if building.returncode:
        print("".join(said)[-4000:], file=sys.stderr)
    return building.returncode == 0


def _show(line: str) -> None:
    """Progress: one line that changes where somebody looks, else a line each."""
    if sys.stdout.isatty():
        print(f"\r{line:<60}", end="", flush=True)
    else:
        print(line, flush=True)


def _install(built: Path, target: Path) -> None:
    """Old builds go; the new one appears whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for old in filter(Path.is_dir, target.parent.iterdir()):
        with contextlib.suppress(FileNotFoundError):  # somebody else may be at it, too
            if old.stat().st_mtime < time.time() - KEPT_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
    partial = target.parent / f"partial-{os.getpid()}"
    shutil.copytree(built, partial)
    try:
        partial.rename(target)
    except OSError:  # somebody else was quicker
        shutil.rmtree(partial, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
