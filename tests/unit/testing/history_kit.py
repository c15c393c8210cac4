"""Short ways to write a history down and to have it judged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from polybus.testing.history import Event, Op
from polybus.testing.verifier import EntityContents, EntityOptions, FinalState, StoredMessage, Verdict, verify
from polybus.testing.verifier.contents import ACTIVE

WALL = 1_700_000_000_000
LOCK_MS = 1_000


def ev(op: str, at: int, *, client: str = "a", began: int | None = None, **values: Any) -> Event:
    """An event that ended at this time, by default instantly, with the wall clock running along."""
    values.setdefault("entity", "q")
    wall_ms = values.pop("wall_ms", WALL + at)
    return Event(at if began is None else began, at, wall_ms, client, op, **values)


def send(message_id: str, at: int = 0, **values: Any) -> Event:
    return ev(Op.SEND, at, message_id=message_id, **values)


def receive(message_id: str, number: int, at: int, token: str | None = None, **values: Any) -> Event:
    token = token or f"t-{message_id}-{at}"
    return ev(Op.RECEIVE, at, message_id=message_id, number=number, token=token, **values)


def settle(op: str, delivery: Event, at: int, **values: Any) -> Event:
    """A settlement (or renewal) of what this event delivered, by the same client unless another is named."""
    values.setdefault("client", delivery.client)
    return ev(
        op,
        at,
        entity=delivery.entity,
        message_id=delivery.message_id,
        session=delivery.session,
        number=delivery.number,
        token=delivery.token,
        **values,
    )


def stored(message_id: str, number: int = 1, state: str = ACTIVE, **values: Any) -> StoredMessage:
    return StoredMessage(message_id, number, state, **values)


def final(
    *messages: StoredMessage, wall_ms: int = WALL + 1_000_000, counters: Any = None, **options: Any
) -> FinalState:
    """One queue `q` with these messages and options."""
    options.setdefault("lock_ms", LOCK_MS)
    contents = EntityContents(EntityOptions(**options), list(messages), counters or {})
    return FinalState({"q": contents}, wall_ms)


def kinds(events: Iterable[Event], state: FinalState | None = None, **kwargs: Any) -> set[str]:
    return judge(events, state, **kwargs).kinds()


def judge(events: Iterable[Event], state: FinalState | None = None, **kwargs: Any) -> Verdict:
    return verify([list(events)], state or final(), **kwargs)
