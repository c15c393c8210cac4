"""Makes docs/requirements.md: each requirement, the tests that prove it, and what came of them.

`python scripts/requirements.py` runs the tests under tests/requirements and writes the page. With `--no-run` the
results of the page as it stands are kept and only its tests are brought up to date. A test proves the requirements
whose ids begin its name: test_b8_b9_… proves B8 and B9.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "requirements.md"
FOLDER = ROOT / "tests" / "requirements"
BROWSER = ROOT / "tests" / "browser"
PLACES = (FOLDER, BROWSER, ROOT / "tests" / "unit" / "gateway", ROOT / "tests" / "unit" / "namespace")
"""Where tests carry ids in their names. Those of the first two are run for the page."""
ID = re.compile(r"[a-h]\d+")
TEST = re.compile(r"^\s*(?:async )?def (test_(?:[a-h]\d+_)+\w+)", re.MULTILINE)
ROW = re.compile(r"^\| ([A-Z]\d+) \|.*\| ([^|]*) \|$", re.MULTILINE)
HEAD = """# The requirements and their proof

Every requirement has an id, and every test that proves it carries the id in its name. The tests of
`tests/requirements` go through the official SDK, HTTP or raw AMQP to a real server with real stores, and take stores
away from it. Those of `tests/requirements/core` ask the namespace itself, below the network, in virtual time, over
stores in memory and over RocksDB. Those of `tests/browser` click through the console in Chromium. This page is made by
`scripts/requirements.py`; a test keeps it up to date.

| id | requirement | tests | result |
| --- | --- | --- | --- |
"""

Requirements = dict[str, dict[str, Any]]
Tests = dict[str, list[str]]


def requirements() -> Requirements:
    return tomllib.loads((FOLDER / "requirements.toml").read_text(encoding="utf-8"))


def tests_by_id() -> Tests:
    """Tests as path::name, under every id that they prove."""
    found: Tests = {}
    for place in PLACES:
        for path in sorted(place.rglob("test_*.py")):
            for name in TEST.findall(path.read_text(encoding="utf-8")):
                for each in ids_of(name):
                    found.setdefault(each, []).append(f"{path.relative_to(ROOT)}::{name}")
    return found


def ids_of(name: str) -> list[str]:
    found = []
    for word in name.split("_")[1:]:
        if not ID.fullmatch(word):
            break
        found.append(word.upper())
    return found


def results(run: bool) -> dict[str, str]:
    """The result of each test by its name, parameters and classes left out; the worst of several counts."""
    if not run:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "2",
            "-p",
            "no:cacheprovider",
            f"--junitxml={report}",
            str(FOLDER),
            str(BROWSER),
        ]
        subprocess.run([*command, "-k", "not the_page"], cwd=ROOT, check=False)
        found: dict[str, str] = {}
        for case in ElementTree.parse(report).iter("testcase"):
            name = str(case.get("name")).partition("[")[0]
            kinds = {child.tag for child in case}
            result = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
            order = ("passed", "skipped", "failed")
            found[name] = max(result, found.get(name, "passed"), key=order.index)
        return found


def verdict(row: dict[str, Any], tests: list[str], found: dict[str, str], before: str) -> str:
    if not tests and "open" in row:
        return f"open: {row['open']}"
    ran = [found[name] for name in (test.partition("::")[2] for test in tests) if name in found]
    said = next((each for each in ("failed", "skipped", "passed") if each in ran), "")
    result = said or before.partition(";")[0] or ("not run" if tests else "see there")
    return f"{result}; open: {row['open']}" if "open" in row else result


def page(run: bool) -> str:
    tests = tests_by_id()
    found = results(run)
    before = dict(ROW.findall(PAGE.read_text(encoding="utf-8"))) if PAGE.exists() else {}
    lines = []
    for key, row in requirements().items():
        own = tests.get(key, [])
        shown = [f"`{test}`" for test in own] + [f"`{path}`" for path in row.get("also", [])]
        says = " ".join(row["says"].split())
        lines.append(
            f"| {key} | {says} | {'<br>'.join(shown) or '-'} | {verdict(row, own, found, before.get(key, ''))} |"
        )
    return HEAD + "\n".join(lines) + "\n"


def without_results(text: str) -> str:
    """The page as far as it can be told without running anything."""
    return "\n".join(line.rpartition(" | ")[0] for line in text.splitlines())


def unproven() -> list[str]:
    """Requirements that nothing proves and that are not said to be open."""
    tests = tests_by_id()
    return [key for key, row in requirements().items() if not (tests.get(key) or row.get("also") or row.get("open"))]


def main() -> None:
    PAGE.write_text(page(run="--no-run" not in sys.argv[1:]), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)} is written; without proof: {', '.join(unproven()) or 'none'}")


if __name__ == "__main__":
    main()
