"""The command line's entry: `polybus serve`, and the commands that are clients of a running bus."""

from __future__ import annotations


def main() -> None:
    """Runs the command line."""
    from polybus.cli.app import app

    app()
