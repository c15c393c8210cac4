"""How a store's partitions come back: brokers from the rows, minus what others took over meanwhile.

Each store has one recovery at a time, which tries until every partition serves or the store is gone again. A store
that is doubted (a send in doubt may have been taken over by another store) serves only after every store that may
hold a mark about it was asked, the rows were removed, then the marks, then the doubt itself: in this order, each
step on disk before the next, so that a crash between two of them is harmless and an old mark can never name a row
of a later message.
"""

from __future__ import annotations

from typing import Protocol

from polybus.amqp.codec import decode
from polybus.errors import BugError, PartitionUnavailable, PolybusError, QuotaExceeded, ServerBusy, StoreError
from polybus.hosting import catalogue as records
from polybus.hosting.catalogue import Catalogue, Changes
from polybus.hosting.partition_client import PartitionClient
from polybus.hosting.partition_host import MARKS, PartitionHost
from polybus.hosting.store_host import StoreHost
from polybus.limits import DOUBT_MS, RECOVER_MS
from polybus.partition import moving, transactions
from polybus.partition.broker import Broker
from polybus.partition.records import unsealed
from polybus.promise import Loop, Promise, pause, resolved, spawn
from polybus.rows import Row

Marks = list[tuple[StoreHost, list[Row]]]


class RecoveryListener(Protocol):
    """Whoever knows the entities: what is to be done above before partitions serve, and after."""

    def misses(self, store: StoreHost) -> bool:
        """Whether an entity of this store has partitions on one that was not given: its marks cannot be read."""

    def apply_intent(self, partition: PartitionHost, intent: bytes) -> Promise[None]:
        """Does in the catalogue what the partition's last transaction intended; twice is harmless."""

    def recovered(self) -> Promise[None]:
        """The partitions of a store serve, as far as they can."""

    def tell(self, error: PolybusError) -> None:
        """Something is wrong that no client hears of."""


class OtherMembers(Protocol):
    """The other processes of the bus, whose gateways may have sends in doubt about a store of this one."""

    def marks_elsewhere(self, store_id: bytes) -> Promise[list[bytes] | None]:
        """Ids of the stores in which other members have made marks about this one; None while a send in doubt about it
        is still on its way at one of them. Members that cannot be reached have left what the catalogue knows."""


class _Doubt:
    """A store about which others may hold marks."""

    def __init__(self, written: Promise[None], inherited: bool) -> None:
        self.written = written
        """Settled when it is written down."""
        self.inherited = inherited
        """It was there at the start: any store may hold marks, also one that is not given now."""
        self.marked: dict[bytes, None] = {}
        """Ids of the stores where marks were made since."""


class Recovery:
    def __init__(self, catalogue: Catalogue, stores: list[StoreHost], loop: Loop, listener: RecoveryListener) -> None:
        self._catalogue = catalogue
        self._stores = stores
        self._loop = loop
        self._listener = listener
        self._running: dict[StoreHost, Promise[None]] = {}
        """Stores whose partitions are being brought up; the promise is kept when the first try is over."""
        self._doubted: dict[bytes, _Doubt] = {}
        """By the store's id."""
        self._reroutes: dict[bytes, int] = {}
        """By store id: sends in doubt about it that are on their way to another. Their marks cannot be read yet."""
        self.others: OtherMembers | None = None
        """There where the bus has several processes."""

    # Doubt

    async def load(self) -> None:
        """Reads which stores are doubted."""
        for row in await self._catalogue.rows(records.DOUBT):
            self._doubted[bytes.fromhex(records.decode(row)["store"])] = _Doubt(resolved(None), True)

    def doubt(self, store_id: bytes) -> Promise[None]:
        """Writes down that other stores may hold marks about this one, before the first mark is made."""
        doubt = self._doubted.get(store_id)
        if doubt is None:
            promise: Promise[None] = Promise()
            doubt = self._doubted[store_id] = _Doubt(promise, False)
            changes = Changes().put(records.DOUBT + store_id, {"store": store_id.hex()})
            spawn(self._catalogue.write(changes)).then(lambda written: _pass_on(written, promise))
            self._loop.call_later(DOUBT_MS / 1000, _give_up, promise)
        return doubt.written

    def reroute_begins(self, store_id: bytes) -> None:
        """A send in doubt about the store looks for another: until that ends the store must not serve."""
        self._reroutes[store_id] = self._reroutes.get(store_id, 0) + 1

    def reroute_ends(self, store_id: bytes) -> None:
        self._reroutes[store_id] -= 1

    def marked(self, store_id: bytes, by: bytes) -> None:
        """A mark about the store goes into another one, which must be asked before the store serves."""
        self._doubted[store_id].marked[by] = None

    # Doubts of several members

    def marks_here(self, store_id: bytes) -> list[bytes] | None:
        """What this member answers when the store's owner asks: see `OtherMembers.marks_elsewhere`."""
        if self._reroutes.get(store_id):
            return None
        doubt = self._doubted.get(store_id)
        return [] if doubt is None else list(doubt.marked)

    def doubt_followed(self, store_id: bytes, noted: bool) -> None:
        """The catalogue says that a store is doubted, or no longer is, and another member has written it."""
        if not noted and not self._reroutes.get(store_id):
            self._doubted.pop(store_id, None)
        elif noted and store_id not in self._doubted:
            self._doubted[store_id] = _Doubt(resolved(None), True)

    async def _ask_members(self, store: StoreHost) -> bool:
        """Learns what other members know of doubts about the store; False while one of them has some on the way."""
        if self.others is None:
            return True
        marked = await self.others.marks_elsewhere(store.store_id)
        if marked is None:
            return False
        if marked:
            doubt = self._doubted.get(store.store_id)
            if doubt is None:
                doubt = self._doubted[store.store_id] = _Doubt(resolved(None), False)
            doubt.marked.update((by, None) for by in marked)
        return True

    # Bringing up

    def begin(self, store: StoreHost) -> Promise[None]:
        """Brings up every partition of the store that does not serve; settled when the first try is over."""
        first = self._running.get(store)
        if first is None:
            first = self._running[store] = Promise()
            spawn(self._bring_up(store, first)).then(self._heard)
        return first

    async def open_new(self, partition: PartitionClient) -> None:
        """Brings a partition up that has never been written to; one that cannot be read now comes up with its store."""
        if not isinstance(partition, PartitionHost):
            return  # its owner brings it up
        store = partition.store
        opening = store.openings
        try:
            broker = await partition.open(self._catalogue.incarnation)
        except PartitionUnavailable:
            self.begin(store)
        else:
            if store.openings == opening and store.available:
                partition.start(broker)

    async def _bring_up(self, store: StoreHost, first: Promise[None]) -> None:
        while store.available and self._unfinished(store):
            try:
                await self._try(store)
            except PolybusError as error:
                # A store or the catalogue failed, or is full: the next try may find it well.
                if not isinstance(error, (ServerBusy, QuotaExceeded, StoreError)):
                    self._listener.tell(error)
            if not first.settled:
                first.resolve(None)
            if store.available and self._unfinished(store):
                await pause(self._loop, RECOVER_MS)
        del self._running[store]
        if not first.settled:
            first.resolve(None)
        await self._listener.recovered()

    def _unfinished(self, store: StoreHost) -> bool:
        return bool(_missing(store)) or store.store_id in self._doubted

    async def _try(self, store: StoreHost) -> None:
        opening = store.openings
        marks = await self._marks_about(store)
        if marks is None:
            return
        incarnation = await self._catalogue.next_incarnation()
        opened = await self._open(store, incarnation, doubtful_keys(marks))
        await _remove_marks(marks)
        _check_still_open(store, opening)
        await self._settle_doubt(store)
        _check_still_open(store, opening)
        for tenant, broker in opened:
            tenant.start(broker)

    async def _marks_about(self, store: StoreHost) -> Marks | None:
        """The marks that other stores hold about this one; None where not all of them can be asked yet."""
        if not await self._ask_members(store):
            return None
        doubt = self._doubted.get(store.store_id)
        if doubt is None:
            return []
        others = [other for other in self._stores if other is not store]
        if not doubt.inherited:
            others = [other for other in others if other.store_id in doubt.marked]
        if self._reroutes.get(store.store_id) or not all(other.available for other in others):
            return None
        if doubt.inherited and self._listener.misses(store):
            return None
        found: Marks = []
        prefix = MARKS + store.store_id
        for other in others:
            rows = await other.marks_about(prefix)
            if rows:
                found.append((other, rows))
        return found

    async def _open(
        self, store: StoreHost, incarnation: int, keys: list[bytes]
    ) -> list[tuple[PartitionHost, Broker]]:
        opened = []
        for tenant in _missing(store):
            try:
                broker = await tenant.open(incarnation)
                await _undo(tenant, broker, keys)
                await self._apply_intent(tenant, broker)
            except StoreError as error:
                tenant.problem = str(error)
                self._listener.tell(error)
            else:
                opened.append((tenant, broker))
        return opened

    async def _apply_intent(self, partition: PartitionHost, broker: Broker) -> None:
        settings = partition.settings
        if not settings.topic or settings.partitions > 1:
            return  # only rules can be intended, and those of a partitioned topic cannot change in a transaction
        intent = await partition.run(transactions.intent(broker))
        if intent:
            await self._listener.apply_intent(partition, intent)
            transactions.remove_intent(broker)
            await partition.store.synced()

    async def _settle_doubt(self, store: StoreHost) -> None:
        """Strikes the doubt off; one that comes up meanwhile is written down after that."""
        doubt = self._doubted.pop(store.store_id, None)
        if doubt is None:
            return
        try:
            await self._catalogue.write(Changes().delete(records.DOUBT + store.store_id))
        except ServerBusy:
            self._doubted.setdefault(store.store_id, doubt)
            raise

    def _heard(self, promise: Promise[None]) -> None:
        try:
            promise.result()
        except (ServerBusy, QuotaExceeded):
            return  # tombstones are looked at again when the next store returns
        except PolybusError as error:
            self._listener.tell(error)


def _check_still_open(store: StoreHost, opening: int) -> None:
    """Raises where the store has failed since the opening of which the rows were read."""
    if store.openings != opening or not store.available:
        raise store.unavailable()


def _missing(store: StoreHost) -> list[PartitionHost]:
    """The partitions that should serve and do not, without those whose rows are damaged."""
    found = []
    for tenant in store.tenants.values():
        assert isinstance(tenant, PartitionHost)
        if tenant.broker is None and tenant.problem is None:
            found.append(tenant)
    return found


def _pass_on(written: Promise[None], promise: Promise[None]) -> None:
    if promise.settled:
        return
    try:
        written.result()
    except PolybusError as error:
        promise.reject(error)
    else:
        promise.resolve(None)


def _give_up(promise: Promise[None]) -> None:
    if not promise.settled:
        promise.reject(ServerBusy("The catalogue does not answer."))


def doubtful_keys(marks: Marks) -> list[bytes]:
    """The keys that the marks name, each once: a send that failed in two stores is named by both that followed."""
    keys: dict[bytes, None] = {}
    for _, rows in marks:
        for _, value in rows:
            decoded, _ = decode(unsealed(value, "a mark"), 0)
            if not isinstance(decoded, list):
                raise BugError("a mark is not a list of keys")
            keys.update((key, None) for key in decoded if isinstance(key, bytes))
    return list(keys)


async def _undo(partition: PartitionHost, broker: Broker, keys: list[bytes]) -> None:
    """Removes the partition's rows that others have taken over; returns when that is synced."""
    own = [key for key in keys if key.startswith(broker.prefix)]
    if not own:
        return
    await partition.run(moving.undo(broker, own))
    await partition.store.synced()


async def _remove_marks(marks: Marks) -> None:
    """The rows are gone: the marks go, too; returns when that is synced everywhere."""
    waiting: list[Promise[None]] = []
    for store, rows in marks:
        waiting.append(store.remove_rows([key for key, _ in rows]))
    for done in waiting:
        await done
