"""From when a message can have expired, and from when it must have; when a scheduled one is due."""

from __future__ import annotations

from polybus.testing.history import OK
from polybus.testing.verifier.contents import EntityOptions
from polybus.testing.verifier.ledger import MessageRecord, Send
from polybus.testing.verifier.timeline import Span


def ttl_ms(options: EntityOptions, send: Send) -> int | None:
    """The shorter of the entity's and the message's own time-to-live."""
    own = send.span.event.ttl_ms
    if options.ttl_ms is None:
        return own
    return options.ttl_ms if own is None else min(own, options.ttl_ms)


def may_have_expired(options: EntityOptions, record: MessageRecord, wall_ms: int) -> bool:
    """True where any copy of the message can have expired by then."""
    moved_to = [span.event.due_ms or 0 for span in record.reschedules]
    for send in record.sends:
        ttl = ttl_ms(options, send)
        if ttl is None:
            continue
        if max(send.span.wall_from_ms, min([send.span.event.due_ms or 0, *moved_to])) + ttl <= wall_ms:
            return True
    return False


def may_have_expired_dead(options: EntityOptions, record: MessageRecord, wall_ms: int) -> bool:
    """True where a dead letter of the message can have reached the end of its own time-to-live by then."""
    lifetime = options.dead_letter_ttl_ms
    if lifetime is None:
        return False
    died = [span.wall_from_ms for span in record.deaths]
    if options.max_delivery_count is not None:
        died += [span.wall_from_ms for copy in record.copies.values() for span in copy.deliveries]
    if options.dead_letter_on_expiry and may_have_expired(options, record, wall_ms - lifetime):
        return True
    return any(at + lifetime <= wall_ms for at in died)


def due_ms(record: MessageRecord, by: Span | None = None) -> int:
    """Before this wall time no copy of the message may be delivered, by what was said before a delivery."""
    dues = [send.span.event.due_ms or 0 for send in record.sends]
    if record.only_send is not None and record.reschedules and dues[0]:
        return min(_possible_dues(dues[0], record.reschedules, by))
    return min([*dues, *(span.event.due_ms or 0 for span in record.reschedules)], default=0)


def _possible_dues(first_ms: int, reschedules: list[Span], by: Span | None) -> list[int]:
    """An acknowledged time replaces those before it; one that was under way with it, or is unknown, may hold as well."""
    certain = [span for span in reschedules if span.event.outcome == OK and (by is None or span.ended < by.began)]
    if not certain:
        return [first_ms, *(span.event.due_ms or 0 for span in reschedules)]
    last = max(certain, key=lambda span: span.began)
    return [span.event.due_ms or 0 for span in reschedules if span.ended >= last.began]
