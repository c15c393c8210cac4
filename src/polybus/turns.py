"""One after the other: work on the same thing waits for the work before it, on any loop."""

from __future__ import annotations

from collections.abc import Coroutine, Hashable
from typing import Any, TypeVar

from polybus.promise import Promise

T = TypeVar("T")


class Turns:
    def __init__(self) -> None:
        self._busy: dict[Hashable, Promise[None]] = {}

    async def take(self, key: Hashable, work: Coroutine[Any, Any, T]) -> T:
        """Runs the work when everything that came before it under this key is done."""
        while key in self._busy:
            await self._busy[key]
        done: Promise[None] = Promise()
        self._busy[key] = done
        try:
            return await work
        finally:
            del self._busy[key]
            done.resolve(None)
