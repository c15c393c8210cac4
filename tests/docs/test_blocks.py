"""Every code block of the documentation is run as it stands, or says why it is not, and is linted."""

from __future__ import annotations

import ast
import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.docs.blocks import NO_CODE, Block, all_blocks, blocks_of, pages
from tests.docs.running import Reader

RUNNABLE = ("python", "sh", "http", "json", "yaml")
FOREIGN = ("java", "csharp", "sql", "xml", "ini")
"""Of these there is no tool here to lint with; they must be marked."""
MARKS = Counter(
    {
        "needs Spark": 17,
        "is the test run": 3,
        "needs the cloud service": 2,
        "needs Celery": 2,
        "needs a published release": 2,
        "needs root": 1,
        "needs Java": 1,
        "needs a second bus": 1,
        "needs PostgreSQL": 3,
        "needs .NET": 1,
    }
)
"""How many blocks are not run, by their reason. Whoever adds one changes this, and is asked why in a review."""


def to_run(page: str) -> list[Block]:
    return [block for block in blocks_of(page) if block.language not in NO_CODE and not block.not_run]


@pytest.mark.parametrize("page", [page for page in pages() if to_run(page)])
def test_a_page_does_what_it_says(page: str, tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        for block in to_run(page):
            wrong = reader.run(block)
            assert wrong is None, f"{block.place}\n{block.code}\n{wrong}"


def test_every_block_says_what_it_is() -> None:
    known = (*RUNNABLE, *FOREIGN, *NO_CODE)
    assert [block.place for block in all_blocks() if block.language not in known] == []
    unmarked = [block.place for block in all_blocks() if block.language in FOREIGN and not block.not_run]
    assert unmarked == []


def test_what_is_not_run_is_counted() -> None:
    assert Counter(block.not_run for block in all_blocks() if block.not_run) == MARKS


@pytest.mark.parametrize("block", [block for block in all_blocks() if block.not_run], ids=lambda block: block.place)
def test_what_is_not_run_is_linted(block: Block) -> None:
    if block.language == "python":
        ast.parse(block.code)
    elif block.language == "sh":
        subprocess.run(["bash", "-n", "-c", block.code], check=True)
    elif block.language == "json":
        json.loads(block.code)
    elif block.language == "yaml":
        yaml.safe_load(block.code)
    else:
        assert block.language in FOREIGN
        assert block.code.strip()
