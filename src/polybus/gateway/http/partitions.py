"""Where an entity's messages lie: its partitions with their stores, counts and health.

Read by the command line and the console, at the same cost for one message and a million.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from polybus.asyncio_bridge import run
from polybus.gateway.bulk.call import BulkCall, answer
from polybus.namespace.entities.entity import Entity
from polybus.namespace.observation import ObservedPartition, observe


async def get_partitions(request: BulkCall) -> Response:
    """An entity partition by partition; of a topic all subscriptions together, or the one that is addressed."""
    return answer(await run(entity_overview(request.entity, request.address.subscription)))


async def entity_overview(entity: Entity, subscription: str | None = None) -> dict[str, Any]:
    if subscription is not None:
        numbers = [entity.subscription(subscription).number]
    else:
        numbers = [0, *(each.number for each in entity.subscriptions.values())]
    seen = await observe(entity, numbers)
    return {
        "name": entity.name,
        "kind": "topic" if entity.is_topic else "queue",
        "partitioned": entity.partitioned,
        "availability": entity.availability.value,
        "subscription": subscription,
        "partitions": [_partition_overview(partition) for partition in seen.partitions],
    }


def _partition_overview(partition: ObservedPartition) -> dict[str, Any]:
    return {
        "index": partition.index,
        "store": partition.store_url,
        "store_id": partition.store_id.hex(),
        "available": partition.available,
        "problem": partition.problem,
        "max_bytes": partition.max_bytes,
        "counts": partition.counts.by_name(),
    }
