"""How bugs are planted in the reference bus: a registry, and partitions that make room for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tests.support.reference import ReferenceBus, ReferencePartition

PLANTED: dict[str, tuple[type[ReferenceBus], str]] = {}

Planted = TypeVar("Planted", bound=type)


def plant(kind: str) -> Callable[[Planted], Planted]:
    """Enters a broken bus, or a bus with this broken partition, under the name of its class."""

    def enter(cls: Planted) -> Planted:
        bus = cls
        if issubclass(cls, ReferencePartition):
            bus = type(cls.__name__, (ReferenceBus,), {"partition_class": cls})  # type: ignore[assignment]
        PLANTED[cls.__name__] = (bus, kind)
        return cls

    return enter


class Sometimes(ReferencePartition):
    """A partition whose bug shows only now and then."""

    turns = 0

    def every(self, n: int) -> bool:
        self.turns += 1
        return self.turns % n == 0


class ManyLocks(Sometimes):
    """A partition that can have several locks of one message without falling over."""

    def drop(self, number: int) -> None:
        for token in [token for token, lock in self.locks.items() if lock.number == number]:
            self.unlock(token)
        super().drop(number)
