"""The code blocks of the documentation, as they stand on its pages.

A block says in its fence what it is. A comment right before it may say more:

<!-- not run: REASON -->        it needs what a test has not; it is linted instead, and counted by its reason
<!-- given: admin, client -->   names that its page takes for granted
<!-- file: config.json -->      a file of the reader's, under that name, for what follows

`text` is no code: output, a form, a drawing. Everything else is run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"(?:^<!-- (?P<word>not run|given|file): (?P<told>[^>]*?) -->\n)?"
    r"^(?P<indent> *)```(?P<language>[\w+-]*)[^\n]*\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
NO_CODE = ("text", "mermaid")
MADE = "<!-- Made by scripts/reference.py"


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    code: str
    not_run: str = ""
    """Why it cannot be run here; empty where it is."""
    given: tuple[str, ...] = ()
    file: str = ""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """All pages that people wrote; what is made from the code is checked against the code."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [
        path.relative_to(ROOT).as_posix() for path in found if not path.read_text(encoding="utf-8").startswith(MADE)
    ]


def blocks_of(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [_block(page, text, found) for found in BLOCK.finditer(text)]


def _block(page: str, text: str, found: re.Match[str]) -> Block:
    line = text.count("\n", 0, found.start("code"))
    code = re.sub(rf"^{found['indent']}", "", found["code"], flags=re.MULTILINE) if found["indent"] else found["code"]
    told = found["told"] or ""
    given = tuple(name.strip() for name in told.split(",")) if found["word"] == "given" else ()
    words = {"not run": "", "file": ""} | {found["word"]: told}
    return Block(page, line, found["language"], code, words["not run"], given, words["file"])


def all_blocks() -> list[Block]:
    return [block for page in pages() for block in blocks_of(page)]
