"""The nouns of the reference bus: messages, deliveries, locks, and operations under way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from polybus.testing.verifier.contents import ACTIVE

Batch = dict[tuple[Any, ...], Any]
Command = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Message:
    """A message: what the sender said, and the bus's marks behind it."""

    message_id: str
    body: bytes = b""
    key: str | None = None
    session: str | None = None
    due_ms: int = 0
    number: int = 0
    state: str = ACTIVE
    count: int = 0
    enqueued_ms: int = 0
    origin: int = 0  # the send that brought it, by which a rerouted copy is found


@dataclass(frozen=True, slots=True)
class Delivery:
    message: Message
    token: str


class Ticket:
    """An operation under way; `outcome` is None until it is known."""

    __slots__ = ("answer", "outcome")

    def __init__(self) -> None:
        self.outcome: str | None = None
        self.answer: Any = None

    def resolve(self, outcome: str, answer: Any = None) -> None:
        if self.outcome is None:
            self.outcome = outcome
            self.answer = answer


class SessionLock:
    __slots__ = ("session", "until_ms")

    def __init__(self, session: str, until_ms: int) -> None:
        self.session = session
        self.until_ms = until_ms


class MessageLock:
    """The lock of one delivery; inside a session the session's lock decides how long it lives."""

    __slots__ = ("number", "session", "until_ms")

    def __init__(self, number: int, until_ms: int, session: SessionLock | None) -> None:
        self.number = number
        self.until_ms = until_ms
        self.session = session
