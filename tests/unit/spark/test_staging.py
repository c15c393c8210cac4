"""What a task does with rows while the bus is busy with those before."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from polybus.errors import ServerBusy
from polybus.spark import staging
from polybus.spark.options import sink_options
from polybus.spark.staging import Stager

STRING = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true;"
SECONDS = 30
"""Longer than anything here takes; what waits for so long fails."""


class GatedBus:
    """Answers nobody before its gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.asked = threading.Event()
        self.rows: list[int] = []
        self.failure: Exception | None = None

    def stage(self, content: bytes, query: dict[str, Any]) -> dict[str, Any]:
        self.asked.set()
        assert self.gate.wait(SECONDS)
        if self.failure is not None:
            raise self.failure
        self.rows.append(pa.ipc.open_stream(content).read_all().num_rows)
        return {"stage": len(self.rows)}

    def close(self) -> None: ...


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> GatedBus:
    made = GatedBus()
    monkeypatch.setattr(staging, "BusClient", lambda *_: made)
    monkeypatch.setattr(staging, "SPARK_STAGE_ROWS", 10)
    return made


def _stager() -> Stager:
    return Stager(sink_options({"connectionString": STRING, "entity": "q"}), {}, False)


def _rows(count: int) -> Any:
    return pa.RecordBatch.from_pydict({"body": [b"x"] * count})


def test_rows_are_taken_in_while_the_bus_is_busy_with_those_before(bus: GatedBus) -> None:
    stager = _stager()
    stager.write(_rows(20))
    assert bus.asked.wait(SECONDS)
    assert stager.stages == []
    bus.gate.set()
    stager.write(_rows(7))
    stager.finish()
    stager.close()
    assert (bus.rows, stager.stages) == ([10, 10, 7], [{"stage": 1}, {"stage": 2}, {"stage": 3}])


def test_a_request_that_failed_fails_the_task_at_the_latest_when_it_finishes(bus: GatedBus) -> None:
    bus.failure = ServerBusy("It is away.")
    bus.gate.set()
    for rows in (20, 5):
        stager = _stager()
        stager.write(_rows(rows))
        with pytest.raises(ServerBusy):
            stager.finish()
        stager.close()
        assert stager.stages == []
