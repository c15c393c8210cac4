"""Pipelines in the console: what runs, its lag and last runs, and the report as a page of plots and tables."""

from __future__ import annotations

import time
from typing import Any

import httpx
from playwright.sync_api import expect

from polybus.client.sas import make_token
from polybus.pipelines import charts
from polybus.pipelines.reports import ReportTable, Section, page
from tests.browser.kit import KEY, Bus, Hand


def tell(bus: Bus, name: str, entity: str = "flow", **told: Any) -> None:
    headers = {"Authorization": make_token(bus.url, *KEY, int(time.time()) + 600)}
    answer = httpx.put(f"{bus.url}$polybus/entities/{entity}/pipelines/{name}", json=told, headers=headers)
    assert answer.status_code == 204, answer.text


def report() -> str:
    hot = ["customer-7", "<img src=x onerror=window.broken=1>"]
    section = Section(
        "Hot keys",
        "Keys with the most messages.",
        charts.rows("Messages by key", hot, [40, 2]),
        ReportTable(["key", "messages"], [[hot[0], 40], [hot[1], 2]]),
    )
    return page("Skew of flow", "42 messages", [section])


def test_what_runs_its_lag_its_runs_and_its_report(hand: Hand, bus: Bus) -> None:
    bus.queue("flow", enable_partitioning=True)
    runs = [{"began": "2026-01-31T12:00:00Z", "outcome": "failed", "batches": 2, "rows": 9, "bytes": 10, "ms": 5,
             "error": "the disk was full"}]  # fmt: skip
    hand.go("Pipelines")
    hand.sees("No runner tells of a pipeline")
    tell(
        bus,
        "lake",
        state="running",
        kind="capture",
        what="flow to /lake",
        lag=1234,
        batch=7,
        rows=50,
        ms=800,
        restarts=1,
    )
    tell(bus, "hot", state="waiting", kind="skew", what="flow to /reports", restarts=0, runs=runs, report=report())
    row = hand.page.get_by_role("row", name="lake")
    expect(row).to_contain_text("running")
    expect(row).to_contain_text("1,234")
    hand.go("hot")
    hand.heading("hot")
    assert hand.clicks == 2
    expect(hand.page.get_by_role("row", name="failed")).to_contain_text("the disk was full")
    shown = hand.page.get_by_role("region", name="Report")
    expect(shown.get_by_role("heading", name="Skew of flow")).to_be_visible()
    expect(shown.locator("svg .bar")).to_have_count(2)
    expect(shown.get_by_role("cell", name="<img src=x onerror=window.broken=1>")).to_be_visible()
    tell(bus, "hot", state="given up", kind="skew", what="flow to /reports", restarts=9, error="gave up")
    hand.sees("given up")
    assert hand.page.evaluate("window.broken") is None


def test_a_hostile_report_is_only_shown(hand: Hand, bus: Bus) -> None:
    bus.queue("hostile-flow")
    hostile = (
        "<main><h1 onclick='window.broken=1' style='position:fixed'>Title</h1><script>window.broken=1</script>"
        "<img src=x onerror='window.broken=1'><a href='javascript:window.broken=1'>a link</a>"
        "<svg><script>window.broken=1</script><foreignObject><iframe srcdoc='x'></iframe></foreignObject>"
        "<a href='javascript:window.broken=1'><text>t</text></a></svg><form action='//evil'><input></form></main>"
    )
    tell(bus, "evil", "hostile-flow", state="waiting", kind="skew", what="x", report=hostile)
    hand.open("#/pipelines/hostile-flow/evil")
    shown = hand.page.get_by_role("region", name="Report")
    expect(shown.get_by_role("heading", name="Title")).to_be_visible()
    shown.get_by_role("heading", name="Title").click()
    assert shown.locator("script, img, iframe, a, form, input, foreignObject, [style], [onclick]").count() == 0
    expect(shown).to_contain_text("a link")
    assert hand.page.evaluate("window.broken") is None
    assert hand.complaints
    assert all("violates the following Content Security Policy" in each for each in hand.complaints)
    hand.complaints.clear()
