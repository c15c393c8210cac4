"""`polybus send`: puts messages into a queue or a topic."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from polybus.cli.client import Client
from polybus.cli.completing import entity_argument
from polybus.cli.output import when
from polybus.cli.progress import Progress
from polybus.cli.values import duration, moment, properties
from polybus.errors import ConfigError

_FIELDS = (
    "message_id",
    "session_id",
    "partition_key",
    "subject",
    "correlation_id",
    "content_type",
    "to",
    "reply_to",
    "reply_to_session_id",
)


def send(
    client: Client,
    entity: Annotated[str, entity_argument("A queue or a topic.")],
    body: Annotated[
        str | None, typer.Argument(help="The body; without it, standard input.", show_default=False)
    ] = None,
    file: Annotated[Path | None, typer.Option(help="A file that holds the body.")] = None,
    lines: Annotated[bool, typer.Option("--lines", help="One message for each line of the input.")] = False,
    count: Annotated[int, typer.Option(min=1, help="Send it so many times.")] = 1,
    batch: Annotated[int, typer.Option(min=1, help="Messages sent at once; they go to one partition.")] = 1,
    message_id: Annotated[str | None, typer.Option(help="With --count, a number is added.")] = None,
    session_id: Annotated[str | None, typer.Option("--session")] = None,
    partition_key: Annotated[str | None, typer.Option()] = None,
    subject: Annotated[str | None, typer.Option()] = None,
    correlation_id: Annotated[str | None, typer.Option()] = None,
    content_type: Annotated[str | None, typer.Option()] = None,
    to: Annotated[str | None, typer.Option()] = None,
    reply_to: Annotated[str | None, typer.Option()] = None,
    reply_to_session_id: Annotated[str | None, typer.Option("--reply-to-session")] = None,
    prop: Annotated[list[str] | None, typer.Option("--property", help="NAME=VALUE (repeatable).")] = None,
    ttl: Annotated[str | None, typer.Option(help="How long it lives: 30s, 5m, 14d, PT1H.")] = None,
    at: Annotated[str | None, typer.Option(help="Not before this time: 2026-01-31T12:00:00Z, or +5m.")] = None,
) -> None:
    """Sends messages. Scheduled ones are told by their numbers, with which they can be cancelled."""
    given = locals()
    fields = {name: given[name] for name in _FIELDS if given[name] is not None}
    if prop:
        fields["application_properties"] = properties(prop)
    if ttl is not None:
        fields["time_to_live"] = duration(ttl)
    bodies = _bodies(body, file, lines) * count
    due = None if at is None else moment(at)
    numbers = _send(client, entity, [_message(fields, *each) for each in _numbered(bodies, count)], due, batch)
    data: dict[str, Any] = {"entity": entity, "sent": len(bodies)}
    text = f"sent {len(bodies)} message{'s' if len(bodies) != 1 else ''} to {entity}"
    if due is not None:
        data["sequence_numbers"] = numbers
        listed = " ".join(map(str, numbers))
        text = f"scheduled {len(bodies)} for {when(due)}: {listed}\npolybus scheduled cancel {entity} {listed}"
    client.out.result(data, text)


def _bodies(body: str | None, file: Path | None, lines: bool) -> list[bytes]:
    if body is not None and file is not None:
        raise ConfigError("a message has one body: as an argument, from --file, or from standard input")
    if body is not None:
        raw = body.encode()
    else:
        raw = file.read_bytes() if file is not None else sys.stdin.buffer.read()
    return raw.splitlines() if lines else [raw]


def _numbered(bodies: list[bytes], count: int) -> list[tuple[bytes, str]]:
    """Each body with what is added to its message id, so that ids differ."""
    several = count > 1 or len(bodies) > 1
    return [(body, f"-{number}" if several else "") for number, body in enumerate(bodies, 1)]


def _message(fields: dict[str, Any], body: bytes, suffix: str) -> Any:
    from azure.servicebus import ServiceBusMessage

    own = dict(fields)
    if "message_id" in own:
        own["message_id"] += suffix
    return ServiceBusMessage(body, **own)


def _send(client: Client, entity: str, messages: list[Any], due: Any, batch: int) -> list[int]:
    numbers: list[int] = []
    with client.sender(entity) as sender, Progress("sent", len(messages)) as progress:
        for start in range(0, len(messages), batch):
            progress.at(start)
            some = messages[start : start + batch]
            if due is not None:
                numbers += sender.schedule_messages(some, due)
            else:
                sender.send_messages(some if batch > 1 else some[0])
    return numbers
