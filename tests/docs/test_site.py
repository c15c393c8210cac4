"""The documentation as a whole: it builds without a warning, its reference is the code's, its alerts know our metrics."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.blocks import ROOT

PLAIN = {**os.environ, "POLYBUS_BUILD": "plain", "NO_MKDOCS_2_WARNING": "1"}
MONITORING = ROOT / "docs" / "monitoring"
NAME = re.compile(r"\b(?:servicebus|polybus|process)_[a-z_]+\b")
PROMTOOL = shutil.which("promtool")


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, env=PLAIN, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    pages = list((tmp_path / "site").rglob("index.html"))
    assert len(pages) > 50
    foreign = re.compile(
        r'<(?:script|link|img)[^>]*(?:src|href)="https?://(?!127\.0\.0\.1)[^"]*\.(?:js|css|woff2?|png|svg)"'
    )
    assert [page for page in pages if foreign.search(page.read_text(encoding="utf-8"))] == [], (
        "works without the internet"
    )


def test_the_reference_is_made_from_this_code() -> None:
    command = [sys.executable, "scripts/reference.py", "--check"]
    looked = subprocess.run(command, cwd=ROOT, env=PLAIN, capture_output=True, text=True)
    assert looked.returncode == 0, f"{looked.stdout}{looked.stderr}run scripts/reference.py"


def metrics() -> set[str]:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    names = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE))
    parts = {
        f"{name}_{part}" for name, kind in names.items() if kind == "histogram" for part in ("bucket", "sum", "count")
    }
    return set(names) | parts


def test_alerts_ask_for_metrics_that_there_are() -> None:
    rules = [
        rule for group in yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"] for rule in group["rules"]
    ]
    assert rules
    for rule in rules:
        assert set(NAME.findall(rule["expr"])) <= metrics(), rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"].endswith(".")
    told = (ROOT / "docs" / "how-to" / "monitoring.md").read_text(encoding="utf-8")
    assert [rule["alert"] for rule in rules if f"`{rule['alert']}`" not in told] == []


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    dashboard = json.loads((MONITORING / "grafana.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [each["query"] for each in dashboard["templating"]["list"]]
    names = {name for text in asked for name in NAME.findall(text)}
    assert len(names) > 10
    assert names <= metrics()
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: the package prometheus)")
@pytest.mark.parametrize("words", [("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")])
def test_promtool_takes_the_alerts(words: tuple[str, ...]) -> None:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *words], cwd=MONITORING, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


def test_errors_in_troubleshooting_are_said_by_somebody() -> None:
    """Each text stands in our sources or in the official SDK, so that who looks for it has really seen it."""
    import azure.servicebus

    sources = [*(ROOT / "src").rglob("*.py"), ROOT / "scripts" / "environment.sh", *(ROOT / "scripts").glob("*.py")]
    sources += Path(azure.servicebus.__file__).parent.rglob("*.py")
    sources += (ROOT / "docs" / "protocol").glob("*.md")
    said = re.sub(r"\s+", " ", "\n".join(path.read_text(encoding="utf-8") for path in sources)).lower()
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    texts = [
        text
        for row in re.findall(r"^\| ([^|]*`[^|]*) \|", page, re.MULTILINE)
        for text in re.findall(r"`([^`]+)`", row)
    ]
    parts = [part.strip() for text in texts for part in text.split("…") if part.strip()]
    assert len(parts) > 30
    unknown = [part for part in parts if part.lower() not in said and part not in FROM_ELSEWHERE]
    assert unknown == []


FROM_ELSEWHERE = {
    "address already in use",
    "hostname mismatch",
    "certificate is not valid for",
    "CERTIFICATE_VERIFY_FAILED",
}
"""Said by the operating system and by Python."""
