"""All commands, one file each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from polybus.cli import access, contexts, nodes, pipelines, rules
from polybus.cli.backup import backup, restore
from polybus.cli.bench import bench
from polybus.cli.check import check
from polybus.cli.client import client_command
from polybus.cli.demo import demo
from polybus.cli.deploy import deploy
from polybus.cli.doctor import doctor
from polybus.cli.entities import QUEUE, SUBSCRIPTION, TOPIC, entity_commands
from polybus.cli.export import export
from polybus.cli.health import healthcheck, print_version, version
from polybus.cli.many import dead_letter, deferred, purge, scheduled, sessions
from polybus.cli.overview import partitions, stores
from polybus.cli.receive import peek, receive
from polybus.cli.send import send
from polybus.cli.serve import serve
from polybus.cli.trace import trace
from polybus.cli.transfer.command import move_in, move_out
from polybus.cli.watching import tail, top

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
    *(send, receive, peek, tail, purge, sessions),
    *(top, partitions, stores, bench, deploy, export, trace, move_out, move_in, healthcheck),
)
for _work in _CLIENTS:
    app.command()(client_command(_work))
app.add_typer(entity_commands(QUEUE), name="queue")
app.add_typer(entity_commands(TOPIC), name="topic")
app.add_typer(entity_commands(SUBSCRIPTION), name="subscription")
app.add_typer(rules.app, name="rule")
app.add_typer(access.app, name="keys")
app.add_typer(dead_letter, name="dead-letter")
app.add_typer(scheduled, name="scheduled")
app.add_typer(deferred, name="deferred")
app.add_typer(pipelines.app, name="pipelines")
app.add_typer(contexts.app, name="contexts")
app.add_typer(nodes.app, name="nodes")
app.command()(doctor)
app.command()(check)
app.command()(backup)
app.command()(restore)
app.command()(version)


Version = Annotated[
    bool, typer.Option("--version", callback=print_version, is_eager=True, help="Which version this is.")
]


@app.callback()
def polybus(version: Version = False) -> None:
    """A service bus that speaks Azure Service Bus's own protocols, with partitioned queues and topics."""
