"""A driver and a bus killed in the middle of the work: nothing lost, nothing doubled, the cursor at the end.

A small part of `scripts/soak spark`, which kills executors too, and goes on for as long as one likes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from polybus.testing.server import ServerProcess
from tests.spark.soak_play import Play

pytestmark = [
    pytest.mark.slow,
    # Clients whose bus is killed leave sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore"),
]


def test_a_killed_bus_and_a_killed_driver_lose_and_double_nothing(server: ServerProcess, tmp_path: Path) -> None:
    with Play(server, tmp_path, "bus", "local[2,4]", 1).running() as play:
        assert play.kill("bus") > 0
        assert play.kill("driver") > 0
        assert play.finish() > 0
