"""What a runner tells: progress from Spark's reports, metrics in Prometheus's form, its page, errors without keys."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from polybus.pipelines.metrics import Metrics
from polybus.pipelines.page import Page, json_answer
from polybus.pipelines.progress import progress_from
from polybus.spark.offsets import Offset
from polybus.spark.secrets import one_line


def report(end: Any, latest: Any, **more: Any) -> dict[str, Any]:
    source = {"numInputRows": 30, "endOffset": end, "latestOffset": latest}
    told = {"batchId": 7, "timestamp": "2026-01-31T12:00:00.000Z", "durationMs": {"triggerExecution": 600}}
    return {**told, "sources": [source], **more}


def test_lag_is_what_lies_between_the_batch_and_the_end_of_the_log() -> None:
    end = Offset("1-1", {0: 10, 1: 20}).record()
    latest = Offset("1-1", {0: 15, 1: 20, 2: 4}).record()
    found = progress_from("it", report(end, latest))
    assert found.lag == {0: 5, 1: 0, 2: 4}
    assert (found.batch, found.rows, found.ms, found.lag_messages, found.rows_per_second) == (7, 30, 600, 9, 50)
    assert found.line() == "batch 7: 30 rows, lag 9, 600 ms"
    assert found.began_seconds == 1769860800
    assert found.record() == {"batch": 7, "began": "2026-01-31T12:00:00.000Z", "rows": 30, "ms": 600, "lag": 9}


def test_offsets_may_come_as_text() -> None:
    end, latest = Offset("1-1", {0: 1}).record(), Offset("1-1", {0: 3}).record()
    assert progress_from("it", report(json.dumps(end), json.dumps(latest))).lag == {0: 2}


@pytest.mark.parametrize("end", [None, 41, "41", "{", {"v": 9}, {"logOffset": 3}, Offset("2-2", {0: 1}).record()])
def test_sources_of_others_and_entities_made_anew_have_no_lag(end: Any) -> None:
    assert progress_from("it", report(end, Offset("1-1", {0: 3}).record())).lag == {}


def test_several_sources_add_up() -> None:
    one, two = Offset("1-1", {0: 1}).record(), Offset("1-1", {0: 3}).record()
    source = {"numInputRows": 5, "endOffset": one, "latestOffset": two}
    found = progress_from("it", report(None, None, sources=[source, source]))
    assert (found.rows, found.lag) == (10, {0: 4})


def test_a_report_may_say_little() -> None:
    found = progress_from("it", {"batchId": 0})
    assert (found.rows, found.ms, found.lag, found.rows_per_second, found.began_seconds) == (0, 0, {}, 0.0, 0.0)


def test_metrics_are_written_as_prometheus_reads_them() -> None:
    metrics = Metrics()
    metrics.add("polybus_pipeline_rows_total", 2, pipeline='a"b\\c\nd')
    metrics.add("polybus_pipeline_rows_total", 3, pipeline='a"b\\c\nd')
    metrics.put("polybus_pipeline_batch_seconds", 0.25, pipeline="x")
    metrics.describe("mine_total", "counter", "Mine.")
    metrics.put("mine_total", 1)
    assert metrics.text().splitlines() == [
        "# HELP mine_total Mine.",
        "# TYPE mine_total counter",
        "mine_total 1",
        "# HELP polybus_pipeline_batch_seconds Duration of the last batch.",
        "# TYPE polybus_pipeline_batch_seconds gauge",
        'polybus_pipeline_batch_seconds{pipeline="x"} 0.25',
        "# HELP polybus_pipeline_rows_total Rows read by the batches that are done.",
        "# TYPE polybus_pipeline_rows_total counter",
        'polybus_pipeline_rows_total{pipeline="a\\"b\\\\c\\nd"} 5',
    ]
    assert metrics.get("mine_total") == 1
    assert metrics.get("mine_total", pipeline="x") is None


def test_a_metric_without_a_meaning_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="has no meaning"):
        Metrics().put("unheard_of", 1)


def test_the_page_answers_by_path_on_loopback() -> None:
    page = Page(0, {"/status": lambda: json_answer({"a": 1}), "/health": lambda: json_answer({}, 503)})
    try:
        assert page.address.startswith("127.0.0.1:")
        connection = http.client.HTTPConnection(page.address, timeout=5)
        found = []
        for path in ("/status?x=1", "/health", "/other"):
            connection.request("GET", path)
            response = connection.getresponse()
            found.append((response.status, response.read().decode().strip()))
        connection.close()
    finally:
        page.close()
    assert found == [(200, '{"a": 1}'), (503, "{}"), (404, "there is: /status, /health")]


def test_errors_are_one_line_without_keys() -> None:
    text = "Endpoint=sb://x;SharedAccessKey=hush+/=;Entity=q\n at y  sig=hush&se=3 SharedAccessSignature=hush"
    assert one_line(text) == "Endpoint=sb://x;SharedAccessKey=…;Entity=q at y sig=…&se=3 SharedAccessSignature=…"
    assert len(one_line("x" * 100_000)) < 3_000
    token = "Authorization: SharedAccessSignature sr=sb%3a%2f%2fx&sig=hush%3d&se=1&skn=k"
    assert "hush" not in one_line(token)
