"""Behaviours by area: small functions, each run on a plain and on a partitioned entity.

A behaviour is a function of a `Bus`. Where the two kinds of entity must differ, `differs` names the requirement that
says so; a test holds every behaviour that asks for the kind to it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from azure.servicebus import __version__ as SDK

KINDS = ("plain", "partitioned")


def version(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(".")[:2])


@dataclass(frozen=True)
class Behaviour:
    name: str
    run: Callable[..., Any]
    differs: str
    """The requirement by which a plain and a partitioned entity must differ here."""
    since: str
    """The first release of the SDK that can do it, or that shows what the bus answered."""
    alone: bool
    """Whether it needs a bus to itself, because it moves the clock or takes stores away."""
    kinds: tuple[str, ...]

    @property
    def missing(self) -> str | None:
        """Why the installed SDK cannot run it."""
        if self.since and version(SDK) < version(self.since):
            return f"azure-servicebus {SDK} cannot; {self.since} can"
        return None


class Table:
    """The behaviours of one area."""

    def __init__(self, area: str) -> None:
        self.area = area
        self.behaviours: list[Behaviour] = []

    def behaviour(
        self,
        *,
        differs: str = "",
        since: str = "",
        alone: bool = False,
        kinds: tuple[str, ...] = KINDS,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            asks = ".partitioned" in inspect.getsource(function) or kinds != KINDS
            assert bool(differs) == asks, f"{function.__name__}: the requirement must be named where kinds differ"
            self.behaviours.append(Behaviour(function.__name__, function, differs, since, alone, kinds))
            return function

        return register

    def pairs(self) -> list[tuple[Behaviour, str]]:
        return [(each, kind) for each in self.behaviours for kind in each.kinds]

    def ids(self) -> list[str]:
        return [f"{each.name}-{kind}" for each, kind in self.pairs()]
