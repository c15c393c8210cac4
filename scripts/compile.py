"""Compiles the hot rooms with mypyc into the environment, under a hash of their sources.

Nothing is written into `src/`: `polybus._compiled` finds the build by the same hash, so a changed source falls
back to plain Python by itself and a stale build is never imported.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
os.environ["POLYBUS_BUILD"] = "plain"

from polybus import _compiled

SETUP = """
from mypyc.build import mypycify
from setuptools import setup
modules = mypycify({paths!r}, opt_level="2", debug_level="0", multi_file=True, group_name="polybus")
for module in modules:
    module.extra_compile_args.append("-w")
setup(name="polybus-compiled", packages=[], ext_modules=modules)
"""


def compiler() -> str | None:
    return os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def main() -> int:
    target = _compiled.build_folder()
    if target.exists():
        return 0
    if compiler() is None:
        print("polybus: no C compiler here; the plain Python build will be used")
        return 0
    print("polybus: compiling the hot rooms with mypyc (once for each change of them) ...", flush=True)
    with tempfile.TemporaryDirectory() as work:
        if not _build(Path(work)):
            print("polybus: compiling failed; the plain Python build will be used", file=sys.stderr)
            return 1
        _install(Path(work) / "out", target)
    return 0


def _build(work: Path) -> bool:
    shutil.copytree(_compiled.SOURCES, work / "polybus", ignore=shutil.ignore_patterns("__pycache__"))
    paths = [str(Path("polybus") / path.relative_to(_compiled.SOURCES)) for path in _compiled.source_files()]
    (work / "setup.py").write_text(SETUP.format(paths=paths))
    (work / "mypy.ini").write_text("[mypy]\nignore_missing_imports = True\nfollow_imports = silent\n")
    command = [sys.executable, "setup.py", "-q", "build_ext", f"--parallel={os.cpu_count() or 1}", "--build-lib=out"]
    environment = {**os.environ, "CFLAGS": "-O2 -g0", "MYPY_CONFIG_FILE_DIR": str(work)}
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print((done.stdout + done.stderr)[-4000:], file=sys.stderr)
    return done.returncode == 0


def _install(built: Path, target: Path) -> None:
    """Builds that are a day old go, for a bus may still be running on younger ones; the new one appears whole or not."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for old in target.parent.iterdir():
        with contextlib.suppress(FileNotFoundError):  # somebody else may be at it, too
            if old.stat().st_mtime < time.time() - 86_400:
                shutil.rmtree(old, ignore_errors=True)
    partial = target.parent / f"partial-{os.getpid()}"
    shutil.copytree(built, partial)
    with contextlib.suppress(FileExistsError):
        partial.rename(target)


if __name__ == "__main__":
    sys.exit(main())
