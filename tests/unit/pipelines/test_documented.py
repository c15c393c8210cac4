"""The declarations in the documentation are ones that the runner takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from polybus.pipelines.declaration import parse

DOCUMENT = Path(__file__).parents[3] / "docs" / "pipelines.md"
HEAD = "bus: {connectionStringEnv: BUS}\ncheckpoints: state\npipelines:\n"


def _blocks() -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("text", _blocks())
def test_a_declaration_of_the_documentation_can_be_read(text: str, tmp_path: Path) -> None:
    whole = text if "pipelines:" in text else HEAD + text
    for kind in parse(whole, "pipelines.md", tmp_path).pipelines:
        assert kind.describe()
        assert kind.entities()


def test_every_kind_has_its_section() -> None:
    from polybus.pipelines.kinds import KINDS

    text = DOCUMENT.read_text(encoding="utf-8")
    assert [kind for kind in KINDS if f"\n## {kind}\n" not in text] == []
