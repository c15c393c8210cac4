"""All commands, one file each."""

from __future__ import annotations

import typer

from polybus.cli import rules
from polybus.cli.backup import backup
from polybus.cli.check import check
from polybus.cli.entities import QUEUE, SUBSCRIPTION, TOPIC, entity_commands
from polybus.cli.serve import serve

app = typer.Typer(
    name="polybus",
    help="A service bus that speaks Azure Service Bus's own protocols.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serve)
app.command()(check)
app.command()(backup)
app.add_typer(entity_commands(QUEUE), name="queue")
app.add_typer(entity_commands(TOPIC), name="topic")
app.add_typer(entity_commands(SUBSCRIPTION), name="subscription")
app.add_typer(rules.app, name="rule")


@app.callback()
def polybus() -> None:
    """A service bus that speaks Azure Service Bus's own protocols, with partitioned queues and topics."""
