"""Messages arrive from another partition's outbox: exactly once, with this entity's own rules applied."""

from __future__ import annotations

from polybus.clock import Now
from polybus.errors import EntityNotFound
from polybus.message.message import Message
from polybus.message.overlay import Overlay
from polybus.partition import sending, transfers
from polybus.partition.broker import Broker
from polybus.partition.entry import Entry
from polybus.partition.log import DEAD_LETTER, KINDS, MAIN
from polybus.partition.output import Reply
from polybus.partition.sending import SESSION_NULL, mark_dead
from polybus.partition.storing import enter
from polybus.partition.transfers import ONE_SUBSCRIPTION, Transfer


def take_over(
    broker: Broker,
    now: Now,
    source: tuple[int, int],
    arriving: list[Transfer],
    rows: dict[bytes, object] | None,
    reply: Reply,
    context: object,
) -> None:
    """Stores what has not been seen from this source yet; replies after the commit."""
    fresh = [transfer for transfer in arriving if not transfers.seen(broker, source, transfer.number)]
    sending.check_size(broker, sum(transfer.message.size for transfer in fresh))
    wall_ms = broker.wall(now)
    for transfer in fresh:
        _take_one(broker, transfer, wall_ms, rows)
        transfers.note_seen(broker, source, transfer.number)
    broker.out().replies.append((reply, context, None))


def _take_one(broker: Broker, transfer: Transfer, wall_ms: int, rows: dict[bytes, object] | None) -> None:
    message, overlay = transfer.message, transfer.overlay
    if overlay is not None and ONE_SUBSCRIPTION in overlay.application:
        _into_subscription(broker, transfer, overlay, wall_ms)
    elif sending.is_duplicate(broker, message, wall_ms, rows):
        return
    elif broker.settings.own.requires_session and _session_of(message, overlay) is None:
        log = broker.log(DEAD_LETTER)
        entry = Entry(
            log,
            broker.next_sequence(broker.log(MAIN)),
            message,
            wall_ms,
            0,
            transfer.original,
            overlay,
            message.size,
        )
        mark_dead(entry, "Session ID is null.", SESSION_NULL, broker.settings.own.source)
        enter(broker, log, entry)
    else:
        sending.accept(broker, message, wall_ms, [], transfer.original, overlay)


def _session_of(message: Message, overlay: Overlay | None) -> object:
    if overlay is not None and 10 in overlay.fields:
        return overlay.fields[10]
    return message.session_id


def _into_subscription(broker: Broker, transfer: Transfer, overlay: Overlay, wall_ms: int) -> None:
    """A message moved to one subscription of a topic passes by the rules of the others."""
    overlay = overlay.copy()
    number = overlay.application.pop(ONE_SUBSCRIPTION)
    if not isinstance(number, int) or number not in broker.settings.subscriptions:
        raise EntityNotFound(
            f"The subscription that a message was moved to is gone from '{broker.settings.name}'."
        )
    log = broker.log(number * KINDS)
    message = transfer.message
    sequence = broker.next_sequence(log)
    entry = Entry(log, sequence, message, wall_ms, 0, transfer.original, overlay, message.size)
    sending.place(broker, log, entry, wall_ms, [])
