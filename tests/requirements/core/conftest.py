"""A bus without a network, in virtual time: its stores are in memory, or real ones of RocksDB in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.requirements.core.core_bus import CoreBus

Maker = Callable[[int], CoreBus]


@pytest.fixture(params=["memory", "rocksdb"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Maker]:
    """Makes a bus with so many stores."""
    made: list[CoreBus] = []

    def maker(stores: int = 4) -> CoreBus:
        folder = tmp_path if request.param == "rocksdb" else None
        made.append(CoreBus(stores, folder))
        return made[-1]

    yield maker
    for core in made:
        core.close()


@pytest.fixture
def core(make: Maker) -> CoreBus:
    """Four stores, as many as a bus has that nobody told otherwise."""
    return make(4)
