"""Locks that end before their time, for users who test what their receivers do then."""

from __future__ import annotations

from polybus.namespace.entities.entity import Entity


async def lose_message_locks(entity: Entity, log_id: int, number: int | None) -> int:
    """Ends the lock of one message, or of all of a log, as if its time were up; gives how many."""
    lost = 0
    for partition in entity.partitions:
        lost += await partition.lose_message_locks(log_id, number)
    return lost


async def lose_session_locks(entity: Entity, log_id: int, session_id: str | None) -> int:
    """Ends the hold on one session, or on all of a log; gives how many."""
    lost = 0
    for partition in entity.partitions:
        lost += await partition.lose_session_locks(log_id, session_id)
    return lost
