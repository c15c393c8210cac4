"""What a bus holds at the end of a run, and the settings under which its entities are judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

ACTIVE: Final = "active"
LOCKED: Final = "locked"
SCHEDULED: Final = "scheduled"
DEFERRED: Final = "deferred"
DEAD_LETTER: Final = "dead_letter"
STATES: Final = (ACTIVE, LOCKED, SCHEDULED, DEFERRED, DEAD_LETTER)
TOTAL: Final = "total"


@dataclass(frozen=True, slots=True)
class EntityOptions:
    """What the verifier must know of an entity's settings."""

    partitions: int = 1
    sessions: bool = False
    lock_ms: int = 60_000
    dedup_window_ms: int | None = None  # None: no duplicate detection
    ttl_ms: int | None = None
    dead_letter_on_expiry: bool = False
    max_delivery_count: int | None = None
    dead_letter_ttl_ms: int | None = None  # how long a dead letter lives
    delivers_to: tuple[str, ...] = ()  # a topic's subscriptions, or where it forwards; empty: itself


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message found in an entity (or in its dead-letter queue) at the end."""

    message_id: str
    number: int
    state: str
    partition: int | None = None  # of the messaging store in which it was found, where that is known
    key: str | None = None
    session: str | None = None
    digest: str | None = None


@dataclass(slots=True)
class EntityContents:
    """An entity at the end: its settings, its messages, and what its counters say (by state, and `total`)."""

    options: EntityOptions = field(default_factory=EntityOptions)
    messages: list[StoredMessage] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class FinalState:
    """Every entity of the run by name, and the bus's wall clock when its contents were read."""

    entities: dict[str, EntityContents]
    wall_ms: int
