"""A data folder with rows of every kind, made once and copied for each test that damages it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.cli.damage import read_rows
from tests.system.cli.server import Served, Shell
from tests.system.cli.small_bus import fill


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be changed."""
    data = tmp_path_factory.mktemp("filled")
    asyncio.run(fill(data))
    return data


@pytest.fixture(scope="session")
def filled_rows(filled: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[bytes, bytes]]:
    """What the messaging stores of the filled folder hold."""
    return read_rows(Path(shutil.copytree(filled, tmp_path_factory.mktemp("read") / "data")))


@pytest.fixture
def data(filled: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return Path(shutil.copytree(filled, tmp_path / "data"))


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("served"))
    yield served
    served.stop()


@pytest.fixture
def shell(served: Served) -> Shell:
    return Shell(served.connection())
