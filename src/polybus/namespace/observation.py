"""What can be told about entities beyond their counts, for metrics: read from memory, whatever the backlog."""

from __future__ import annotations

from polybus.namespace.entities.entity import Entity
from polybus.partition.log import KINDS, MAIN, Log


class Observed:
    """A queue, a topic or a subscription, over the partitions that can be reached."""

    def __init__(self) -> None:
        self.sessions = 0
        """Sessions that a receiver holds."""
        self.retained = 0
        self.retained_bytes = 0
        """What is settled and kept for cursors, dead letters included."""
        self.oldest_ms: int | None = None
        """When the oldest message was enqueued, of those in memory that nobody has locked."""


class ObservedPartition:
    def __init__(self, index: int, available: bool, active: int, size_bytes: int) -> None:
        self.index = index
        self.available = available
        self.active = active
        self.size_bytes = size_bytes


def observe(entity: Entity, number: int = 0) -> Observed:
    """A queue or topic (0), or one subscription of a topic."""
    seen = Observed()
    for partition in entity.partitions:
        for kind in range(KINDS):
            log = None if partition.broker is None else partition.broker.logs.get(number * KINDS + kind)
            if log is not None:
                _add(seen, log)
    return seen


def _add(seen: Observed, log: Log) -> None:
    seen.retained += log.retained
    seen.retained_bytes += log.retained_bytes
    if log.kind != MAIN:
        return
    if log.sessions is not None:
        seen.sessions += len(log.sessions.held)
    heads = [log.ready[0]] if log.ready else []
    if log.returned:
        heads.append(log.returned[0][1])
    for entry in heads:
        seen.oldest_ms = entry.enqueued_ms if seen.oldest_ms is None else min(seen.oldest_ms, entry.enqueued_ms)


def observe_partitions(entity: Entity) -> list[ObservedPartition]:
    found = []
    for partition in entity.partitions:
        broker = partition.broker
        if broker is None:
            found.append(ObservedPartition(partition.index, False, 0, 0))
            continue
        active = sum(log.active for log_id, log in broker.logs.items() if log_id % KINDS == MAIN)
        found.append(ObservedPartition(partition.index, True, active, broker.size))
    return found
