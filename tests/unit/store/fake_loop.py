"""A loop that runs when told to, first in, first out, with time that only moves by hand."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any


class FakeHandle:
    def __init__(self, due_s: float, call: Callable[[], object]) -> None:
        self.due_s = due_s
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeLoop:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[FakeHandle] = []
        self._ready: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object:
        self._ready.put(lambda: callback(*args))
        return None

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> FakeHandle:
        handle = FakeHandle(self.now_s + delay, lambda: callback(*args))
        self.timers.append(handle)
        return handle

    def step(self) -> None:
        """Runs the next callback, waiting for another thread to bring one."""
        self._ready.get(timeout=30)()

    def run(self) -> None:
        """Runs what is ready and what that makes ready."""
        while not self._ready.empty():
            self._ready.get()()

    def run_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.step()

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        due = [timer for timer in self.timers if timer.due_s <= self.now_s]
        self.timers = [timer for timer in self.timers if timer.due_s > self.now_s]
        for timer in due:
            if not timer.cancelled:
                timer.call()
