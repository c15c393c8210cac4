"""The pages of `skew` and `sla` as Chromium shows them: no complaint, no request, every plot and number readable."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from polybus.pipelines.reports import write_page
from polybus.pipelines.skew_page import Lag, Skew
from polybus.pipelines.sla_page import Sla, SlaWindow, Targets
from polybus.pipelines.traffic import HotKey, KeyBucket, PartitionLoad, spread, what_if
from tests.unit.pipelines.browser import Browser, chromium
from tests.unit.pipelines.looking import look_at

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("browser")) as running:
        yield running


def large_skew() -> Skew:
    """Many partitions, keys as long as they may be, large numbers, a partition whose store is away."""
    keys = {
        ("W" * 128 if rank % 5 == 0 else f"key {rank}") + str(rank): 2_000_000 // (rank + 1) for rank in range(300)
    }
    placed = spread(keys.items(), COUNTS)
    loads = [
        PartitionLoad(partition=p, messages=placed.get((64, p), 0), keys=9, bytes=placed.get((64, p), 0) << 10)
        for p in range(64)
    ]
    hot = [HotKey(key, rank, count, count << 10) for rank, (key, count) in enumerate(list(keys.items())[:20])]
    buckets = [KeyBucket(1 << bits, (2 << bits) - 1, 5 * bits, 7 << bits) for bits in range(21)]
    lags = [Lag(p, p * 997 if p else None, {"lake": p, "a-cursor-with-a-long-name": 5}) for p in range(64)]
    lines = what_if(placed, 1000, 2_000_000, COUNTS)
    return Skew("orders/Subscriptions/urgent", "seen at noon", loads, buckets, hot, 1000, lags, lines)


def empty_skew() -> Skew:
    loads = [PartitionLoad(partition=p, messages=0, keys=0, bytes=0) for p in range(4)]
    return Skew("orders", "seen", loads, [], [], 0, [Lag(p, None) for p in range(4)], what_if({}, 0, 0, (1, 4)))


def large_sla() -> Sla:
    """Two hundred windows over midnight with a gap in them."""
    windows = [SlaWindow(NOON + timedelta(minutes=5 * number)) for number in range(200)]
    for number in [*range(60), *range(70, 200)]:
        latency = {name: (2 + math.sin(number)) * times for name, times in (("p50", 9), ("p95", 40), ("p99", 900))}
        windows[number] = SlaWindow(
            windows[number].start, 1_234, 1_200, number % 9, 0, 40, {**latency, "max": 90_000.0 + number}, 1.1
        )
    reasons = [("MaxDeliveryCountExceeded", 500), ("a reason that goes on and on " * 9, 3)]
    targets = Targets({"p95": 100, "max": 90_100}, 0.005)
    return Sla(
        "orders", "since noon", windows, [(times, 10 ** (7 - times)) for times in range(1, 7)], reasons, targets
    )


def small_sla() -> Sla:
    window = SlaWindow(NOON, 12, 10, 2, 0, 1, {"p50": 12_800, "p95": 12_820, "p99": 12_820, "max": 12_820}, 1.1)
    return Sla("orders", "since noon", [window], [(1, 9), (2, 1)], [("<too bad>", 2)], Targets({"max": 1}))


PAGES = {
    "large skew": (large_skew(), 5),
    "empty skew": (empty_skew(), 5),
    "large sla": (large_sla(), 4),
    "small sla": (small_sla(), 4),
    "empty sla": (Sla("orders", "since noon", [], [], [], Targets({"p95": 100})), 4),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_readable_in_light_and_in_dark_on_a_wide_and_on_a_narrow_screen(
    browser: Browser, tmp_path: Path, name: str
) -> None:
    report, plots = PAGES[name]
    path = tmp_path / "page.html"
    write_page(path, report.html())  # type: ignore[attr-defined]
    for width in (1280, 480):
        looks = [look_at(browser, path, plots, dark=dark, width=width) for dark in (False, True)]
        assert looks[0].ground == "rgb(255, 255, 255)"
        assert looks[1].ground == "rgb(21, 25, 29)"
        assert looks[0].bar != looks[1].bar


def test_a_page_with_a_script_that_fails_or_something_to_fetch_is_found_out(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("<!doctype html><img src='missing.png'><script>nobody.knows()</script>")
    with browser.shown(path) as shown:
        assert any("nobody is not defined" in complaint for complaint in shown.complaints)
        assert [url.rpartition("/")[2] for url in shown.requests] == ["page.html", "missing.png"]
