"""The bus: its messaging stores, its catalogue and its namespaces, and how they start, recover and stop.

This is the room's root. It knows which store holds which partition, brings partitions up when their store opens,
and finishes what a crash left half done. It runs on the loop it is given and never reads a clock of its own.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from secrets import token_bytes

from polybus.clock import Clock
from polybus.errors import BugError, ConfigError, PolybusError, ServerBusy, StoreError
from polybus.hosting import catalogue as records
from polybus.hosting.catalogue import Catalogue, Changes, decode
from polybus.hosting.local_partition import LocalPartition
from polybus.hosting.partition_client import PartitionClient
from polybus.hosting.partition_host import PartitionHost
from polybus.hosting.recovery import Recovery
from polybus.hosting.store_host import StoreHost
from polybus.limits import MEMBER_SERVE_MS
from polybus.namespace.delivery.holding import HeldSends, IsMoving
from polybus.namespace.delivery.transaction_rules import apply_intent
from polybus.namespace.entities.entity import Entity
from polybus.namespace.entities.names import fold
from polybus.namespace.entities.tiers import STANDARD, Tier
from polybus.namespace.jobs.job import Jobs
from polybus.namespace.management.access_rules import AccessRules
from polybus.namespace.management.auditing import Auditing
from polybus.namespace.management.cleanup import Cleanup
from polybus.namespace.management.following import Following
from polybus.namespace.management.forwarding import (
    HOLD,
    LET_GO,
    MANAGE,
    hold_for_another,
    let_go_for_another,
    manage_for_another,
)
from polybus.namespace.members import Members, OtherDoubts
from polybus.namespace.namespace import Namespace
from polybus.namespace.pipeline.cursors import Cursors
from polybus.namespace.pipeline.publishing import CLAIM, Publishing
from polybus.partition.records import partitions_prefix
from polybus.partition.settings import Bounds, EntitySettings
from polybus.promise import Loop, Promise, pause, resolved, spawn

SERVING = "entity.serving"
USE = "entity.use"
SERVING_LOOK_MS = 2
"""How often one looks whether partitions elsewhere serve: a new one does within milliseconds."""

Store = StoreHost
"""A messaging store of the bus, as those who show and probe stores know it."""


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
        self.bounds = Bounds()
        """How much of each partition is in memory; to be changed before the start, if at all."""
        self.namespaces: dict[str, Namespace] = {}
        self.entities: dict[int, Entity] = {}
        self.cleanup = Cleanup(self)
        self.recovery = Recovery(catalogue, stores, loop, self)
        self.cursors = Cursors(self)
        self.publishing = Publishing(self)
        self.auditing = Auditing(self)
        self.access_rules = AccessRules(self)
        self.on_access_changed: Callable[[Namespace], None] | None = None
        """Somebody's key was made, changed or taken away, there or on an entity in it."""
        self.jobs = Jobs(self)
        self.on_error: Callable[[PolybusError], None] | None = None
        self.find_store: Callable[[str, bytes], StoreHost] | None = None
        """Makes the host of a store that was not given, by the place that the catalogue notes for it."""
        self._absent: dict[bytes, StoreHost] = {}
        self._held: HeldSends | None = None
        catalogue.loop = loop
        self.stopping = False
        self.members: Members | None = None
        """The other processes of the bus; None where it is one process. To be set before the start."""
        self.following = Following(self)

    @property
    def leads(self) -> bool:
        """Whether this process writes the catalogue, and does what is done once for the whole bus."""
        return self.members is None or self.members.leads

    def join(self, members: Members) -> None:
        """The bus has other processes, too: says what they may ask of this one."""
        self.members = members
        self.recovery.others = OtherDoubts(members, self.recovery)
        members.serve(MANAGE, lambda question: spawn(manage_for_another(self, question)))
        members.serve(HOLD, lambda asked: spawn(hold_for_another(self, asked)))
        members.serve(LET_GO, lambda asked: spawn(let_go_for_another(self, asked)))
        members.serve(SERVING, lambda entity_id: spawn(self._serving(entity_id)))
        members.serve(CLAIM, lambda names: spawn(self.publishing.claim(*names)))
        members.serve(USE, lambda _: resolved(self._use()))

    # Start and stop

    async def start(self, names: list[str]) -> None:
        """Reads the catalogue, opens the stores and brings every partition up that can be."""
        await self.catalogue.open()
        await self.catalogue.next_incarnation()
        await self.recovery.load()
        for opened in [store.open() for store in self.stores]:
            await opened
        for opened in [store.open() for store in self._find_stores()]:
            await opened
        await self._load(names)
        if self.leads:
            await self._note_stores()
        await self.cursors.load()
        await self.publishing.load()
        await self.auditing.load()
        await self.access_rules.load()
        for store in self.stores:
            store.on_opened = self._store_opened
            self._move_in(store)
        for store in self.stores:
            if store.available and not store.elsewhere:
                await self.recovery.begin(store)

    async def take_lead(self) -> None:
        """This process writes the catalogue from now on: does what only one does, where the last one left off."""
        await self.following.apply(None)
        await self.cursors.load()
        await self.publishing.load()
        await self._note_stores()
        await self.cleanup.resume()

    def _find_stores(self) -> list[StoreHost]:
        """Stores of the catalogue that nobody named: without them a part of the messages would be out of reach."""
        if self.find_store is None:
            return []
        given = {store.store_id.hex() for store in self.stores} | {store.place for store in self.stores}
        noted = [(store_id, self.catalogue.places.get(store_id)) for store_id in self.catalogue.stores]
        found = [
            self.find_store(place, bytes.fromhex(store_id))
            for store_id, place in noted
            if place is not None and place not in given and store_id not in given
        ]
        self.stores += found
        return found

    async def _note_stores(self) -> None:
        """New stores are noted; one that stands in twice is refused, and so is one that is another bus's."""
        seen: dict[bytes, str] = {}
        for store in self.stores:
            if store.store_id in seen and store.store_id:
                raise ConfigError(f"{store.url} and {seen[store.store_id]} are the same messaging store")
            seen[store.store_id] = store.url
        fresh: list[StoreHost] = []
        for store in [store for store in self.stores if store.available and not self._is_noted(store)]:
            try:
                # What a catalogue has placed there is its own, also where it did not come to note the store.
                foreign = not store.tenants and await store.has_rows(partitions_prefix())
            except ServerBusy:
                continue  # it is asked when it opens again
            if foreign:
                raise ConfigError(
                    f"{store.url} holds messages that this catalogue knows nothing of; give the catalogue that belongs"
                    " to it, or an empty messaging store"
                )
            fresh.append(store)
        ids = [store.store_id.hex() for store in fresh if not self._is_noted(store)]
        self.catalogue.stores = self.catalogue.stores + ids
        places = {store.store_id.hex(): store.place for store in self.stores if store.place and self._is_noted(store)}
        if ids or places.items() - self.catalogue.places.items():
            taken = places.values()
            others = {known: place for known, place in self.catalogue.places.items() if place not in taken}
            self.catalogue.places = {**others, **places}
            await self.catalogue.write(Changes())

    def _is_noted(self, store: StoreHost) -> bool:
        return store.store_id.hex() in self.catalogue.stores

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
            found.sender.held = self._held
            self.namespaces[name.lower()] = found
        return found

    async def stop(self) -> None:
        """Commits what is under way and closes everything."""
        self.stopping = True
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
        """The store with this id; where it was not given, or has not opened yet, one that stands in for it."""
        found = self.store_by_id(store_id)
        if found is None:
            found = self._absent.get(store_id)
        if found is None:
            found = StoreHost(f"a messaging store with id {store_id.hex()}", self.loop, Promise)
            found.store_id = store_id
            found.last_error = "it was not given when the bus was started, or cannot be opened"
            self._absent[store_id] = found
        return found

    @property
    def missing(self) -> list[StoreHost]:
        """Stand-ins for stores that hold partitions and were neither given nor found. One that was given and does not
        open is among `stores` instead."""
        here = {store.place for store in self.stores if store.place is not None and not store.store_id}
        return [
            absent
            for store_id, absent in self._absent.items()
            if absent.tenants and self.catalogue.places.get(store_id.hex()) not in here
        ]

    def misses(self, store: StoreHost) -> bool:
        """Whether an entity of this store has partitions on one that was not given: its marks cannot be read."""
        here = {entity_id for entity_id, _ in store.tenants}
        return any(entity_id in here for absent in self._absent.values() for entity_id, _ in absent.tenants)

    def _store_opened(self, store: StoreHost) -> None:
        self._move_in(store)
        if store.elsewhere:
            if self.leads:
                spawn(self._note_other(store)).then(self._report)
            return
        for tenant in store.tenants.values():
            assert isinstance(tenant, PartitionHost)
            tenant.problem = None
        spawn(self._come_back(store)).then(self._report)

    def _move_in(self, store: StoreHost) -> None:
        """A store that was missing when its partitions were loaded is here: they find it."""
        stand_in = self._absent.pop(store.store_id, None)
        if stand_in is not None and store.elsewhere:
            self.replace_store(stand_in, store)
        elif stand_in is not None:
            for place, tenant in stand_in.tenants.items():
                assert isinstance(tenant, PartitionHost)
                tenant.store = store
                store.tenants[place] = tenant

    async def _note_other(self, store: StoreHost) -> None:
        """A store of another member has opened: it is noted, and what was deleted meanwhile leaves it."""
        try:
            await self._note_stores()
        except ConfigError as error:
            store.last_error = str(error)
            raise
        await self.cleanup.resume()

    def replace_store(self, old: StoreHost, new: StoreHost) -> None:
        """Another host takes the place of one, because the store has another owner: so do its partitions' clients."""
        if old in self.stores:
            self.stores[self.stores.index(old)] = new
        new.on_opened = self._store_opened
        for (entity_id, index), tenant in list(old.tenants.items()):
            entity = self.entities.get(entity_id)
            if entity is None:
                continue
            known = entity.partitions[index]
            tenant.fenced()
            namespace = self.namespace_of(entity)
            entity.replace_partition(index, self.new_partition(namespace, entity_id, index, entity.settings, new))
            known.retire()
        if new.available and not new.elsewhere:
            self.recovery.begin(new)

    async def bring_up(self, store: StoreHost) -> None:
        """Opens a store now instead of later; where that works its partitions have been tried when this returns."""
        if store.elsewhere:
            await store.recover()
        elif await store.open():
            await self.recovery.begin(store)

    async def _come_back(self, store: StoreHost) -> None:
        self.recovery.begin(store)
        if not self.leads:
            return
        try:
            await self._note_stores()
        except ConfigError as error:
            store.fence(StoreError(str(error)), None)

    def _report(self, promise: Promise[None]) -> None:
        try:
            promise.result()
        except ServerBusy:
            return  # the catalogue is away; a store that is not noted is noted when it opens again
        except PolybusError as error:
            self.tell(error)

    def access_changed(self, namespace: Namespace) -> None:
        if self.on_access_changed is not None:
            self.on_access_changed(namespace)

    def tell(self, error: PolybusError) -> None:
        """Something is wrong that no client hears of."""
        if self.on_error is None:
            raise error
        self.on_error(error)

    def clock_moved(self) -> None:
        """The clock was moved by hand: whatever has become due happens now."""
        for namespace in self.namespaces.values():
            namespace.transactions.clock_moved()
        for entity in self.entities.values():
            for partition in entity.partitions:
                if self.looks_after(partition):
                    partition.clock_moved()
        self.delete_idle()

    def delete_idle(self) -> None:
        """Removes what nobody uses any more: idle entities, what lagging cursors keep, orphaned stages."""
        if self.members is None:
            self._delete_idle()
        elif self.leads:
            spawn(self._delete_unused()).then(self._report)

    async def _delete_unused(self) -> None:
        """Entities are used wherever clients are connected."""
        members = self.members
        assert members is not None, "others are asked where there are others"
        uses = [use for answer in (await members.ask_others(USE, None)).values() for use in answer]
        for entity in self.entities.values():
            entity.receivers_elsewhere = 0
            for subscription in entity.subscriptions.values():
                subscription.receivers_elsewhere = 0
        for entity_id, number, accessed_ms, receivers in uses:
            found = self.entities.get(entity_id)
            if found is None:
                continue
            if number == 0:
                found.accessed_ms = max(found.accessed_ms, accessed_ms)
                found.receivers_elsewhere += receivers
            for subscription in found.subscriptions.values():
                if subscription.number == number:
                    subscription.accessed_ms = max(subscription.accessed_ms, accessed_ms)
                    subscription.receivers_elsewhere += receivers
        self._delete_idle()

    def _use(self) -> list[list[int]]:
        """When entities and subscriptions were last used through this process, and how many receive here."""
        found: list[list[int]] = []
        for entity in self.entities.values():
            found.append([entity.id, 0, entity.last_accessed_ms(), entity.receivers])
            for each in entity.subscriptions.values():
                found.append([entity.id, each.number, each.last_accessed_ms(), each.receivers])
        return [use for use in found if use[2] or use[3]]

    def _delete_idle(self) -> None:
        for namespace in self.namespaces.values():
            namespace.delete_idle()
        self.cursors.enforce()
        self.publishing.sweep()
        self.auditing.trim()

    # What recovery asks

    def apply_intent(self, partition: PartitionHost, intent: bytes) -> Promise[None]:
        topic = self.entities.get(partition.entity_id)
        return resolved(None) if topic is None else spawn(apply_intent(self, topic, intent))

    def recovered(self) -> Promise[None]:
        return spawn(self.cleanup.resume()) if self.leads else resolved(None)

    # Partitions

    def new_partition(
        self, namespace: Namespace, entity_id: int, index: int, settings: EntitySettings, store: StoreHost
    ) -> PartitionClient:
        """The client of a partition: of this process, or of the member that owns its store."""
        if store.elsewhere:
            assert self.members is not None, "only other members have stores elsewhere"
            return self.members.partition(entity_id, index, settings, store, namespace.changed)
        partition = LocalPartition(entity_id, index, settings, store, namespace, self.loop, self.clock)
        if self.members is not None:
            self.members.appeared(partition)
        return partition

    def looks_after(self, partition: PartitionClient) -> bool:
        """Whether a change is to be told to the partition by this process: other members hear of it themselves."""
        return self.members is None or not partition.elsewhere

    def local_partition(self, entity_id: int, index: int) -> LocalPartition | None:
        """A partition whose broker is in this process, for other members."""
        entity = self.entities.get(entity_id)
        if entity is None or index >= len(entity.partitions):
            return None
        found = entity.partitions[index]
        return found if isinstance(found, LocalPartition) else None

    async def serving_everywhere(self, entity: Entity) -> None:
        """Returns when a new entity's partitions serve for every member, unless that takes long."""
        assert self.members is not None, "others are asked where there are others"
        others = self.members.ask_others(SERVING, entity.id)
        await self._serving(entity.id)
        await others

    async def _serving(self, entity_id: int) -> None:
        waited_ms = 0
        while waited_ms < MEMBER_SERVE_MS:
            entity = self.entities.get(entity_id)
            if entity is None or not entity.missing_partitions():
                return
            await pause(self.loop, SERVING_LOOK_MS)
            waited_ms += SERVING_LOOK_MS

    def partition_changed(self, partition: PartitionClient) -> None:
        """A partition serves, or no longer does."""
        self.publishing.partition_changed(partition)
        if self._held is not None:
            self._held.changed(partition)

    def hold_moving(self, is_moving: IsMoving) -> None:
        """From now on sends to partitions on a store that moves are held for a moment."""
        self._held = HeldSends(self.loop, is_moving)
        for namespace in self.namespaces.values():
            namespace.sender.held = self._held

    def namespace_of(self, entity: Entity) -> Namespace:
        for namespace in self.namespaces.values():
            if namespace.entities.get(fold(entity.name)) is entity:
                return namespace
        raise BugError("an entity is in a namespace")

    def entity_by_id(self, entity_id: int) -> Entity | None:
        return self.entities.get(entity_id)
