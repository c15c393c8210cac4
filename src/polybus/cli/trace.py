"""`polybus trace`: everything that happened to one message."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from polybus.cli.client import Client

_TRACE_ID = re.compile(r"[0-9a-f]{32}")


def trace(
    client: Client,
    name: Annotated[str, typer.Argument(metavar="ID", help="A message id, or the id of a trace.")],
    since: Annotated[str | None, typer.Option(help="Nothing older than this time (ISO 8601).")] = None,
    by_trace: Annotated[bool, typer.Option("--trace-id", help="ID is a trace's, though it may not look so.")] = False,
) -> None:
    """Follows a message through all entities that keep events (`PUT …/events`)."""
    key = "trace_id" if by_trace or _TRACE_ID.fullmatch(name) else "message_id"
    query = {key: name} if since is None else {key: name, "from": since}
    found = client.get_json("/$polybus/trace", **query)
    if client.out.as_json:
        client.out.json(found)
        return
    columns = ["time", "entity", "#partition", "change", "reason", "#number", "#deliveries"]
    names = ["time", "entity", "partition", "change", "reason", "sequence_number", "delivery_count"]
    client.out.table("", columns, [[row[each] for each in names] for row in found["trail"]])
    for what, text in (("without_events", "no events are kept by"), ("unreachable", "could not be reached:")):
        if found[what]:
            typer.echo(f"{text} {', '.join(found[what])}", err=True)
