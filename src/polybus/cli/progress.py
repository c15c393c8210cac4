"""How far a long command is: one line on standard error that changes, and nothing where nobody looks."""

from __future__ import annotations

import sys
import time
from types import TracebackType

_EVERY_S = 0.1


class Progress:
    def __init__(self, verb: str, total: int | None) -> None:
        self._verb = verb
        self._total = total
        self._shown_s = 0.0
        self._visible = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown_s:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def at(self, done: int, total: int | None = None) -> None:
        self._total = total if total is not None else self._total
        if not self._visible or time.monotonic() - self._shown_s < _EVERY_S:
            return
        self._shown_s = time.monotonic()
        of = "" if self._total is None else f" of {self._total:,}"
        print(f"\r\x1b[K{self._verb} {done:,}{of}", end="", file=sys.stderr, flush=True)
