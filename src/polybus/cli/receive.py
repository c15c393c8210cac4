"""`polybus receive` and `polybus peek`: takes messages out of a queue or a subscription, or only looks at them."""

from __future__ import annotations

import enum
from typing import Annotated, Any

import typer

from polybus.cli.client import Client
from polybus.cli.completing import entity_argument
from polybus.cli.messages import address_of, body_of, show_message
from polybus.cli.output import CommandOutput
from polybus.cli.values import duration
from polybus.errors import ConfigError
from polybus.limits import CLI_PAGE
from polybus.namespace.entities.names import Address

Entity = Annotated[str, entity_argument("A queue, or TOPIC/Subscriptions/NAME.")]
Subscription = Annotated[str | None, typer.Option(help="A subscription of the topic ENTITY.")]
Session = Annotated[str | None, typer.Option(help="Only messages of this session.")]
NextSession = Annotated[bool, typer.Option("--next-session", help="Of the next session that is free.")]
DeadLetter = Annotated[bool, typer.Option("--dead-letter", help="From the dead-letter queue.")]
TransferDeadLetter = Annotated[bool, typer.Option("--transfer-dead-letter", help="Those that could not be moved on.")]
BodyOnly = Annotated[bool, typer.Option("--body", help="Print nothing but the bodies.")]


class Settle(enum.StrEnum):
    """What becomes of a message after it was shown."""

    COMPLETE = "complete"
    ABANDON = "abandon"
    DEFER = "defer"
    DEAD_LETTER = "dead-letter"
    NOTHING = "nothing"


def receive(
    client: Client,
    entity: Entity,
    subscription: Subscription = None,
    count: Annotated[int, typer.Option(min=1, help="At most so many.")] = 1,
    wait: Annotated[str, typer.Option(help="How long to wait for the next message.")] = "5s",
    settle: Annotated[Settle, typer.Option(help="What becomes of each.")] = Settle.COMPLETE,
    delete: Annotated[bool, typer.Option("--delete", help="Receive and delete, without a lock.")] = False,
    reason: Annotated[str | None, typer.Option(help="Of --settle dead-letter.")] = None,
    number: Annotated[list[int] | None, typer.Option("--number", help="Deferred messages by number.")] = None,
    session: Session = None,
    next_session: NextSession = False,
    dead_letter: DeadLetter = False,
    transfer_dead_letter: TransferDeadLetter = False,
    body_only: BodyOnly = False,
) -> None:
    """Receives messages, shows them and settles them. Ends when there are none for a while."""
    address = address_of(entity, subscription, dead_letter, transfer_dead_letter)
    seconds = duration(wait).total_seconds()
    with receiver_of(client, address, session, next_session, seconds, delete) as receiver:
        received = 0
        while received < count:
            messages = _next(receiver, number, min(count - received, CLI_PAGE), seconds)
            for message in messages:
                show_message(client.out, message, body_only)
                if not delete:
                    settle_message(receiver, message, settle, reason)
            received += len(messages)
            if not messages or number:
                break
    if not received and not client.out.as_json and not body_only:
        typer.echo(f"no message came within {wait}", err=True)


def _next(receiver: Any, numbers: list[int] | None, count: int, seconds: float) -> list[Any]:
    if numbers:
        return list(receiver.receive_deferred_messages(numbers))
    return list(receiver.receive_messages(max_message_count=count, max_wait_time=seconds))


def settle_message(receiver: Any, message: Any, settle: Settle, reason: str | None) -> None:
    if settle is Settle.COMPLETE:
        receiver.complete_message(message)
    elif settle is Settle.ABANDON:
        receiver.abandon_message(message)
    elif settle is Settle.DEFER:
        receiver.defer_message(message)
    elif settle is Settle.DEAD_LETTER:
        receiver.dead_letter_message(message, reason=reason)


def receiver_of(
    client: Client, address: Address, session: str | None, next_session: bool, seconds: float, delete: bool
) -> Any:
    from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceiveMode, ServiceBusSubQueue

    if session is not None and next_session:
        raise ConfigError("give --session or --next-session, not both")
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE if delete else ServiceBusReceiveMode.PEEK_LOCK
    options: dict[str, Any] = {"receive_mode": mode, "max_wait_time": seconds}
    if session is not None or next_session:
        options["session_id"] = NEXT_AVAILABLE_SESSION if session is None else session
    if address.sub_queue is not None:
        dead = address.sub_queue == "dead-letter"
        options["sub_queue"] = ServiceBusSubQueue.DEAD_LETTER if dead else ServiceBusSubQueue.TRANSFER_DEAD_LETTER
    client.check_key(address.entity)
    if address.subscription is not None:
        return client.messaging.get_subscription_receiver(address.entity, address.subscription, **options)
    return client.messaging.get_queue_receiver(address.entity, **options)


def peek(
    client: Client,
    entity: Entity,
    subscription: Subscription = None,
    count: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    start: Annotated[int, typer.Option("--from", help="The first number to look at.")] = 0,
    session: Session = None,
    next_session: NextSession = False,
    dead_letter: DeadLetter = False,
    transfer_dead_letter: TransferDeadLetter = False,
    body_only: BodyOnly = False,
) -> None:
    """Looks at messages in every state, in the order of their numbers, and changes nothing."""
    address = address_of(entity, subscription, dead_letter, transfer_dead_letter)
    shown = 0
    rows = []
    with receiver_of(client, address, session, next_session, 5, delete=False) as receiver:
        while shown < count:
            messages = receiver.peek_messages(min(count - shown, CLI_PAGE), sequence_number=start)
            for message in messages:
                if client.out.as_json or body_only:
                    show_message(client.out, message, body_only)
                rows.append(message_row(message))
            if not messages:
                break
            shown += len(messages)
            start = messages[-1].sequence_number + 1
    if not client.out.as_json and not body_only:
        show_table(client.out, rows, f"nothing in {address.path}")


_OPTIONAL = ("session", "subject", "reason")
_TABLE = ("#number", "state", "enqueued", "~id", "~session", "~subject", "~reason", "#tries", "~body")


def show_table(out: CommandOutput, rows: list[dict[str, object]], nothing: str, due: bool = False) -> None:
    """Messages as a table, without the columns in which nothing stands. With `due` their time is to come."""
    empty = {name for name in _OPTIONAL if not any(row[name] for row in rows)}
    names = [name for name in _TABLE if name.lstrip("#~") not in empty]
    columns = ["due" if due and name == "enqueued" else name for name in names]
    out.table("", columns, [[row[name.lstrip("#~")] for name in names] for row in rows], nothing)


def message_row(message: Any) -> dict[str, object]:
    body = body_of(message)
    text = body[:80].decode("utf-8", "replace").replace("\n", "⏎")
    return {
        "number": str(message.sequence_number),
        "state": message.state.name.lower(),
        "enqueued": message.enqueued_time_utc,
        "id": message.message_id,
        "session": message.session_id,
        "subject": message.subject,
        "reason": message.dead_letter_reason,
        "tries": message.delivery_count,
        "body": text + ("…" if len(body) > 80 else ""),
    }
