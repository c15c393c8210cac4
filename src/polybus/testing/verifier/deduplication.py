"""How many copies of a message duplicate detection may let in, and how many it must.

The window opens with the copy that was let in and is not extended by the duplicates it catches
(docs/protocol/semantics.md#duplicates). On a partitioned entity the history of ids lives in the partition, so equal
ids under different keys may meet or not.
"""

from __future__ import annotations

from polybus.testing.history import FAILED, OK, Event
from polybus.testing.verifier.ledger import Send


def bounds(sends: list[Send], window_ms: int, partitions: int) -> tuple[int, int]:
    """The least and the most copies that these sends of one message id may leave."""
    effective = [send for send in sends if send.outcome != FAILED]
    most = sum(_most(group, window_ms) for group in _by_key(effective, partitions))
    return _least(effective, window_ms), most


def _by_key(sends: list[Send], partitions: int) -> list[list[Send]]:
    if partitions == 1:
        return [sends]
    groups: dict[str | None, list[Send]] = {}
    for send in sends:
        groups.setdefault(_key(send.span.event), []).append(send)
    return list(groups.values())


def _key(event: Event) -> str | None:
    return event.key if event.session is None else event.session


def _most(sends: list[Send], window_ms: int) -> int:
    """A further copy needs a send that can have come after the window of the copy before.

    A send that took longer than the window can have fallen outside every other copy's.
    """
    copies = 0
    closes_ms = 0
    for send in sorted(sends, key=lambda send: (send.span.wall_to_ms, send.span.wall_from_ms)):
        if send.span.wall_to_ms - send.span.wall_from_ms >= window_ms:
            copies += 1
        elif copies == 0 or send.span.wall_to_ms >= closes_ms:
            copies += 1
            closes_ms = max(send.span.wall_from_ms, closes_ms) + window_ms
    return copies


def _least(sends: list[Send], window_ms: int) -> int:
    """Sends less than a window apart may all be one copy; an acknowledged one proves that there is one."""
    copies = 0
    proven = False
    last_ms: int | None = None
    for send in sorted(sends, key=lambda send: send.span.wall_from_ms):
        if last_ms is not None and send.span.wall_from_ms > last_ms + window_ms:
            copies += proven
            proven = False
        proven = proven or send.outcome == OK
        last_ms = max(last_ms or 0, send.span.wall_to_ms)
    return copies + proven
