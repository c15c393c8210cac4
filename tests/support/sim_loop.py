"""A loop with virtual time and a clock that reads it, from a seed.

The very code that runs on asyncio in production runs here in one thread, in no time, and the same seed gives
the same history byte for byte. `SimLoop` has the few methods of an event loop that the bus uses. Nothing in
here reads a clock, sleeps, starts a thread or iterates over a set.

What the seed decides, and what it leaves alone: a *chain* is a callback that was called from outside or by a
timer, with everything that was put on the loop by `call_soon` from inside it. Inside a chain callbacks run
first in, first out, as on asyncio. Between chains that are ready at the same instant the seed chooses at
every step, and so it does between timers of the same instant. With `shuffle=True` it also chooses among the
callbacks of one chain, which asyncio would never do: code that survives it relies on no order at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any, Final

from polybus.clock import Clock, Now
from polybus.errors import BugError

_MICROSECONDS: Final = 1_000_000
MAX_STEPS: Final = 1_000_000
"""A run that takes more callbacks than this is taken for one that will never end."""


class SimHandle:
    """What `call_soon` and `call_later` return."""

    __slots__ = ("_args", "_callback", "_cancelled", "_chain")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], chain: int) -> None:
        self._callback = callback
        self._args = args
        self._chain = chain
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled

    def chain(self) -> int:
        return self._chain

    def run(self) -> None:
        self._callback(*self._args)


class SimLoop:
    """An event loop in virtual time. A callback's exception ends the run and comes out of it."""

    def __init__(self, seed: int, *, shuffle: bool = False) -> None:
        self.rng = Random(seed)
        self.steps = 0
        self._shuffle = shuffle
        self._now_us = 0
        self._timers: list[tuple[int, float, int, SimHandle]] = []
        self._chains: dict[int, deque[SimHandle]] = {}  # never an empty one
        self._ready: list[int] = []  # the chains in the order in which they became ready
        self._running: int | None = None
        self._made = 0

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now_us / _MICROSECONDS

    def time_us(self) -> int:
        return self._now_us

    def call_soon(self, callback: Callable[..., object], *args: Any) -> SimHandle:
        handle = SimHandle(callback, args, self._next() if self._running is None else self._running)
        self._make_ready(handle)
        return handle

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> SimHandle:
        """There is one thread here; this is `call_soon`."""
        return self.call_soon(callback, *args)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> SimHandle:
        """Calls back after a delay, which begins a chain of its own."""
        order = self._next()
        handle = SimHandle(callback, args, order)
        due_us = self._now_us + max(0, round(delay_s * _MICROSECONDS))
        heappush(self._timers, (due_us, self.rng.random(), order, handle))
        return handle

    def run_until_idle(self, max_steps: int = MAX_STEPS) -> None:
        """Runs, moving time on as needed, until there is nothing ready and no timer left."""
        self._run(None, max_steps)

    def run_for(self, seconds: float, max_steps: int = MAX_STEPS) -> None:
        """Runs everything that happens in the coming virtual seconds, and moves time on by just that."""
        end_us = self._now_us + round(seconds * _MICROSECONDS)
        self._run(end_us, max_steps)
        self._now_us = end_us

    def _next(self) -> int:
        self._made += 1
        return self._made

    def _make_ready(self, handle: SimHandle) -> None:
        chain = handle.chain()
        if chain not in self._chains:
            self._chains[chain] = deque()
            self._ready.append(chain)
        self._chains[chain].append(handle)

    def _run(self, end_us: int | None, max_steps: int) -> None:
        stop = self.steps + max_steps
        while self._ready or self._wake(end_us):
            if self.steps >= stop:
                raise BugError(f"the simulation did not come to rest within {max_steps} steps")
            self.steps += 1
            self._step()

    def _wake(self, end_us: int | None) -> bool:
        """Moves time to the next timers that count, and makes them ready; False where there is none."""
        while self._timers and self._timers[0][3].cancelled():
            heappop(self._timers)
        if not self._timers or (end_us is not None and self._timers[0][0] > end_us):
            return False
        self._now_us = max(self._now_us, self._timers[0][0])
        while self._timers and self._timers[0][0] <= self._now_us:
            self._make_ready(heappop(self._timers)[3])
        return True

    def _step(self) -> None:
        handle = self._choose()
        if handle.cancelled():
            return
        self._running = handle.chain()
        try:
            handle.run()
        finally:
            self._running = None

    def _choose(self) -> SimHandle:
        place = self.rng.randrange(len(self._ready)) if len(self._ready) > 1 else 0
        chain = self._ready[place]
        handles = self._chains[chain]
        if self._shuffle and len(handles) > 1:
            handles.rotate(-self.rng.randrange(len(handles)))
        handle = handles.popleft()
        if not handles:
            del self._chains[chain]
            del self._ready[place]
        return handle


class SimClock(Clock):
    """The bus's clocks on a simulated loop. Either can be moved apart from it; only the wall can go back."""

    def __init__(self, loop: SimLoop, *, wall_ms: int = 1_700_000_000_000, mono_ms: int = 0) -> None:
        self._loop = loop
        self._wall_ms = wall_ms
        self._mono_ms = mono_ms

    def now(self) -> Now:
        elapsed_ms = self._loop.time_us() // 1000
        return Now(self._wall_ms + elapsed_ms, self._mono_ms + elapsed_ms)

    def advance(self, ms: int) -> None:
        """Moves both clocks forward, without running what becomes due on the loop."""
        if ms < 0:
            raise ValueError("only the wall clock goes back, by jump_wall")
        self._wall_ms += ms
        self._mono_ms += ms

    def jump_wall(self, ms: int) -> None:
        """Moves the wall clock alone, forward or back."""
        self._wall_ms += ms
