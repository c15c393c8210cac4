"""The two clocks of the bus, read together.

Wall time stamps messages and drives time-to-live and schedules; monotonic time drives locks and transactions,
so that a jump of the wall clock neither frees nor keeps a lock. Whoever works on messages is given a `Now`
and never reads a clock.
"""

from __future__ import annotations

from time import monotonic_ns, time_ns

from mypy_extensions import mypyc_attr


class Now:
    """One reading of both clocks, in milliseconds."""

    __slots__ = ("mono_ms", "wall_ms")

    def __init__(self, wall_ms: int, mono_ms: int) -> None:
        self.wall_ms = wall_ms
        self.mono_ms = mono_ms

    def __repr__(self) -> str:
        return f"Now(wall_ms={self.wall_ms}, mono_ms={self.mono_ms})"


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock:
    """Whatever tells the time of the bus. A class, for compiled code asks it several times for each message."""

    def now(self) -> Now:
        raise NotImplementedError


class RealClock(Clock):
    """The machine's clocks. A reading is made once for each millisecond and shared: it is never changed."""

    def __init__(self) -> None:
        self._last = Now(0, -1)

    def now(self) -> Now:
        mono_ms = monotonic_ns() // 1_000_000
        last = self._last
        if last.mono_ms != mono_ms:
            last = self._last = Now(time_ns() // 1_000_000, mono_ms)
        return last


class MovableClock(Clock):
    """A clock that runs with the real one and can be moved forward, never back.

    Users test a time-to-live of fourteen days with it in a millisecond. `frozen` stops it from running by
    itself, which is what deterministic tests want.
    """

    def __init__(self, *, frozen: bool = False, wall_ms: int | None = None) -> None:
        self._machine = RealClock()
        self._ahead_ms = 0
        start = self._machine.now()
        self._frozen = Now(start.wall_ms if wall_ms is None else wall_ms, start.mono_ms) if frozen else None

    def now(self) -> Now:
        base = self._frozen or self._machine.now()
        return Now(base.wall_ms + self._ahead_ms, base.mono_ms + self._ahead_ms)

    @property
    def ahead_ms(self) -> int:
        """How far it was moved."""
        return self._ahead_ms

    def advance(self, ms: int) -> None:
        if ms < 0:
            raise ValueError("the clock only goes forward")
        self._ahead_ms += ms
