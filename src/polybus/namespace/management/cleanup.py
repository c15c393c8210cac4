"""Cleaning up after deleted entities and subscriptions: their rows leave the stores as soon as the stores allow.

Ids are never given twice, so what is left can harm nobody. A tombstone in the catalogue's own batch says what was
deleted, and goes when its rows are gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polybus.errors import PolybusError, QuotaExceeded, ServerBusy
from polybus.hosting import catalogue as records
from polybus.hosting.catalogue import Changes, Record, decode
from polybus.hosting.store_host import StoreHost
from polybus.limits import REOPEN_MS_MAX
from polybus.partition.records import partition_prefix
from polybus.promise import Promise, spawn

if TYPE_CHECKING:
    from polybus.namespace.bus import Bus


def tombstone_key(entity_id: int, number: int) -> bytes:
    return records.TOMBSTONE + records.subscription_key(entity_id, number)


class Cleanup:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._working: dict[bytes, None] = {}

    async def resume(self) -> None:
        """Goes on with everything that a tombstone says."""
        for row in await self._bus.catalogue.rows(records.TOMBSTONE):
            self.remove(row[0], decode(row))

    def remove(self, key: bytes, record: Record) -> None:
        if key not in self._working:
            self._working[key] = None
            spawn(self._remove(key, record)).then(self._heard)

    async def _remove(self, key: bytes, record: Record) -> None:
        try:
            if record["subscription"]:
                gone = await self._remove_subscription(record)
            else:
                gone = await self._remove_entity(record)
            if gone:
                await self._bus.catalogue.write(Changes().delete(key))
        finally:
            del self._working[key]

    async def _remove_entity(self, record: Record) -> bool:
        for index, store_id in enumerate(record["placement"]):
            store = self._bus.store_by_id(bytes.fromhex(store_id))
            if store is None or not store.available:
                return False
            if store.full:
                raise QuotaExceeded("A messaging store has no space, and what was deleted stays there until it has.")
            await _delete_rows(store, partition_prefix(record["entity"], index))
        return True

    async def _remove_subscription(self, record: Record) -> bool:
        entity = self._bus.entities.get(record["entity"])
        if entity is None:
            return True  # the whole topic is gone meanwhile
        for partition in entity.partitions:
            if not partition.available:
                return False
            await partition.purge_subscription(record["subscription"])
        return True

    def _try_again(self) -> None:
        spawn(self.resume()).then(self._heard)

    def _heard(self, promise: Promise[None]) -> None:
        try:
            promise.result()
        except (ServerBusy, QuotaExceeded):
            self._bus.loop.call_later(REOPEN_MS_MAX / 1000, self._try_again)
        except PolybusError as error:
            if self._bus.on_error is not None:
                self._bus.on_error(error)


async def _delete_rows(store: StoreHost, prefix: bytes) -> None:
    """Once for what is there, and once more for what the entity's last batch may have written beside the first."""
    for _ in range(2):
        if not store.available:
            raise store.unavailable()
        await store.delete_rows(prefix)
