"""What a forge and pre-commit would run is well formed, and names what is there."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))
HOOKS = ROOT / ".pre-commit-config.yaml"


def validated(schema: str, path: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def jobs_of(path: Path) -> dict[str, Any]:
    jobs: dict[str, Any] = yaml.safe_load(path.read_text())["jobs"]
    return jobs


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_the_forges_form(path: Path) -> None:
    validated("vendor.github-workflows", path)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_scripts_and_folders_that_exist(path: Path) -> None:
    for job in jobs_of(path).values():
        for step in job["steps"]:
            for command in re.findall(r"^(scripts/[\w-]+)(.*)$", step.get("run", ""), re.MULTILINE):
                assert (ROOT / command[0]).exists(), command
                if command[0] == "scripts/test":
                    missing = [word for word in command[1].split() if not (ROOT / "tests" / word).exists()]
                    assert missing == []


def test_tests_run_on_every_python_that_is_promised_on_both_systems_and_in_both_builds() -> None:
    promised = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    pythons = [each.rsplit(" ", 1)[1] for each in promised if re.search(r":: 3\.\d+$", each)]
    matrix = jobs_of(ROOT / ".github" / "workflows" / "tests.yml")["tests"]["strategy"]["matrix"]
    assert matrix["python"] == pythons
    assert matrix["os"] == ["ubuntu-latest", "macos-latest"]
    assert matrix["build"] == ["plain", "compiled"]


def test_hooks_are_local_and_run_files_that_exist() -> None:
    config = yaml.safe_load(HOOKS.read_text())
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    for hook in config["repos"][0]["hooks"]:
        missing = [word for word in hook["entry"].split() if word.startswith("tests/") and not (ROOT / word).exists()]
        assert missing == []
        assert hook["language"] == "system"
