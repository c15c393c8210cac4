"""All commands, one file each."""

from __future__ import annotations

import typer

from polybus.cli.serve import serve

app = typer.Typer(
    name="polybus",
    help="A service bus that speaks Azure Service Bus's own protocols.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serve)


@app.callback()
def polybus() -> None:
    """A service bus that speaks Azure Service Bus's own protocols, with partitioned queues and topics."""
