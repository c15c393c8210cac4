"""What the broker lays over a sender's message: changed properties and marks that the bytes do not have.

Kept small and mostly absent: a message that was only sent and received has none. It is stored beside the
sender's bytes and merged with them when the message goes out.
"""

from __future__ import annotations

from typing import Final

from polybus.amqp.codec import decode, encode
from polybus.errors import StoreCorrupt


class Removed:
    """The value of a property that was taken away."""

    def __repr__(self) -> str:
        return "REMOVED"


REMOVED: Final = Removed()

DEAD_LETTER_REASON: Final = "DeadLetterReason"
DEAD_LETTER_DESCRIPTION: Final = "DeadLetterErrorDescription"
RULE_NAME: Final = "RuleName"

NO_TTL: Final = 1 << 62
"""A time-to-live that lifts the sender's: what has died once and is sent on does not die of it again."""


class Overlay:
    """Changes to application properties and to fields of the properties section, and the broker's own marks."""

    __slots__ = ("application", "dead_letter_source", "fields", "hops", "retry_ms", "ttl_ms")

    def __init__(self) -> None:
        self.application: dict[str, object] = {}
        """Name to new value, or REMOVED."""
        self.fields: dict[int, object] = {}
        """Position in the properties list to new value, or None where it is taken away."""
        self.dead_letter_source: str | None = None
        self.hops = 0
        self.ttl_ms = -1
        """Takes the place of the sender's time-to-live where it is not negative."""
        self.retry_ms = 0
        """When a deferred message becomes active again by itself, as it was read; its entry knows it from then on."""

    def copy(self) -> Overlay:
        other = Overlay()
        other.application = dict(self.application)
        other.fields = dict(self.fields)
        other.dead_letter_source = self.dead_letter_source
        other.hops = self.hops
        other.ttl_ms = self.ttl_ms
        return other

    def change(self, properties: dict[str, object]) -> None:
        """Sets properties that a client asked to modify; None takes one away (docs/protocol/amqp.md#outcomes)."""
        for name, value in properties.items():
            self.application[str(name)] = REMOVED if value is None else value

    def to_bytes(self, retry_ms: int = 0) -> bytes:
        """The stored form; `retry_ms` is of the entry, for what moves on takes no such time with it."""
        changed = {name: value for name, value in self.application.items() if value is not REMOVED}
        removed = [name for name, value in self.application.items() if value is REMOVED]
        fields = [[position, value] for position, value in self.fields.items()]
        stored: list[object] = [changed, removed, fields, self.dead_letter_source, self.hops, self.ttl_ms]
        return encode([*stored, retry_ms] if retry_ms else stored)


def laid_over(overlay: Overlay | None, field: int, sent: str | None) -> str | None:
    """A text of the properties section: as it was changed since, else as its sender wrote it."""
    if overlay is None or field not in overlay.fields:
        return sent
    changed = overlay.fields[field]
    return changed if isinstance(changed, str) else None


def overlay_from_bytes(data: bytes) -> Overlay:
    value, _ = decode(data, 0)
    if not isinstance(value, list) or len(value) < 6:
        raise StoreCorrupt("an overlay does not have its six fields")
    overlay = Overlay()
    changed, removed, fields, source, hops, ttl_ms = value[:6]
    overlay.application = {str(name): item for name, item in changed.items()}
    for name in removed:
        overlay.application[str(name)] = REMOVED
    overlay.fields = {int(position): item for position, item in fields}
    overlay.dead_letter_source = None if source is None else str(source)
    overlay.hops = int(hops)
    overlay.ttl_ms = int(ttl_ms)
    if len(value) > 6:
        overlay.retry_ms = int(value[6])
    return overlay
