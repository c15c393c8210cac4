"""What verbs of a partition take and give beside messages: plain data, known on both sides of the partition's client."""

from __future__ import annotations

from polybus.message.message import MESSAGE_ID, Message
from polybus.message.overlay import Overlay, laid_over, overlay_from_bytes
from polybus.partition import records
from polybus.partition.records import Stored


class Moved:
    """Which of the numbers were moved; the rest were locked, or gone."""

    def __init__(self, moved: list[int], missing: list[int], locked: list[int]) -> None:
        self.moved = moved
        self.missing = missing
        self.locked = locked


class OutboxMessage:
    """A message taken from an outbox, for its destination."""

    def __init__(
        self,
        number: int,
        message: Message,
        overlay: Overlay | None,
        original: int,
        enqueued_ms: int,
        expires_ms: int,
        log_id: int,
    ) -> None:
        self.number = number
        self.message = message
        self.overlay = overlay
        self.message_id = laid_over(overlay, MESSAGE_ID, message.message_id)
        """By which its destination tells duplicates."""
        self.original = original
        self.enqueued_ms = enqueued_ms
        self.expires_ms = expires_ms
        """When its life ends, which forwarding does not prolong; 0 where it does not."""
        self.log_id = log_id
        """The log it came from: where it goes if nobody takes it."""


def transfer_from(number: int, stored: Stored) -> OutboxMessage:
    """A transfer as an outbox holds it, where the log's id stands in the place of a position."""
    overlay = overlay_from_bytes(stored.overlay) if stored.overlay else None
    message = Message(stored.raw, True)
    return OutboxMessage(
        number, message, overlay, stored.original, stored.enqueued_ms, stored.expires_ms, stored.position
    )


class Records:
    """Messages of a range read as they are stored, each whole, and the position up to which they are complete."""

    __slots__ = ("after", "complete_to", "settled", "values")

    def __init__(self, complete_to: int) -> None:
        self.complete_to = complete_to
        self.after = b""
        """The key from which the next read goes on; empty where nothing was found."""
        self.values: list[bytes] = []
        self.settled = b""
        """For each message 1 where it is settled and only kept for a cursor, else 0."""

    @property
    def positions(self) -> list[int]:
        return [records.position_and_body(value)[0] for value in self.values]

    @property
    def last_position(self) -> int:
        """That of the last message, of which there is one."""
        return records.position_and_body(self.values[-1])[0]


class LogEvent:
    """One change of one message."""

    def __init__(self, position: int, fields: list[object]) -> None:
        self.position = position
        number, change, time_ms, count, reason, enqueued_ms = fields[:6]
        self.sequence = int(number) if isinstance(number, int) else 0
        self.change = str(change)
        self.time_ms = int(time_ms) if isinstance(time_ms, int) else 0
        self.delivery_count = int(count) if isinstance(count, int) else 0
        self.reason = None if reason is None else str(reason)
        self.enqueued_ms = int(enqueued_ms) if isinstance(enqueued_ms, int) else 0
        message_id, trace = fields[6:8] if len(fields) >= 8 else (None, None)
        self.message_id = None if message_id is None else str(message_id)
        self.trace = None if trace is None else str(trace)
        """The W3C trace context that its sender gave it: `traceparent`."""


class ListedSession:
    """A session as it truly is: how many messages it has, who holds it and until when, its state."""

    def __init__(self, session_id: str, messages: int) -> None:
        self.id = session_id
        self.messages = messages
        """Active ones, those that its holder has locked included."""
        self.locked = 0
        self.holder: str | None = None
        self.locked_until_ms = 0
        """In wall time; 0 where nobody holds it."""
        self.state_bytes = 0
        self.state_updated_ms = 0


class LogStatistics:
    """How much one log of one partition holds."""

    __slots__ = ("active", "deferred", "id", "locked", "oldest_ms", "retained", "retained_bytes", "sessions")

    def __init__(self, log_id: int) -> None:
        self.id = log_id
        self.active = 0
        self.deferred = 0
        self.locked = 0
        self.retained = 0
        self.retained_bytes = 0
        """What is settled and kept for cursors."""
        self.sessions = 0
        """Sessions that a receiver holds."""
        self.oldest_ms: int | None = None
        """When the oldest message was enqueued, of those in memory that nobody has locked."""


class Statistics:
    """How much one partition holds: as a whole, and in the logs that were asked for and exist."""

    __slots__ = ("logs", "scheduled", "size", "transfers")

    def __init__(self) -> None:
        self.scheduled = 0
        self.transfers = 0
        self.size = 0
        self.logs: list[LogStatistics] = []


class LogRange:
    """From where to where one partition's share of a log can be read."""

    __slots__ = ("at_time", "bytes", "earliest", "messages", "stable_end")

    def __init__(self, stable_end: int, messages: int, size: int) -> None:
        self.earliest = 1
        """The oldest position that can still be read; one past the end where there is none. Only where asked for."""
        self.stable_end = stable_end
        self.messages = messages
        self.bytes = size
        self.at_time: int | None = None
        """The first position at or after the time that was asked for."""
