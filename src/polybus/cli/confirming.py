"""The question before something is destroyed. Scripts answer it with --yes; without a terminal nobody can be asked."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from polybus.cli.output import USAGE, CommandFailure

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(what: str, yes: bool) -> None:
    """Goes on only if somebody wants it."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandFailure(f"{what}: nobody can be asked here; say --yes", USAGE)
    if not typer.confirm(f"{what}?", err=True):
        raise CommandFailure("nothing was done", USAGE)
