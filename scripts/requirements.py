"""Makes docs/requirements.md: each requirement and the tests that prove it.

`python scripts/requirements.py` writes the page, runs the tests and prints what came of each requirement; it ends with 1
where one failed. The page itself has no results: they would be those of another commit. With `--no-run` only the page is
written. A test proves the requirements whose ids begin its name: test_b8_b9_… proves B8 and B9.
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
HEAD = """# The requirements and their proof

Every requirement has an id, and every test that proves it carries the id in its name. The tests of
`tests/requirements` go through the official SDK, HTTP or raw AMQP to a real server with real stores, and take stores
away from it. Those of `tests/requirements/core` ask the namespace itself, below the network, in virtual time, over
stores in memory and over RocksDB. Those of `tests/browser` click through the console in Chromium. This page is made by
`scripts/requirements.py`, which also runs the tests and says what came of each requirement; a test keeps it up to date.
`scripts/mutations.py` takes the rules of each requirement away, one at a time, and sees that its tests notice.

| id | requirement | tests |
| --- | --- | --- |
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


def results() -> dict[str, str]:
    """The result of each test by its name, parameters and classes left out; the worst of several counts."""
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


def verdict(tests: list[str], found: dict[str, str]) -> str:
    """What came of a requirement's tests; the worst counts."""
    ran = [found[name] for name in (test.partition("::")[2] for test in tests) if name in found]
    return next((each for each in ("failed", "skipped", "passed") if each in ran), "not run")


def page() -> str:
    tests = tests_by_id()
    lines = []
    for key, row in requirements().items():
        shown = [f"`{test}`" for test in tests.get(key, [])] + [f"`{path}`" for path in row.get("also", [])]
        shown += [f"open: {row['open']}"] if "open" in row else []
        lines.append(f"| {key} | {' '.join(row['says'].split())} | {'<br>'.join(shown) or '-'} |")
    return HEAD + "\n".join(lines) + "\n"


def unproven() -> list[str]:
    """Requirements that nothing proves and that are not said to be open."""
    tests = tests_by_id()
    return [key for key, row in requirements().items() if not (tests.get(key) or row.get("also") or row.get("open"))]


def main() -> int:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)} is written; without proof: {', '.join(unproven()) or 'none'}")
    if "--no-run" in sys.argv[1:]:
        return 0
    tests, found = tests_by_id(), results()
    verdicts = {key: verdict(tests.get(key, []), found) for key in requirements()}
    for key, said in verdicts.items():
        print(f"{key}: {said}")
    return 1 if "failed" in verdicts.values() else 0


if __name__ == "__main__":
    raise SystemExit(main())
