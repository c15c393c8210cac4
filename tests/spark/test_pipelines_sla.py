"""Service levels of a real queue: every event once, in the windows and on the page."""

from __future__ import annotations

import pytest

from polybus.pipelines.runner import PipelineFailed
from tests.spark.kit import Kit
from tests.spark.redrive_kit import dead_letter, figures, messages, run_pipeline


def test_latency_deliveries_and_dead_letters(kit: Kit) -> None:
    queue = kit.queue()
    fields = {"kind": "sla", "from": queue, "to": "out", "window": "1h", "targets": {"max": "1ms", "p50": "1d"}}
    with pytest.raises(PipelineFailed, match="keeps no events: say `enable: true`"):
        run_pipeline(kit, **fields)  # type: ignore[arg-type]
    assert figures(run_pipeline(kit, **fields, enable=True))["events"] == 0  # type: ignore[arg-type]
    kit.send(queue, messages(12))
    with kit.sdk.get_queue_receiver(queue) as receiver:
        (first,) = receiver.receive_messages(max_message_count=1, max_wait_time=10)
        receiver.abandon_message(first)
    dead_letter(kit, queue, 2, "<too bad>")
    assert figures(run_pipeline(kit, **fields)) == {"events": 15, "lost": 0}  # type: ignore[arg-type]
    kit.drain(queue, 10)
    ran = run_pipeline(kit, **fields)  # type: ignore[arg-type]
    assert figures(ran) == {"events": 10, "lost": 0}
    events = kit.spark.read.parquet(str(kit.folder / "out" / "events"))
    counted = {row.change: row["count"] for row in events.groupBy("change").count().collect()}
    assert counted == {"enqueued": 12, "abandoned": 1, "dead-lettered": 2, "completed": 10}
    assert events.select("partition", "event").distinct().count() == events.count() == 25
    # Every latency is there, and that of the longest breaks its promise.
    longest = (
        events.where("change = 'completed'")
        .selectExpr("max(unix_millis(time) - unix_millis(enqueued_time))")
        .collect()[0][0]
    )
    assert ran.metrics.get("polybus_pipeline_job", pipeline="p", figure="max_ms") == longest
    assert ran.metrics.get("polybus_pipeline_job", pipeline="p", figure="broken") >= 1  # type: ignore[operator]
    html = (kit.folder / "out" / "sla.html").read_text()
    assert html.count("<svg") == html.count("<table") == 4
    for text in ("10 messages completed", "&lt;too bad&gt;", "In all 2 of 12", "p50 at most 1d"):
        assert text in html


def test_events_count_once_though_a_run_died_before_its_journal_or_the_journal_is_lost(kit: Kit) -> None:
    queue = kit.queue()
    fields = {"kind": "sla", "from": queue, "to": "out", "enable": True}
    journal = kit.folder / "state" / "p" / "journal.json"
    run_pipeline(kit, **fields)  # type: ignore[arg-type]
    before = journal.read_text()
    kit.send(queue, messages(5))
    assert figures(run_pipeline(kit, **fields))["events"] == 5  # type: ignore[arg-type]
    journal.write_text(before)
    kit.drain(queue, 5)
    assert figures(run_pipeline(kit, **fields))["events"] == 10  # type: ignore[arg-type]
    journal.unlink()
    kit.send(queue, messages(1))
    assert figures(run_pipeline(kit, **fields))["events"] == 1  # type: ignore[arg-type]
    events = kit.spark.read.parquet(str(kit.folder / "out" / "events"))
    assert events.select("partition", "event").distinct().count() == events.count() == 11
