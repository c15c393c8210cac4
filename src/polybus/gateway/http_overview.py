"""Where everything lies: the messaging stores, and the partitions of an entity with their counts and health.

Read by the command line and the console, at the same cost for one message and a million. Store addresses are shown
without secrets, and only to managers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.responses import JSONResponse, Response

from polybus.gateway.http_auth import authorize
from polybus.gateway.http_errors import not_allowed
from polybus.gateway.http_request import Call
from polybus.gateway.sas import Rights
from polybus.namespace.entity import Counts, Entity
from polybus.namespace.partition_host import PartitionHost
from polybus.namespace.store_host import StoreHost
from polybus.partition.log import DEAD_LETTER, KINDS, MAIN, TRANSFER_DEAD_LETTER

STORES = "/$polybus/stores"
PARTITIONS = "/$polybus/partitions/"


def overview(call: Call) -> Response | None:
    """The answer to a request for an overview; None where it asks for something else."""
    path = call.path
    if path != STORES and not path.startswith(PARTITIONS):
        return None
    if call.method != "GET":
        raise not_allowed(call.method)
    if path == STORES:
        authorize(call, "", Rights.MANAGE)
        return JSONResponse({"stores": [store_overview(store) for store in call.gateway.bus.stores]})
    authorize(call, path[len(PARTITIONS) :], Rights.MANAGE)
    entity = call.namespace.entity(path[len(PARTITIONS) :])
    return JSONResponse(entity_overview(entity, call.query.get("subscription")))


def store_overview(store: StoreHost) -> dict[str, Any]:
    """One messaging store: who it is, how it is, what it did."""
    return {
        "url": store.url,
        "id": store.store_id.hex(),
        "state": store.state.value,
        "available": store.available,
        "full": store.full,
        "unsafe": store.unsafe,
        "free_bytes": store.free_bytes,
        "last_error": store.last_error,
        "partitions": len(store.tenants),
        "commits": store.commits,
        "committed_bytes": store.committed_bytes,
        "commit_failures": store.commit_failures,
    }


def entity_overview(entity: Entity, subscription: str | None = None) -> dict[str, Any]:
    """An entity partition by partition; of a topic all subscriptions together, or one of them."""
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
        "problem": None if partition.available else partition.problem or store.last_error,
        "max_bytes": partition.settings.max_bytes,
        "counts": {**vars(counts), "total": counts.total},
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
