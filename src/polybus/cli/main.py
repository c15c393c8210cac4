"""The command line's entry: `polybus serve`, and the commands that are clients of a running bus."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line, or says what to install."""
    try:
        import typer  # noqa: F401
    except ImportError:
        print("polybus: the command line needs: pip install 'polybus[cli]'", file=sys.stderr)
        sys.exit(2)
    from polybus.cli.app import app

    app()
