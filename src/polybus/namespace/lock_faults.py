"""Locks that end before their time, for users who test what their receivers do then."""

from __future__ import annotations

from polybus.clock import Now
from polybus.hosting.partition_host import PartitionHost
from polybus.namespace.entities.entity import Entity
from polybus.partition import events, holding, settling
from polybus.partition.entry import Entry


def lose_message_locks(entity: Entity, log_id: int, now: Now, number: int | None) -> int:
    """Ends the lock of one message, or of all of a log, as if its time were up; gives how many."""
    lost = 0
    for partition in entity.partitions:
        broker = partition.broker
        if broker is None:
            continue
        broker.wall(now)
        for entry in [each for each in broker.locks.values() if _is_meant(each, log_id, number)]:
            settling.count_delivery(broker, entry, events.LOCK_EXPIRED)
            lost += 1
    return lost


def _is_meant(entry: Entry, log_id: int, number: int | None) -> bool:
    """A message that is being settled in a transaction keeps its lock: the transaction ends it."""
    return entry.log.id == log_id and entry.transaction is None and number in (None, entry.sequence)


def lose_session_locks(entity: Entity, log_id: int, now: Now, session_id: str | None) -> int:
    """Ends the hold on one session, or on all of a log; gives how many."""
    return sum(_lose_sessions(partition, log_id, now, session_id) for partition in entity.partitions)


def _lose_sessions(partition: PartitionHost, log_id: int, now: Now, session_id: str | None) -> int:
    broker = partition.broker
    log = None if broker is None else broker.logs.get(log_id)
    if broker is None or log is None or log.sessions is None:
        return 0
    held = [session for session in log.sessions.held.values() if session_id in (None, session.id)]
    for session in held:
        holding.release(broker, log, session, now)
        for source in list(partition.session_sources.values()):
            source.session_lost(session)
    return len(held)
