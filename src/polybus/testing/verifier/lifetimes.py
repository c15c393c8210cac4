"""From when a message can have expired, and from when it must have."""

from __future__ import annotations

from polybus.testing.verifier.contents import EntityOptions
from polybus.testing.verifier.ledger import MessageRecord, Send


def ttl_ms(options: EntityOptions, send: Send) -> int | None:
    """The shorter of the entity's and the message's own time-to-live."""
    own = send.span.event.ttl_ms
    if options.ttl_ms is None:
        return own
    return options.ttl_ms if own is None else min(own, options.ttl_ms)


def may_have_expired(options: EntityOptions, record: MessageRecord, wall_ms: int) -> bool:
    """True where any copy of the message can have expired by then."""
    for send in record.sends:
        ttl = ttl_ms(options, send)
        if ttl is None:
            continue
        if max(send.span.wall_from_ms, send.span.event.due_ms or 0) + ttl <= wall_ms:
            return True
    return False


def due_ms(record: MessageRecord) -> int:
    """Before this wall time no copy of the message may be delivered."""
    dues = [send.span.event.due_ms or 0 for send in record.sends]
    return min(dues, default=0)
