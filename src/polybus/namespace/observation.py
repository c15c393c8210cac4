"""What entities hold, partition by partition, for metrics and overviews: at the same cost whatever the backlog."""

from __future__ import annotations

from polybus.namespace.entities.entity import Counts, Entity, reached
from polybus.partition.data import Statistics
from polybus.partition.kinds import KINDS, MAIN
from polybus.partition.totals import Totals

__all__ = ["Observed", "ObservedEntity", "ObservedPartition", "Totals", "observe"]


class Observed:
    """A queue, a topic or a subscription, over the partitions that can be reached."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.sessions = 0
        """Sessions that a receiver holds."""
        self.retained = 0
        self.retained_bytes = 0
        """What is settled and kept for cursors, dead letters included."""
        self.oldest_ms: int | None = None
        """When the oldest message was enqueued, of those in memory that nobody has locked."""


class ObservedPartition:
    """One partition: where it lies, whether it serves, and what it holds of what was asked for."""

    def __init__(self, index: int, store_id: bytes, store_url: str, max_bytes: int) -> None:
        self.index = index
        self.store_id = store_id
        self.store_url = store_url
        self.max_bytes = max_bytes
        self.available = False
        self.problem: str | None = None
        self.active = 0
        self.size_bytes = 0
        self.counts = Counts()


class ObservedEntity:
    def __init__(self, numbers: list[int]) -> None:
        self.logs = {number: Observed() for number in numbers}
        """The queue or topic itself (0), and subscriptions by number."""
        self.partitions: list[ObservedPartition] = []


async def observe(entity: Entity, numbers: list[int]) -> ObservedEntity:
    """A queue or topic (0) and subscriptions: each over all partitions, and each partition over all of them."""
    seen = ObservedEntity(numbers)
    for partition in entity.partitions:
        store = partition.store
        own = ObservedPartition(partition.index, store.store_id, store.url, partition.settings.max_bytes)
        found = await reached(partition.statistics(numbers))
        own.available = found is not None
        own.problem = partition.problem or (store.last_error if found is None else None)
        if found is not None:
            _add(seen, own, found)
        seen.partitions.append(own)
    return seen


def _add(seen: ObservedEntity, partition: ObservedPartition, found: Statistics) -> None:
    partition.size_bytes = found.size
    if 0 in seen.logs:
        partition.counts.add_whole(found)
        seen.logs[0].counts.add_whole(found)
    for log in found.logs:
        own = seen.logs[log.id // KINDS]
        own.counts.add(log)
        partition.counts.add(log)
        own.retained += log.retained
        own.retained_bytes += log.retained_bytes
        if log.id % KINDS == MAIN:
            partition.active += log.active
            own.sessions += log.sessions
            if log.oldest_ms is not None:
                own.oldest_ms = log.oldest_ms if own.oldest_ms is None else min(own.oldest_ms, log.oldest_ms)
