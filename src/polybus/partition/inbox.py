"""Messages arrive from another partition's outbox: exactly once, with this entity's own rules applied."""

from __future__ import annotations

from typing import Any

from polybus.clock import Now
from polybus.errors import EntityNotFound
from polybus.message.message import GROUP_ID
from polybus.message.overlay import Overlay, laid_over
from polybus.partition import sending, transfers
from polybus.partition.broker import Broker
from polybus.partition.data import OutboxMessage
from polybus.partition.entry import Entry
from polybus.partition.kinds import KINDS, MAIN
from polybus.partition.transfers import MOVED, RESERVED
from polybus.promise import C, Reply


def rows_needed(broker: Broker, arriving: list[OutboxMessage]) -> list[bytes]:
    """Keys of the rows that `take_over` must be given."""
    return sending.rows_of_ids(broker, [transfer.message_id for transfer in arriving])


def take_over(
    broker: Broker,
    now: Now,
    source: tuple[int, int],
    arriving: list[OutboxMessage],
    rows: dict[bytes, object] | None,
    reply: Reply[C, Any],
    context: C,
) -> None:
    """Stores what has not been seen from this source yet; replies after the commit.

    It raises where it cannot take all of them, and has then done nothing: offered one by one, those that can be
    taken are, and the refusal is that of the one message.
    """
    fresh = [transfer for transfer in arriving if not transfers.seen(broker, source, transfer.number)]
    for transfer in fresh:
        _check(broker, transfer)
    messages = [transfer.message for transfer in fresh]
    sending.check_size(broker, sum(message.size for message in messages))
    sending.check_ids(broker, [transfer.message_id for transfer in fresh], rows)
    wall_ms = broker.wall(now)
    broker.settings.own.accessed_ms = wall_ms
    for transfer in fresh:
        _take_one(broker, transfer, wall_ms, rows)
        transfers.note_seen(broker, source, transfer.number)
    broker.out().replies.append((reply, context, None))


def _check(broker: Broker, transfer: OutboxMessage) -> None:
    number = _subscription(transfer.overlay)
    if number is not None and number not in broker.settings.subscriptions:
        raise EntityNotFound(f"The subscription that a message was moved to is gone from '{broker.settings.name}'.")


def _subscription(overlay: Overlay | None) -> int | None:
    """The one subscription that a moved message is for."""
    number = None if overlay is None else overlay.application.get(MOVED)
    return int(number) if isinstance(number, int) and number else None


def _reserved(overlay: Overlay | None) -> int:
    """The number that was promised here to whoever scheduled the message; 0 where none was."""
    number = None if overlay is None else overlay.application.get(RESERVED)
    return int(number) if isinstance(number, int) else 0


def _moved(overlay: Overlay | None) -> bool:
    return overlay is not None and MOVED in overlay.application


def _take_one(broker: Broker, transfer: OutboxMessage, wall_ms: int, rows: dict[bytes, object] | None) -> None:
    message = transfer.message
    overlay = _own_overlay(transfer, wall_ms)
    number = _subscription(transfer.overlay)
    if number is not None:
        _into_subscription(broker, number, transfer, overlay, wall_ms)
    elif sending.is_duplicate(broker, transfer.message_id, wall_ms, rows) and not _moved(transfer.overlay):
        # A dead letter that is moved back has the id of its first life, and must not vanish for it.
        return
    elif broker.settings.own.requires_session and laid_over(overlay, GROUP_ID, message.session_id) is None:
        log = broker.logs[MAIN]
        sequence = broker.next_sequence(log)
        entry = Entry(log, sequence, message, wall_ms, 0, transfer.original, overlay, message.size)
        sending.mark_dead(broker, entry, sending.SESSION_REASON, sending.SESSION_NULL)
        sending.place_copy(broker, entry, wall_ms)
    else:
        sending.accept(broker, message, wall_ms, [], transfer.original, overlay, _reserved(transfer.overlay))


def _own_overlay(transfer: OutboxMessage, wall_ms: int) -> Overlay | None:
    """The overlay that the message has here: it lives as long as it would have lived where it came from."""
    overlay = transfer.overlay
    if overlay is None and not transfer.expires_ms:
        return None
    own = Overlay() if overlay is None else overlay.copy()
    own.application.pop(MOVED, None)
    own.application.pop(RESERVED, None)
    if transfer.expires_ms:
        own.ttl_ms = max(transfer.expires_ms - wall_ms, 0)
    return own


def _into_subscription(
    broker: Broker, number: int, transfer: OutboxMessage, overlay: Overlay | None, wall_ms: int
) -> None:
    """A message moved to one subscription of a topic passes by the rules of the others."""
    log = broker.log(number * KINDS)
    message = transfer.message
    sequence = broker.next_sequence(log)
    entry = Entry(log, sequence, message, wall_ms, 0, transfer.original, overlay, message.size)
    if log.settings.requires_session and entry.session_id() is None:
        sending.mark_dead(broker, entry, sending.SESSION_REASON, sending.SESSION_NULL)
    sending.place_copy(broker, entry, wall_ms)
