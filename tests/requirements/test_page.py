"""docs/requirements.md names the tests that exist, and every requirement has one or is said to be open."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("requirements_script", ROOT / "scripts" / "requirements.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_names_the_tests_that_exist(script: ModuleType) -> None:
    written = script.PAGE.read_text(encoding="utf-8")
    assert written == script.page(), "run scripts/requirements.py --no-run"


def test_the_page_has_proof_of_every_requirement(script: ModuleType) -> None:
    assert script.unproven() == []


def test_the_page_has_proof_below_the_network_of_whatever_is_not_outside(script: ModuleType) -> None:
    tests = script.tests_by_id()
    core = {key for key, own in tests.items() if any(test.startswith("tests/requirements/core/") for test in own)}
    assert {key for key, row in script.requirements().items() if "outside" not in row} == core


def test_the_page_knows_every_id_that_a_test_carries(script: ModuleType) -> None:
    assert set(script.tests_by_id()) <= set(script.requirements())


def test_the_page_finds_what_it_names(script: ModuleType) -> None:
    named = [path for row in script.requirements().values() for path in row.get("also", [])]
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_page_has_no_results_of_another_commit(script: ModuleType) -> None:
    assert "| passed |" not in script.PAGE.read_text(encoding="utf-8")
    assert script.verdict(["a.py::test_a1_x", "a.py::test_a1_y"], {"test_a1_x": "passed"}) == "passed"
    assert script.verdict(["a.py::test_a1_x"], {"test_a1_x": "failed"}) == "failed"
    assert script.verdict(["a.py::test_a1_x"], {}) == "not run"
