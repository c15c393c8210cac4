"""`polybus move-in` and `polybus move-out`: everything that one bus has, moved to another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from polybus.cli.client import Client
from polybus.cli.endpoint import Endpoint
from polybus.cli.transfer.entities import Copier
from polybus.cli.transfer.journal import TransferJournal
from polybus.cli.transfer.messages import HELPER, TransferPlace

File = Annotated[Path, typer.Option("--journal", help="What is done, for whoever has to go on.")]
OtherCa = Annotated[Path | None, typer.Option("--other-ca", help="Certificate authority of the other bus (PEM).")]
EntitiesOnly = Annotated[bool, typer.Option("--entities-only", help="No messages.")]


def move_in(
    client: Client,
    source: Annotated[str, typer.Option("--from", help="Connection string of the bus to move from.")],
    journal: File = Path("polybus-transfer.jsonl"),
    other_ca: OtherCa = None,
    entities_only: EntitiesOnly = False,
) -> None:
    """Moves entities and messages from another bus to this one."""
    with Client(Endpoint(source, other_ca), client.out) as other:
        transfer(other, client, journal, entities_only)


def move_out(
    client: Client,
    target: Annotated[str, typer.Option("--to", help="Connection string of the bus to move to.")],
    journal: File = Path("polybus-transfer.jsonl"),
    other_ca: OtherCa = None,
    entities_only: EntitiesOnly = False,
) -> None:
    """Moves entities and messages from this bus to another."""
    with Client(Endpoint(target, other_ca), client.out) as other:
        transfer(client, other, journal, entities_only)


def transfer(source: Client, target: Client, path: Path, entities_only: bool) -> None:
    journal = TransferJournal(path, source.endpoint.authority, target.endpoint.authority)
    copier = Copier(source, target)
    try:
        copier.copy()
        places = [] if entities_only else _move(source, target, journal)
        copier.forward()
    finally:
        journal.close()
    told = {
        "entities": {"created": copier.created, "present": copier.present},
        "messages": {
            place.path: {"moved": place.moved, "resumed": place.resumed, "left": left} for place, left in places
        },
    }
    lines = [f"{copier.created} entities created, {copier.present} were there"]
    lines += [
        f"{place.path}: {place.moved} moved, {place.resumed} were there from before, {left} left at the source"
        for place, left in places
    ]
    target.out.result(told, "\n".join(lines))


def _move(source: Client, target: Client, journal: TransferJournal) -> list[tuple[TransferPlace, int]]:
    admin = source.admin
    found: list[tuple[TransferPlace, int]] = []
    for queue in admin.list_queues():
        if queue.name != HELPER:
            found.append(_moved(TransferPlace(source, target, journal, queue, None), queue))
    for topic in admin.list_topics():
        subscriptions = list(admin.list_subscriptions(topic.name))
        if subscriptions:
            _ensure_helper(target)
        for each in subscriptions:
            place = TransferPlace(source, target, journal, each, topic.name)
            place.pass_on()
            found.append(_moved(place, each))
    _drop_helper(target)
    return found


def _moved(place: TransferPlace, described: Any) -> tuple[TransferPlace, int]:
    """The place, when its messages have been moved, and how many it still has."""
    if not described.forward_dead_lettered_messages_to:
        place.move_dead_letters()
    if not described.forward_to:
        place.move_messages()
    return place, int(place.counts().total_message_count)


def _ensure_helper(target: Client) -> None:
    if HELPER not in [each.name for each in target.admin.list_queues()]:
        target.admin.create_queue(HELPER)


def _drop_helper(target: Client) -> None:
    if HELPER in [each.name for each in target.admin.list_queues()]:
        target.admin.delete_queue(HELPER)
