"""The pages of real runs in a real browser: what the pipelines wrote is what Chromium shows, without a complaint."""

from __future__ import annotations

from pathlib import Path

from tests.spark.kit import Kit
from tests.spark.redrive_kit import dead_letter, messages, run_pipeline
from tests.unit.pipelines.browser import chromium
from tests.unit.pipelines.looking import look_at


def test_the_pages_of_skew_and_sla_are_readable(kit: Kit, tmp_path: Path) -> None:
    with chromium(tmp_path) as browser:
        queue = kit.queue()
        levels = {"kind": "sla", "from": queue, "to": "levels", "window": "1s", "targets": {"max": "1ms"}}
        run_pipeline(kit, **levels, enable=True)  # type: ignore[arg-type]
        kit.send(queue, messages(10))
        kit.fill(queue, 200)
        dead_letter(kit, queue, 2, "a reason " * 12)
        run_pipeline(kit, name="loads", kind="skew", **{"from": queue}, to="loads", partitions=[1, 4, 64])  # type: ignore[arg-type]
        kit.drain(queue, 150)
        run_pipeline(kit, **levels)  # type: ignore[arg-type]
        for dark in (False, True):
            look_at(browser, kit.folder / "levels" / "sla.html", 4, dark=dark)
            look_at(browser, kit.folder / "loads" / "skew.html", 5, dark=dark)
            look_at(browser, kit.folder / "loads" / "skew.html", 5, dark=dark, width=480)
