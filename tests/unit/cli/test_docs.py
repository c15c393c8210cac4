"""The reference names every command, and of `serve` and the messages every option."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from polybus.cli.app import app

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
LISTED = ("serve", "send", "receive", "peek", "export", "check", "backup", "restore", "partitions")
EVIDENT = {"--help", "--subject", "--correlation-id", "--content-type", "--to", "--reply-to", "--reply-to-session"}
EVIDENT |= {"--partition-key", "--transfer-dead-letter"}
"""Options that say what they mean by their name."""


def commands() -> dict[str, object]:
    return dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def test_every_command_is_described() -> None:
    page = PAGE.read_text(encoding="utf-8")
    missing = [name for name in commands() if f"`{name}" not in page and f"`polybus {name}" not in page]
    assert missing == []


@pytest.mark.parametrize("name", LISTED)
def test_every_option_is_described(name: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    options = [
        word
        for parameter in commands()[name].params  # type: ignore[attr-defined]
        for word in parameter.opts
        if word.startswith("--")
    ]
    assert [word for word in options if word not in page and word not in EVIDENT] == []
