"""Where an entity's messages lie: its partitions with their stores, counts and health.

Read by the command line and the console, at the same cost for one message and a million.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.responses import Response

from polybus.gateway.bulk.call import BulkCall, answer
from polybus.hosting.partition_host import PartitionHost
from polybus.namespace.entities.entity import Counts, Entity
from polybus.partition.log import DEAD_LETTER, KINDS, MAIN, TRANSFER_DEAD_LETTER


async def get_partitions(request: BulkCall) -> Response:
    """An entity partition by partition; of a topic all subscriptions together, or the one that is addressed."""
    return answer(entity_overview(request.entity, request.address.subscription))


def entity_overview(entity: Entity, subscription: str | None = None) -> dict[str, Any]:
    if subscription is not None:
        numbers = [entity.subscription(subscription).number]
    else:
        numbers = [0, *(each.number for each in entity.subscriptions.values())]
    return {
        "name": entity.name,
        "kind": "topic" if entity.is_topic else "queue",
        "partitioned": entity.partitioned,
        "availability": entity.availability.value,
        "subscription": subscription,
        "partitions": [_partition_overview(partition, numbers) for partition in entity.partitions],
    }


def _partition_overview(partition: PartitionHost, numbers: Iterable[int]) -> dict[str, Any]:
    store = partition.store
    counts = partition_counts(partition, numbers)
    return {
        "index": partition.index,
        "store": store.url,
        "store_id": store.store_id.hex(),
        "available": partition.available,
        "problem": partition.problem or (None if partition.available else store.last_error),
        "max_bytes": partition.settings.max_bytes,
        "counts": counts.by_name(),
    }


def partition_counts(partition: PartitionHost, numbers: Iterable[int]) -> Counts:
    """Messages of one partition by state, of these subscriptions (0: the queue or topic itself)."""
    counts = Counts()
    broker = partition.broker
    if broker is None:
        return counts
    for number in numbers:
        for kind in (MAIN, DEAD_LETTER, TRANSFER_DEAD_LETTER):
            log = broker.logs.get(number * KINDS + kind)
            if log is None:
                continue
            if kind == MAIN:
                counts.active += log.active
                counts.deferred += log.deferred
                counts.locked += log.locked
            elif kind == DEAD_LETTER:
                counts.dead_letter += log.active + log.deferred
            else:
                counts.transfer_dead_letter += log.active + log.deferred
        if number == 0:
            counts.scheduled += broker.scheduled
            counts.transfer += broker.transfers
            counts.size_bytes += broker.size
    return counts
