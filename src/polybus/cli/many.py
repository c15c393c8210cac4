"""`polybus dead-letter`, `scheduled`, `deferred`, `sessions` and `purge`: messages that no receiver is waiting for.

Lists and single messages go through the official SDK, as on the cloud service; what is done to many at once are verbs
of the bus.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from polybus.cli.client import Client, client_command, json_of
from polybus.cli.completing import entity_argument
from polybus.cli.confirming import Yes
from polybus.cli.jobs import DryRun, Filter, choice, choosing, work
from polybus.cli.messages import address_of, message_data, show_message
from polybus.cli.output import CommandOutput, plain
from polybus.cli.receive import (
    BodyOnly,
    Session,
    Settle,
    Subscription,
    message_row,
    receiver_of,
    settle_message,
    show_table,
)
from polybus.limits import CLI_PAGE
from polybus.namespace.entities.names import Address, parse_address

Entity = Annotated[str, entity_argument("A queue, or TOPIC/Subscriptions/NAME.")]
Numbers = Annotated[list[int], typer.Argument(help="Their numbers.", show_default=False)]
Count = Annotated[int, typer.Option(min=1, help="At most so many.")]


class State(enum.StrEnum):
    ACTIVE = "active"
    DEFERRED = "deferred"
    SCHEDULED = "scheduled"
    DEAD_LETTERED = "dead-lettered"


def _group(text: str, **commands: Callable[..., None]) -> typer.Typer:
    app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=text)
    for name, function in commands.items():
        app.command(name)(client_command(function))
    return app


def _found(client: Client, address: Address, state: str | None, session: str | None) -> Iterator[Any]:
    """All messages in a state, in the order of their numbers."""
    start = 0
    with receiver_of(client, address, session, False, 5, delete=False) as receiver:
        while messages := receiver.peek_messages(CLI_PAGE, sequence_number=start):
            yield from (each for each in messages if state is None or each.state.name.lower() == state)
            start = messages[-1].sequence_number + 1


def _show(client: Client, address: Address, state: str | None, session: str | None, count: int, body: bool) -> None:
    rows = []
    for number, message in enumerate(_found(client, address, state, session)):
        if number == count:
            break
        if client.out.as_json or body:
            show_message(client.out, message, body)
        row = message_row(message)
        rows.append(row | {"enqueued": message.scheduled_enqueue_time_utc} if state == "scheduled" else row)
    if not client.out.as_json and not body:
        what = {"scheduled": "scheduled messages", "deferred": "deferred messages"}.get(state or "", "dead letters")
        show_table(client.out, rows, f"no {what} in {address.path}", due=state == "scheduled")


def _dead(entity: str, subscription: str | None, transfer: bool = False) -> Address:
    return address_of(entity, subscription, not transfer, transfer)


Transfer = Annotated[bool, typer.Option("--transfer", help="Those that could not be forwarded.")]


def _dead_list(
    client: Client,
    entity: Entity,
    subscription: Subscription = None,
    count: Count = 20,
    transfer: Transfer = False,
    body: BodyOnly = False,
) -> None:
    """Shows dead letters with the reason of their death, and changes nothing."""
    _show(client, _dead(entity, subscription, transfer), None, None, count, body)


@choosing
def _dead_resubmit(
    client: Client,
    entity: Entity,
    chosen: dict[str, Any],
    number: Annotated[list[int] | None, typer.Argument(help="These only; else all.", show_default=False)] = None,
    subscription: Subscription = None,
    to: Annotated[str | None, typer.Option(help="Another queue or topic than where each died.")] = None,
    rate: Annotated[int | None, typer.Option(min=1, help="Messages in a second, at most.")] = None,
    keep_reason: Annotated[
        bool, typer.Option("--keep-reason", help="With the properties that tell the death.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Sends dead letters to where they died, or elsewhere, each exactly once."""
    edit = {} if keep_reason else {"properties": {"DeadLetterReason": None, "DeadLetterErrorDescription": None}}
    address = _dead(entity, subscription)
    if number:
        _resubmit_numbers(client, address, number, to, edit)
        return
    body: dict[str, Any] = chosen | ({"edit": edit} if edit else {})
    body |= {name: value for name, value in (("to", to), ("rate", rate)) if value is not None}
    work(client, address, "redrive", body, done="resubmitted", dry_run=dry_run)


def _resubmit_numbers(
    client: Client, address: Address, numbers: list[int], to: str | None, edit: dict[str, Any]
) -> None:
    body: dict[str, Any] = {"numbers": numbers, "to": to or Address(address.entity, address.subscription).path}
    body["edits"] = {str(each): edit for each in numbers} if edit else {}
    path = f"/$polybus/entities/{_quoted(address)}/move"
    result = json_of(client.ask("POST", path, body))
    left = ", ".join(
        f"{name}: {' '.join(map(str, result[name]))}" for name in ("missing", "locked") if result.get(name)
    )
    client.out.result(
        result, f"resubmitted {len(result['moved'])} of {len(numbers)}" + (f" ({left})" if left else "")
    )


@choosing
def _dead_purge(
    client: Client,
    entity: Entity,
    chosen: dict[str, Any],
    subscription: Subscription = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Removes dead letters for good."""
    address = _dead(entity, subscription)
    question = f"remove from {address.path}"
    work(client, address, "purge", chosen, done="removed", dry_run=dry_run, yes=yes, question=question)


def _dead_export(
    client: Client,
    entity: Entity,
    to: Annotated[Path, typer.Option("--to", help="A file: one message as JSON on each line.")],
    subscription: Subscription = None,
) -> None:
    """Writes all dead letters into a file, and leaves them where they are."""
    written = 0
    with to.open("w", encoding="utf-8") as file:
        for message in _found(client, _dead(entity, subscription), None, None):
            file.write(json.dumps(message_data(message), default=plain) + "\n")
            written += 1
    client.out.result({"written": written, "to": str(to)}, f"{written:,} dead letters written to {to}")


dead_letter = _group(
    "Dead letters: list, resubmit, purge, export.",
    list=_dead_list,
    resubmit=_dead_resubmit,
    purge=_dead_purge,
    export=_dead_export,
)


def _scheduled_list(client: Client, entity: Entity, count: Count = 20, body: BodyOnly = False) -> None:
    """Shows scheduled messages and when they are due."""
    _show(client, parse_address(entity), "scheduled", None, count, body)


def _scheduled_cancel(
    client: Client,
    entity: Entity,
    number: Annotated[list[int] | None, typer.Argument(help="Their numbers.", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them, or those that --filter chooses.")] = False,
    condition: Filter = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Takes scheduled messages back before they are due."""
    if number and not everything:
        with client.sender(entity) as sender:
            sender.cancel_scheduled_messages(number)
        client.out.result({"cancelled": number}, f"cancelled {len(number)}")
        return
    if not everything or number:
        raise typer.BadParameter("give numbers, or --all")
    address = parse_address(entity)
    body = choice(None, None, condition, None)
    work(client, address, "scheduled/cancel", body, done="cancelled", dry_run=dry_run, yes=yes, question="cancel")


scheduled = _group("Scheduled messages: list, cancel.", list=_scheduled_list, cancel=_scheduled_cancel)


def _deferred_list(
    client: Client,
    entity: Entity,
    subscription: Subscription = None,
    session: Session = None,
    count: Count = 20,
    body: BodyOnly = False,
) -> None:
    """Shows deferred messages, which only their numbers bring back."""
    _show(client, address_of(entity, subscription, False, False), "deferred", session, count, body)


def _deferred_receive(
    client: Client,
    entity: Entity,
    number: Numbers,
    subscription: Subscription = None,
    session: Session = None,
    settle: Annotated[Settle, typer.Option(help="What becomes of each.")] = Settle.COMPLETE,
    body: BodyOnly = False,
) -> None:
    """Receives deferred messages by their numbers, shows and settles them."""
    address = address_of(entity, subscription, False, False)
    with receiver_of(client, address, session, False, 5, delete=False) as receiver:
        for each in number:  # numbers of several partitions do not go into one call
            for message in receiver.receive_deferred_messages([each]):
                show_message(client.out, message, body)
                settle_message(receiver, message, settle, None)


@choosing
def _deferred_restore(
    client: Client,
    entity: Entity,
    chosen: dict[str, Any],
    subscription: Subscription = None,
    dry_run: DryRun = False,
) -> None:
    """Makes deferred messages active again, so that any receiver gets them."""
    address = address_of(entity, subscription, False, False)
    work(client, address, "undefer", chosen, done="restored", dry_run=dry_run)


deferred = _group(
    "Deferred messages: list, receive, restore.",
    list=_deferred_list,
    receive=_deferred_receive,
    restore=_deferred_restore,
)


@choosing
def purge(
    client: Client,
    entity: Entity,
    state: Annotated[State, typer.Option(help="Which messages.", show_default=False)],
    chosen: dict[str, Any],
    subscription: Subscription = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Removes messages of one state for good: counts them, asks, and shows how far it is."""
    address = address_of(entity, subscription, False, False)
    body = chosen | {"state": state.value}
    question = f"remove from {address.path}, {state.value},"
    work(client, address, "purge", body, done="removed", dry_run=dry_run, yes=yes, question=question)


def sessions(client: Client, entity: Entity, subscription: Subscription = None, count: Count = 100) -> None:
    """Shows the sessions that have messages, a state or a holder."""
    address = address_of(entity, subscription, False, False)
    data = client.get_json(f"/$polybus/entities/{_quoted(address)}/sessions", limit=str(count))
    if client.out.as_json:
        client.out.json(data)
        return
    rows = [
        (each["session_id"], each["partition"], each["messages"], each["locked"], each["holder"], each["state_bytes"])
        for each in data["sessions"]
    ]
    columns = ("~session", "#partition", "#messages", "#locked", "~holder", "#state bytes")
    client.out.table("", columns, rows, f"no sessions in {address.path}")
    _warn_of_more(client.out, data)


def _warn_of_more(out: CommandOutput, data: dict[str, Any]) -> None:
    del out
    if data["unreachable"]:
        typer.echo(f"partitions {', '.join(map(str, data['unreachable']))} cannot be reached", err=True)
    if data["next"]:
        typer.echo("there are more; --count N shows them", err=True)


def _quoted(address: Address) -> str:
    from urllib.parse import quote

    return quote(address.path, safe="")
