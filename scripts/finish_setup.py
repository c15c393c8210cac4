"""Finishes what a first start leaves for later: packages that few need at once, and the compiled build.

`--beside PID` is how `scripts/serve` calls it: the bus of that process runs already, with the plain build. Then this
works with low priority, outlives the bus where it must, says no more once the bus has ended, and what it makes serves
the next start. Nothing is imported half-written: packages are new ones, and `scripts/compile.py` puts a build in its
place as a whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
VENV = Path(sys.prefix)
EXTRAS = ("arrow", "postgres", "build")
DONE = VENV / ".ready-more"
LOG = VENV / "finish_setup.log"
PROGRESS = re.compile(r"compiled (\d+) of (\d+) files")
QUARTERS = 4
"""How often progress is told: a person looks at the bus's own lines, not at these."""


def main() -> int:
    beside = int(sys.argv[2]) if sys.argv[1:2] == ["--beside"] else None
    with (VENV / ".finishing").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (fcntl.LOCK_NB if beside else 0))
        except OSError:
            return 0  # another start is at it
        if beside:
            step_aside(beside)
        return finish(beside is not None)


def step_aside(bus: int) -> None:
    """Lets the bus have the processors, its terminal's signals and, once it has ended, its output."""
    with contextlib.suppress(PermissionError):  # where it leads a group already
        os.setsid()
    os.nice(19)
    threading.Thread(target=fall_silent_with, args=(bus,), daemon=True).start()


def fall_silent_with(bus: int) -> None:
    """Whoever reads the bus's output waits for its end, and must not have to wait for ours."""
    while alive(bus):
        time.sleep(0.5)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)


def alive(process: int) -> bool:
    """Whether it runs. One that has ended counts as gone before its parent has asked: that may wait for our silence."""
    try:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except OSError:  # a system without /proc
        return True
    return state != "Z"


def finish(on_the_side: bool) -> int:
    started = time.monotonic()
    with LOG.open("w") as log:
        installed = DONE.exists() or install(log)
        if not installed:
            return told(f"further packages could not be installed; see {LOG}")
        if os.environ.get("POLYBUS_BUILD") == "plain" or built():
            return 0
        if on_the_side:
            say("the plain build runs; the compiled one is made on the side, in a minute or two")
        if not compiled(log):
            return told(f"nothing was compiled; THE PLAIN BUILD RUNS, several times slower; see {LOG}")
    if on_the_side:
        say(f"compiled on the side in {time.monotonic() - started:.0f} s; the next start runs the compiled build")
    return 0


def install(log: IO[str]) -> bool:
    """The packages alone: Polybus itself stays as it is while others start it."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = [package for extra in EXTRAS for package in extras[extra]]
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *wanted]
    done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
    if done.returncode == 0:
        DONE.touch()
    return done.returncode == 0


def built() -> bool:
    """Asked in another process, for this one must not hold modules that change."""
    look = "from polybus import _compiled; import sys; sys.exit(not _compiled.build_folder().exists())"
    return subprocess.run([sys.executable, "-c", look], cwd=ROOT / "src", check=False).returncode == 0


def compiled(log: IO[str]) -> bool:
    command = [sys.executable, str(ROOT / "scripts" / "compile.py")]
    shown = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as building:
        assert building.stdout is not None
        for line in building.stdout:
            log.write(line)
            if found := PROGRESS.search(line):
                quarter = int(found[1]) * QUARTERS // int(found[2])
                if quarter > shown and quarter < QUARTERS:
                    say(f"compiled {found[1]} of {found[2]} files")
                shown = quarter
    return building.returncode == 0


def told(text: str) -> int:
    say(text)
    return 1


def say(text: str) -> None:
    print(f"polybus: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
