"""The list of rules that are taken away (tests/mutations.toml) fits the tree. scripts/mutations.py runs it."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
OUTSIDE = {"H1", "H3", "H4", "P1"}
"""Clients of other languages, a browser and Spark: their tests take minutes, and what they reach is the API of H2."""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutations_script", ROOT / "scripts" / "mutations.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


def test_every_rule_is_where_the_list_says(script: ModuleType) -> None:
    assert [each.rule for each in script.mutations() if not each.is_there()] == []


def test_every_test_that_must_notice_is_there(script: ModuleType) -> None:
    words = [word for each in script.mutations() for word in each.test.split() if word.startswith("tests/")]
    assert [word for word in words if not (ROOT / word.partition("::")[0]).exists()] == []


def test_every_requirement_has_a_rule_that_is_taken_away(script: ModuleType) -> None:
    known = tomllib.loads((ROOT / "tests" / "requirements" / "requirements.toml").read_text(encoding="utf-8"))
    covered = {name for each in script.mutations() for name in each.ids}
    assert set(known) - covered == OUTSIDE


def test_rules_are_named_once(script: ModuleType) -> None:
    rules = [each.rule for each in script.mutations()]
    assert len(set(rules)) == len(rules)
