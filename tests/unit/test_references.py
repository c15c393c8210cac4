"""What code and docs refer to is in this repository: pages, anchors, files, modules, decisions, tests.

Nobody notices by reading that a reference leads nowhere, so the machine follows all of them: links between pages, pages and
anchors that code cites, files, modules and tests in backticks, numbers of decisions. A document that is not here is
not cited; standards are, by their paragraph (`AMQP 1.0 §2.6.7`, `RFC 9112 §3.2.2`).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "polybus"
CODE = (".py", ".sh", ".toml", ".sql", ".yml", ".yaml")
PLACES = (ROOT, SOURCES, ROOT / "tests", ROOT / "docs", ROOT / "tests" / "sdk" / "python" / "behaviours")
"""Where a path in backticks may begin: the repository, the package, the tests, the docs, the SDK's behaviours."""

NOT_HERE = re.compile(r"spec/\w+\.md|\btraps? \d+|\b(?<!/)(?:pipeline|reliability|nodes|review|style)\.md")
PARAGRAPH = re.compile(r"(?:AMQP 1\.0|RFC \d+|ECMA-\d+) §[\d.]+(?:(?:-|, | to |, §|-§| to §)[\d.]*\d)*")
PAGE = re.compile(r"docs/[\w./-]+\.(?:md|ipynb)(?:#[\w-]+)?")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FILE = re.compile(r"`((?:[\w-]+/)+[\w-]+\.(?:py|sql|toml|sh|md)|[\w-]+\.(?:py|sql))`")
TEST = re.compile(r"`([\w/-]+\.py)::(\w+)`")
MODULE = re.compile(r"`(polybus(?:\.\w+){2,})`")
"""With two points at least: `polybus.query` and the like are names of ours in other people's formats."""
DECISION = re.compile(r"decisions?/(\d{4})")


@cache
def files(*endings: str) -> tuple[Path, ...]:
    """All files of the repository with these endings, those not committed yet included."""
    shown = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if shown.returncode:
        pytest.skip("not a checkout of the repository")
    found = (ROOT / name for name in shown.stdout.splitlines())
    return tuple(path for path in found if path.is_file() and path.name.endswith(endings) and path != Path(__file__))


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def anchors_of(page: Path) -> frozenset[str]:
    """Explicit anchors of a page, and those that forges make of its headings."""
    text = text_of(page)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return frozenset(slugs | set(re.findall(r'<a id="([^"]+)">', text)))


def leads_nowhere(start: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    page = (start / name).resolve() if name else start
    if not page.exists():
        return True
    return bool(anchor) and page.suffix == ".md" and anchor not in anchors_of(page)


def dead_links(page: Path) -> Iterator[str]:
    for target in LINK.findall(text_of(page)):
        if re.match(r"[a-z]+:", target):
            continue
        dead = leads_nowhere(page, target) if target.startswith("#") else leads_nowhere(page.parent, target)
        if dead:
            yield f"{shown(page)}: {target}"


def test_links_between_pages_lead_somewhere() -> None:
    pages = files(".md")
    assert len(pages) > 20
    assert [dead for page in pages for dead in dead_links(page)] == []


def test_pages_and_anchors_that_code_cites_exist() -> None:
    cited = [(path, target) for path in files(*CODE) for target in PAGE.findall(text_of(path))]
    assert len(cited) > 100
    assert [f"{shown(path)}: {target}" for path, target in cited if leads_nowhere(ROOT, target)] == []


def test_files_in_backticks_exist() -> None:
    dead = []
    for path in files(".md", *CODE):
        near = (*PLACES, path.parent)
        dead += [
            f"{shown(path)}: {name}"
            for name in FILE.findall(text_of(path))
            if not any((place / name).exists() for place in near)
        ]
    assert dead == []


def module_exists(name: str) -> bool:
    """Whether a dotted name is a module or package of ours, or something that one of them has."""
    place, rest = SOURCES, name.split(".")[1:]
    while rest and (place / rest[0]).is_dir():
        place = place / rest.pop(0)
    if rest and (place / f"{rest[0]}.py").exists():
        place = place / f"{rest.pop(0)}.py"
    if not rest:
        return True
    owner = place / "__init__.py" if place.is_dir() else place
    return re.search(rf"\b{rest[0]}\b", text_of(owner)) is not None


def test_modules_in_backticks_exist() -> None:
    named = [(path, name) for path in files(".md", *CODE) for name in MODULE.findall(text_of(path))]
    assert [f"{shown(path)}: {name}" for path, name in named if not module_exists(name)] == []


def test_decisions_that_are_cited_were_taken() -> None:
    taken = {path.name[:4] for path in (ROOT / "docs" / "decisions").glob("*.md")}
    cited = [(path, number) for path in files(".md", *CODE) for number in DECISION.findall(text_of(path))]
    assert [f"{shown(path)}: {number}" for path, number in cited if number not in taken] == []


def test_tests_that_pages_name_exist() -> None:
    dead = []
    for page in files(".md"):
        for name, test in TEST.findall(text_of(page)):
            found = [place / name for place in PLACES if (place / name).exists()]
            if not any(re.search(rf"\bdef {test}\(", text_of(path)) for path in found):
                dead.append(f"{shown(page)}: {name}::{test}")
    assert dead == []


def test_nothing_cites_a_document_that_is_not_here() -> None:
    dead = [f"{shown(path)}: {found}" for path in files(".md", *CODE) for found in NOT_HERE.findall(text_of(path))]
    assert dead == []


def test_paragraphs_name_their_standard() -> None:
    dead = [
        f"{shown(path)}: {rest.group()}"
        for path in files(*CODE)
        for rest in re.finditer(r".{0,30}§.{0,10}", PARAGRAPH.sub("", text_of(path).replace("\n", " ")))
    ]
    assert dead == []
