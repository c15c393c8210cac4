"""What deleted entities and subscriptions left behind in the stores, removed as soon as the stores allow.

Ids are never given twice, so what remains can harm nobody; it is written down in the catalogue's own batch and
struck off when it is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polybus.errors import PolybusError, QuotaExceeded, ServerBusy
from polybus.hosting import catalogue as records
from polybus.hosting.catalogue import Changes, Record, decode
from polybus.hosting.store_host import StoreHost
from polybus.limits import REOPEN_MS_MAX
from polybus.partition import purging
from polybus.partition.records import after, partition_prefix
from polybus.promise import Promise, spawn

if TYPE_CHECKING:
    from polybus.namespace.bus import Bus


def remains_key(entity_id: int, number: int) -> bytes:
    return records.REMAINS + records.subscription_key(entity_id, number)


class Remains:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._working: dict[bytes, None] = {}

    async def resume(self) -> None:
        """Goes on with everything that is written down."""
        for row in await self._bus.catalogue.rows(records.REMAINS):
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
            await _delete_rows(store, partition_prefix(record["entity"], index))
        return True

    async def _remove_subscription(self, record: Record) -> bool:
        entity = self._bus.entities.get(record["entity"])
        if entity is None:
            return True  # the whole topic is gone meanwhile
        for partition in entity.partitions:
            if partition.broker is None:
                return False
            # Rows that a first try has removed and nobody has synced would be found, and given back, once more.
            await partition.store.synced()
            at, more = b"", True
            while more:
                at = await partition.run(purging.purge(partition.require(), record["subscription"], at))
                more = bool(at)
                done: Promise[None] = Promise()
                partition.require().out().replies.append((done.reply, None, None))
                await done
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
        done: Promise[None] = Promise()
        store.batch.delete_range(prefix, after(prefix))
        store.batch.replies.append((done.reply, None, None))
        store.touch()
        await done
