"""What a peer may cost (`limits.PEER_COSTS`): the docs say the same, and every limit there is one that holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from polybus import limits

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "polybus"
NAMED = sorted({name for cost in limits.PEER_COSTS for name in (*cost.before, *cost.after)})


def shown(name: str) -> str:
    """A limit as the page has it."""
    value = getattr(limits, name)
    if name.endswith("_BYTES") and value % 1024 == 0:
        large = value % (1024 * 1024) == 0
        return f"{value // (1024 * 1024) if large else value // 1024:,} {'MiB' if large else 'KiB'} (`{name}`)"
    return f"{value:,} (`{name}`)" if isinstance(value, int) else f"{value:g} (`{name}`)"


def row(cost: limits.PeerCost) -> str:
    before, after = (", ".join(map(shown, names)) or "nothing" for names in (cost.before, cost.after))
    return f"| {cost.what} | {before} | {after} |"


def test_the_page_on_security_has_the_limits_as_they_are() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    table = re.search(
        r"^\| \| before it is known \| after \|\n\| --- \| --- \| --- \|\n((?:\|.*\n)+)", page, re.MULTILINE
    )
    assert table is not None
    assert table[1] == "".join(row(cost) + "\n" for cost in limits.PEER_COSTS)


@pytest.mark.parametrize("name", NAMED)
def test_a_limit_that_is_named_is_one_that_something_looks_at(name: str) -> None:
    users = [path for path in SOURCES.rglob("*.py") if path.name != "limits.py" and name in path.read_text("utf-8")]
    assert users or name == "LOOP_STEP_MS", "it bounds nothing"  # that one is what the others are chosen for


def test_bytes_descriptors_seconds_and_cpu_are_there() -> None:
    said = " ".join(cost.what for cost in limits.PEER_COSTS)
    assert [word for word in ("bytes", "descriptors", "seconds", "CPU") if word not in said] == []
