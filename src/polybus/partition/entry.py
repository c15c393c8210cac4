"""One message in a broker's memory: at the head of its log, locked, or on its way in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polybus.message.message import GROUP_ID, MESSAGE_ID, Message
from polybus.message.overlay import Overlay, laid_over, overlay_from_bytes
from polybus.message.rendering import STATE_ACTIVE, STATE_DEFERRED, Marks
from polybus.partition.records import Stored

if TYPE_CHECKING:
    from polybus.partition.log import Log

NEVER: Final = 0
"""An `expires_ms` that means: does not expire."""


class Entry:
    """A message with the broker's marks. It belongs to one log and lives in its active or deferred table."""

    __slots__ = (
        "body",
        "deferred",
        "delivery_count",
        "enqueued_ms",
        "expires_ms",
        "gone",
        "holder",
        "lock",
        "locked_until_ms",
        "locked_until_wall_ms",
        "log",
        "message",
        "original",
        "overlay",
        "position",
        "rank",
        "retry_ms",
        "returning",
        "sequence",
        "size",
        "transaction",
    )

    def __init__(
        self,
        log: Log,
        sequence: int,
        message: Message | None,
        enqueued_ms: int,
        expires_ms: int,
        original: int,
        overlay: Overlay | None,
        size: int,
    ) -> None:
        self.log = log
        self.sequence = sequence
        self.rank = sequence
        self.position = 0
        self.message = message
        """None while the bytes are only in the store."""
        self.body = 0
        """The body record that holds the bytes, 0 where they are in the message's own record."""
        self.enqueued_ms = enqueued_ms
        self.expires_ms = expires_ms
        self.original = original
        self.overlay = overlay
        self.size = size
        self.delivery_count = 0
        self.deferred = False
        self.gone = False
        self.retry_ms = 0
        """When a deferred message becomes active again by itself; 0 where it waits to be fetched."""
        self.returning = False
        """In a log with sessions: its last delivery has ended, and that is not synced yet."""
        self.lock = 0
        self.locked_until_ms = 0
        self.locked_until_wall_ms = 0
        self.transaction: object | None = None
        self.holder: object | None = None
        """Whoever holds the lock, as far as the broker is told: a link, a session."""

    def loaded(self) -> Message:
        assert self.message is not None, "the message's bytes are not in memory"
        return self.message

    def session_id(self) -> str | None:
        return laid_over(self.overlay, GROUP_ID, self.loaded().session_id)

    def message_id(self) -> str | None:
        return laid_over(self.overlay, MESSAGE_ID, self.loaded().message_id)

    def own_overlay(self) -> Overlay:
        """The overlay, made when there is none; copied first, for copies of one message may share it."""
        self.overlay = Overlay() if self.overlay is None else self.overlay.copy()
        return self.overlay

    def marks(self, lock_token: bytes | None = None) -> Marks:
        return Marks(
            self.sequence,
            self.enqueued_ms,
            self.original,
            self.delivery_count,
            STATE_DEFERRED if self.deferred else STATE_ACTIVE,
            self.locked_until_wall_ms,
            self.overlay,
            lock_token,
        )


def entry_from(log: Log, stored: Stored, deferred: bool) -> Entry:
    """An entry read back from the store; its message is missing where the bytes are in a body record."""
    message = Message(stored.raw, True) if stored.body == 0 else None
    overlay = overlay_from_bytes(stored.overlay) if stored.overlay else None
    entry = Entry(
        log,
        stored.sequence,
        message,
        stored.enqueued_ms,
        stored.expires_ms,
        stored.original,
        overlay,
        stored.size,
    )
    entry.position = stored.position
    entry.rank = log.rank_of(stored.sequence, stored.position)
    entry.body = stored.body
    entry.delivery_count = stored.delivery_count
    entry.deferred = deferred
    if deferred and overlay is not None:
        entry.retry_ms = overlay.retry_ms
    return entry
