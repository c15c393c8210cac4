"""All commands, one file each."""

from __future__ import annotations

from collections.abc import Callable

import typer

from polybus.cli import pipelines, rules
from polybus.cli.backup import backup, restore
from polybus.cli.check import check
from polybus.cli.client import client_command
from polybus.cli.demo import demo
from polybus.cli.deploy import deploy
from polybus.cli.entities import QUEUE, SUBSCRIPTION, TOPIC, entity_commands
from polybus.cli.export import export
from polybus.cli.health import healthcheck, version
from polybus.cli.overview import partitions, stores
from polybus.cli.receive import peek, receive
from polybus.cli.send import send
from polybus.cli.serve import serve
from polybus.cli.transfer.command import move_in, move_out

app = typer.Typer(
    name="polybus",
    help="A service bus that speaks Azure Service Bus's own protocols.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serve)
app.command()(demo)
_CLIENTS: tuple[Callable[..., None], ...] = (
    send,
    receive,
    peek,
    partitions,
    stores,
    deploy,
    export,
    move_in,
    move_out,
    healthcheck,
)
for _work in _CLIENTS:
    app.command()(client_command(_work))
app.add_typer(entity_commands(QUEUE), name="queue")
app.add_typer(entity_commands(TOPIC), name="topic")
app.add_typer(entity_commands(SUBSCRIPTION), name="subscription")
app.add_typer(rules.app, name="rule")
app.add_typer(pipelines.app, name="pipelines")
app.command()(check)
app.command()(backup)
app.command()(restore)
app.command()(version)


@app.callback()
def polybus() -> None:
    """A service bus that speaks Azure Service Bus's own protocols, with partitioned queues and topics."""
