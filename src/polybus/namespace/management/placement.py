"""Which messaging store each partition of a new entity lies in (A1). Chosen once, recorded, never computed again."""

from __future__ import annotations

from polybus.errors import ServerBusy
from polybus.hosting.store_host import StoreHost


def place(stores: list[StoreHost], partitions: int, start: int) -> list[StoreHost]:
    """One store for each partition, dealt in turn from a place that differs from entity to entity.

    A partitioned entity is spread over all stores, so all must be healthy; a plain one takes a healthy store.
    """
    healthy = [store for store in stores if store.available and not store.full]
    if not healthy:
        raise ServerBusy("No messaging store is available. Try again.")
    if partitions == 1:
        return [healthy[start % len(healthy)]]
    if len(healthy) < len(stores):
        missing = [store.url for store in stores if store not in healthy]
        raise ServerBusy(f"A partitioned entity needs all messaging stores, and {missing} cannot be used. Try again.")
    return [healthy[(start + index) % len(healthy)] for index in range(partitions)]
