"""One word for one thing: few classes of the package share their name, and so do few files (docs/glossary.md)."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import polybus

SOURCES = Path(polybus.__file__).parent
MOST_SHARED = 0.08
"""The share of classes whose name another class has too."""
ONCE = ("cursor.py", "reading.py", "records.py")


def classes() -> dict[str, list[str]]:
    """Name to the files that have a class of it."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(str(path.relative_to(SOURCES)))
    return found


def test_few_classes_share_their_name() -> None:
    found = classes()
    everything = sum(map(len, found.values()))
    shared = {name: files for name, files in found.items() if len(files) > 1}
    share = sum(map(len, shared.values())) / everything
    listed = "\n".join(f"{name}: {', '.join(files)}" for name, files in sorted(shared.items()))
    assert share <= MOST_SHARED, f"{share:.1%} of {everything} classes share their name:\n{listed}"


def test_files_of_these_names_are_there_once() -> None:
    """Each was the name of several files that meant different things."""
    names = [path.name for path in SOURCES.rglob("*.py")]
    assert {name: names.count(name) for name in ONCE} == dict.fromkeys(ONCE, 1)
