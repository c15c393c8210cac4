"""The table itself: how much it holds, and that nothing in it is left out."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

from tests.sdk.python import behaviours, test_behaviours, test_restarts
from tests.sdk.python.table import Table

ROOT = Path(__file__).parents[3]
REQUIREMENT = re.compile(r"[A-H]\d{1,2}")


def tables() -> dict[str, Table]:
    modules = [importlib.import_module(f"{behaviours.__name__}.{each.name}") for each in _files()]
    return {module.table.area: module.table for module in modules}


def _files() -> list[pkgutil.ModuleInfo]:
    return list(pkgutil.iter_modules(behaviours.__path__))


def test_every_file_is_an_area_that_is_run() -> None:
    found = tables()
    assert sorted(found) == sorted(each.name for each in _files())
    for area in found:
        assert hasattr(test_restarts if area == "restarts" else test_behaviours, f"test_{area}")


def test_there_are_at_least_120_behaviours() -> None:
    assert sum(len(table.behaviours) for table in tables().values()) >= 120


def test_names_are_unique_and_differences_are_requirements() -> None:
    for table in tables().values():
        names = [each.name for each in table.behaviours]
        assert len(names) == len(set(names))
        for each in table.behaviours:
            assert not each.differs or REQUIREMENT.fullmatch(each.differs), each


def test_docs_name_only_what_exists() -> None:
    """Every `file::name` in docs/support.md, where the file is a test file or an area of this table."""
    found = tables()
    text = (ROOT / "docs" / "support.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/.]+)::(\w+)`", text)
    assert len(named) > 100
    for file, name in named:
        area = file.removesuffix(".py")
        if area in found:
            assert name in {each.name for each in found[area].behaviours}, f"{file}::{name}"
        else:
            assert re.search(rf"^ *(async )?def {name}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE), (
                f"{file}::{name}"
            )


def test_docs_name_every_area() -> None:
    text = (ROOT / "docs" / "support.md").read_text(encoding="utf-8")
    for area in tables():
        assert f"`{area}.py::" in text, area
