"""Changes that links ask for wait for each other, where management refuses a second one meanwhile."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from polybus.namespace.entities.names import fold
from polybus.namespace.namespace import Namespace
from polybus.promise import Promise

T = TypeVar("T")


class Turns:
    """One change of an entity at a time."""

    __slots__ = ("_taken", "leaving")

    def __init__(self) -> None:
        self._taken: dict[tuple[str, str], Promise[None]] = {}
        self.leaving: dict[tuple[str, str, str | None], None] = {}
        """What is about to be deleted, by namespace, folded path and subscription: for clients it is gone."""

    async def alone(self, namespace: Namespace, path: str, work: Coroutine[Any, Any, T]) -> T:
        key = (namespace.name, fold(path))
        while key in self._taken:
            await self._taken[key]
        done = self._taken[key] = Promise()
        try:
            return await work
        finally:
            del self._taken[key]
            done.resolve(None)
