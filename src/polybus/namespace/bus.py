"""The bus: its messaging stores, its catalogue and its namespaces, and how they start, recover and stop.

This is the room's root. It knows which store holds which partition, brings partitions up when their store opens,
and finishes what a crash left half done. It runs on the loop it is given and never reads a clock of its own.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from secrets import token_bytes

from polybus.clock import Clock
from polybus.errors import ConfigError, PolybusError, ServerBusy, StoreError
from polybus.namespace import catalogue as records
from polybus.namespace.catalogue import Catalogue, Changes, decode
from polybus.namespace.entity import Entity
from polybus.namespace.namespace import Namespace
from polybus.namespace.partition_host import PartitionHost
from polybus.namespace.promise import Loop, Promise, spawn
from polybus.namespace.recovery import doubtful_keys, marks_about, remove_marks, undo
from polybus.namespace.remains import Remains
from polybus.namespace.store_host import StoreHost
from polybus.namespace.tiers import STANDARD, Tier


def random_key() -> str:
    """A fresh shared access key, as the cloud makes them."""
    return b64encode(token_bytes(32)).decode()


class Bus:
    def __init__(
        self,
        loop: Loop,
        clock: Clock,
        stores: list[StoreHost],
        catalogue: Catalogue,
        tier: Tier = STANDARD,
        new_key: Callable[[], str] = random_key,
    ) -> None:
        if not stores:
            raise ConfigError("a bus needs at least one messaging store")
        self.loop = loop
        self.clock = clock
        self.stores = stores
        self.catalogue = catalogue
        self.tier = tier
        self.new_key = new_key
        self.namespaces: dict[str, Namespace] = {}
        self.entities: dict[int, Entity] = {}
        self.remains = Remains(self)
        self.on_error: Callable[[PolybusError], None] | None = None
        self._doubted: dict[bytes, Promise[None]] = {}
        self._recovered: list[Callable[[], None]] = []
        self._absent: dict[bytes, StoreHost] = {}
        self._stopping = False

    # Start and stop

    async def start(self, names: list[str]) -> None:
        """Reads the catalogue, opens the stores and brings every partition up that can be."""
        await self.catalogue.open()
        await self.catalogue.next_incarnation()
        for row in await self.catalogue.rows(records.DOUBT):
            known: Promise[None] = Promise()
            known.resolve(None)
            self._doubted[bytes.fromhex(decode(row)["store"])] = known
        opened = [store.open() for store in self.stores]
        for store, promise in zip(self.stores, opened, strict=True):
            await promise
            store.on_opened = self._store_opened
        await self._note_stores()
        await self._load(names)
        for store in self.stores:
            if store.available:
                await self._recover(store)
        await self.remains.resume()

    async def _note_stores(self) -> None:
        """New stores are noted; one that stands in twice is refused."""
        seen: dict[bytes, str] = {}
        for store in self.stores:
            if store.store_id in seen and store.store_id:
                raise ConfigError(f"{store.url} and {seen[store.store_id]} are the same messaging store")
            seen[store.store_id] = store.url
        known = self.catalogue.stores
        fresh = [store.store_id.hex() for store in self.stores if store.store_id]
        fresh = [store_id for store_id in fresh if store_id not in known]
        if fresh:
            self.catalogue.stores = known + fresh
            await self.catalogue.write(Changes())

    async def _load(self, names: list[str]) -> None:
        entity_rows = [decode(row) for row in await self.catalogue.rows(records.ENTITY)]
        for name in [*names, *(record["namespace"] for record in entity_rows)]:
            self.namespace(name)
        for record in entity_rows:
            await self.namespaces[record["namespace"].lower()].management.restore(record)
        for namespace in self.namespaces.values():
            namespace.transactions.incarnation = self.catalogue.incarnation

    def namespace(self, name: str) -> Namespace:
        """The namespace with this name, made when first named."""
        found = self.namespaces.get(name.lower())
        if found is None:
            found = Namespace(name, self)
            self.namespaces[name.lower()] = found
        return found

    async def stop(self) -> None:
        """Commits what is under way and closes everything."""
        self._stopping = True
        for store in self.stores:
            await store.close()
        await self.catalogue.close()

    # Stores

    def store_by_id(self, store_id: bytes) -> StoreHost | None:
        for store in self.stores:
            if store.store_id == store_id:
                return store
        return None

    def store_for(self, store_id: bytes) -> StoreHost:
        """The store with this id; where it was not given, one that is missing for as long as the bus runs."""
        found = self.store_by_id(store_id)
        if found is None:
            found = self._absent.get(store_id)
        if found is None:
            found = StoreHost(f"a messaging store with id {store_id.hex()}", self.loop, Promise)
            found.store_id = store_id
            found.last_error = "it was not given when the bus was started"
            self._absent[store_id] = found
        return found

    def _store_opened(self, store: StoreHost) -> None:
        spawn(self._come_back(store)).then(self._report)

    async def _come_back(self, store: StoreHost) -> None:
        await self._note_stores()
        await self.catalogue.next_incarnation()
        await self._recover(store)
        await self.remains.resume()

    async def _recover(self, store: StoreHost) -> None:
        """Brings up the partitions of a store, after removing what others have taken over."""
        doubted = store.store_id in self._doubted
        marks = []
        if doubted:
            others = [other for other in self.stores if other is not store]
            if not all(other.available for other in others):
                self._recovered.append(lambda: self._store_opened(store))
                return
            marks = await marks_about(store, others)
        keys = doubtful_keys(marks)
        opened = []
        for tenant in list(store.tenants.values()):
            assert isinstance(tenant, PartitionHost)
            if tenant.broker is not None:
                continue
            try:
                broker = await tenant.open(self.catalogue.incarnation)
                await undo(tenant, broker, keys)
            except StoreError as error:
                tenant.problem = str(error)
                self._tell(error)
            else:
                opened.append((tenant, broker))
        for tenant, broker in opened:
            if store.available:
                tenant.start(broker)
        if doubted:
            await remove_marks(marks)
            await self.catalogue.write(Changes().delete(records.DOUBT + store.store_id))
            self._doubted.pop(store.store_id, None)
        waiting, self._recovered = self._recovered, []
        for again in waiting:
            again()

    def doubt(self, store: StoreHost) -> Promise[None]:
        """Writes down that other stores may hold marks about this one, before the first mark is made."""
        promise = self._doubted.get(store.store_id)
        if promise is None:
            changes = Changes().put(records.DOUBT + store.store_id, {"store": store.store_id.hex()})
            promise = spawn(self.catalogue.write(changes))
            self._doubted[store.store_id] = promise
        return promise

    def _report(self, promise: Promise[None]) -> None:
        try:
            promise.result()
        except ServerBusy:
            return  # a store failed again; its next opening comes here again
        except PolybusError as error:
            self._tell(error)

    def _tell(self, error: PolybusError) -> None:
        if self.on_error is None:
            raise error
        self.on_error(error)

    def clock_moved(self) -> None:
        """The clock was moved by hand: whatever has become due happens now."""
        for entity in self.entities.values():
            for partition in entity.partitions:
                partition.tick()
        self.delete_idle()

    def delete_idle(self) -> None:
        for namespace in self.namespaces.values():
            namespace.delete_idle()

    def entity_by_id(self, entity_id: int) -> Entity | None:
        return self.entities.get(entity_id)
