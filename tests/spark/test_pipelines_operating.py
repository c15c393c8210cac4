"""Operating pipelines on a real bus: back-fill beside the live query, reset to a time, lag and its alert."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from polybus.pipelines.alerts import lag_of, send_alert
from polybus.pipelines.backfill import Backfill
from polybus.pipelines.capture import CaptureKind
from polybus.pipelines.control import reset
from polybus.pipelines.declaration import Declaration
from polybus.pipelines.lake_reading import lake_frame
from polybus.pipelines.runner import Runner, run_once
from polybus.pipelines.status import pipeline_states
from tests.spark.kit import Kit
from tests.spark.pipelines_kit import declared

HOUR = timedelta(hours=1)


def capture(queue: str, form: str = "parquet", start: str = "earliest", **more: Any) -> dict[str, Any]:
    origin = {"entity": queue, "options": {"startingOffsets": start}}
    return {"name": "cap", "kind": "capture", "from": origin, "to": {"path": "lake", "format": form}, **more}


def kind_of(declaration: Declaration) -> CaptureKind:
    (kind,) = declaration.pipelines
    assert isinstance(kind, CaptureKind)
    return kind


def bodies(kit: Kit, kind: CaptureKind) -> Counter[str]:
    return Counter(bytes(row.body).decode() for row in lake_frame(kit.spark, kind.place).select("body").collect())


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_a_back_fill_brings_what_the_capture_never_saw_once_beside_it(kit: Kit, form: str) -> None:
    queue = kit.queue()
    before = kit.fill(queue, 40)
    declaration = declared(kit, capture(queue, form, "latest"))
    began = datetime.now(UTC)
    run_once(declaration, kit.spark)
    after = kit.fill(queue, 20, first=40)
    kind = kind_of(declaration)
    work = (declaration.checkpoints, (began - HOUR).isoformat(), began.isoformat())
    with Runner(declaration, kit.spark, once=True) as live:  # its folder is held meanwhile
        assert Backfill(kind, *work).run(kit.spark, print) == 40
        live.run()
    assert Backfill(kind, *work).run(kit.spark, print) == 0
    assert bodies(kit, kind) == Counter(before | after)
    bus = kit.bus(queue)
    try:
        assert [each["name"] for each in bus.cursors()] == ["cap"]
    finally:
        bus.close()


def test_a_reset_lets_a_capture_begin_anew_at_a_time(kit: Kit) -> None:
    queue = kit.queue()
    first = kit.fill(queue, 20)
    between = datetime.now(UTC)
    second = kit.fill(queue, 10, first=20)
    declaration = declared(kit, capture(queue))
    run_once(declaration, kit.spark)
    kind = kind_of(declaration)
    reset(kind, declaration.checkpoints, between.isoformat())
    run_once(declaration, kit.spark)
    assert bodies(kit, kind) == Counter(first | second) + Counter(second)
    reset(kind, declaration.checkpoints, "latest")
    run_once(declaration, kit.spark)
    assert bodies(kit, kind) == Counter(first | second) + Counter(second)


def test_a_pipeline_that_is_paused_lags_and_the_alert_is_a_message(kit: Kit) -> None:
    queue, alerts = kit.queue(), kit.queue("-alerts")
    kit.fill(queue, 30)
    declaration = declared(kit, capture(queue, alert={"lag": 10, "to": alerts}))
    said: list[str] = []
    with Runner(declaration, kit.spark, once=False, say=said.append) as runner:
        (pipeline,) = runner.pipelines
        pipeline.paused.set()
        pipeline.step(0)
        assert pipeline.record()["alert"] == "30 messages wait, more than 10, for 0ms"
        assert runner.metrics.get("polybus_pipeline_alert", pipeline="cap") == 1
    assert pipeline_states(declaration)[0]["state"] == "paused"
    assert any("ALERT: 30 messages wait" in line for line in said)
    (message,) = kit.drain(alerts, 1)
    told = json.loads(str(message))
    assert (told["pipeline"], told["state"], told["lag"]) == ("cap", "lagging", 30)
    pipeline.paused.clear()
    run_once(declared(kit, capture(queue)), kit.spark)
    # The last batch is let go of with the next one.
    assert lag_of(kind_of(declaration)) in (0, 30)
    send_alert(declared(kit, capture(alerts)).pipelines[0].entities()[0], {"state": "over"})
    assert json.loads(str(kit.drain(alerts, 1)[0])) == {"state": "over"}
