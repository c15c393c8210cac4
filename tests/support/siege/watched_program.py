"""`polybus` with every step of its event loop timed: run as a program of its own, by `WatchedServer`.

A step is one callback of the loop: nobody else is served while it runs. Its CPU time is judged, not the clock's: on a
machine that others use, a step may be interrupted, and that is not its fault. SIGUSR1 writes what was seen since the
last time into the file that POLYBUS_STEPS names.
"""

from __future__ import annotations

import asyncio
import json
import os
import runpy
import signal
import time
from pathlib import Path
from types import FrameType

_REPORT = Path(os.environ["POLYBUS_STEPS"])
_run = asyncio.Handle._run  # type: ignore[attr-defined]


class Steps:
    """The longest step, what it was, and how many there were; `number` tells one report from the next."""

    longest_s = 0.0
    what = ""
    steps = 0
    number = 0


def _timed(handle: asyncio.Handle) -> None:
    before_s = time.thread_time()
    _run(handle)
    took_s = time.thread_time() - before_s
    Steps.steps += 1
    if took_s > Steps.longest_s:
        Steps.longest_s = took_s
        Steps.what = repr(getattr(handle, "_callback", handle))[:200]


def _report(number: int, frame: FrameType | None) -> None:
    del number, frame
    Steps.number += 1
    seen = {"number": Steps.number, "longest_s": Steps.longest_s, "what": Steps.what, "steps": Steps.steps}
    Steps.longest_s, Steps.what, Steps.steps = 0.0, "", 0
    fresh = _REPORT.with_suffix(".new")
    fresh.write_text(json.dumps(seen))
    fresh.rename(_REPORT)


if __name__ == "__main__":
    asyncio.Handle._run = _timed  # type: ignore[assignment, attr-defined, method-assign]
    signal.signal(signal.SIGUSR1, _report)
    runpy.run_module("polybus", run_name="__main__", alter_sys=True)
