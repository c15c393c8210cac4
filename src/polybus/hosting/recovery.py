"""How a store's partitions come back: brokers from the rows, minus what others took over meanwhile.

Each store has one recovery at a time, which tries until every partition serves or the store is gone again. A store
that is doubted (a send in doubt may have been taken over by another store) serves only after every store that may
hold a mark about it was asked, the rows were removed, then the marks, then the doubt itself: in this order, each
step on disk before the next, so that a crash between two of them is harmless and an old mark can never name a row
of a later message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polybus.amqp.codec import decode
from polybus.errors import BugError, PolybusError, QuotaExceeded, ServerBusy, StoreError
from polybus.hosting import catalogue as records
from polybus.hosting.catalogue import Changes
from polybus.hosting.partition_host import PartitionHost
from polybus.hosting.store_host import StoreHost
from polybus.limits import DOUBT_MS, RECOVER_MS
from polybus.namespace.delivery.sender import MARKS
from polybus.namespace.delivery.transaction_rules import pay
from polybus.partition import moving
from polybus.partition.broker import Broker
from polybus.partition.reading import rows_of
from polybus.partition.records import after, unsealed
from polybus.promise import Promise, pause, resolved, spawn
from polybus.rows import Row, Scan

if TYPE_CHECKING:
    from polybus.namespace.bus import Bus

Marks = list[tuple[StoreHost, list[Row]]]


class _Doubt:
    """A store about which others may hold marks."""

    def __init__(self, written: Promise[None], inherited: bool) -> None:
        self.written = written
        """Settled when it is written down."""
        self.inherited = inherited
        """It was there at the start: any store may hold marks, also one that is not given now."""
        self.marked: dict[StoreHost, None] = {}
        """Where marks were made since."""


class Recovery:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._running: dict[StoreHost, Promise[None]] = {}
        """Stores whose partitions are being brought up; the promise is kept when the first try is over."""
        self._doubted: dict[bytes, _Doubt] = {}
        """By the store's id."""
        self._wandering: dict[StoreHost, int] = {}
        """Sends in doubt about a store that are on their way to another: their marks cannot be read yet."""

    # Doubt

    async def load(self) -> None:
        """Reads which stores are doubted."""
        for row in await self._bus.catalogue.rows(records.DOUBT):
            self._doubted[bytes.fromhex(records.decode(row)["store"])] = _Doubt(resolved(None), True)

    def doubt(self, store: StoreHost) -> Promise[None]:
        """Writes down that other stores may hold marks about this one, before the first mark is made."""
        doubt = self._doubted.get(store.store_id)
        if doubt is None:
            promise: Promise[None] = Promise()
            doubt = self._doubted[store.store_id] = _Doubt(promise, False)
            changes = Changes().put(records.DOUBT + store.store_id, {"store": store.store_id.hex()})
            spawn(self._bus.catalogue.write(changes)).then(lambda written: _pass_on(written, promise))
            self._bus.loop.call_later(DOUBT_MS / 1000, _give_up, promise)
        return doubt.written

    def wanders(self, store: StoreHost) -> None:
        """A send in doubt about the store looks for another: until it has arrived the store must not serve."""
        self._wandering[store] = self._wandering.get(store, 0) + 1

    def arrived(self, store: StoreHost) -> None:
        self._wandering[store] -= 1

    def marked(self, store: StoreHost, by: StoreHost) -> None:
        """A mark about the store goes into another one, which must be asked before the store serves."""
        self._doubted[store.store_id].marked[by] = None

    # Bringing up

    def begin(self, store: StoreHost) -> Promise[None]:
        """Brings up every partition of the store that does not serve; settled when the first try is over."""
        first = self._running.get(store)
        if first is None:
            first = self._running[store] = Promise()
            spawn(self._bring_up(store, first)).then(self._heard)
        return first

    async def _bring_up(self, store: StoreHost, first: Promise[None]) -> None:
        while store.available and self._unfinished(store):
            try:
                await self._try(store)
            except PolybusError as error:
                # A store or the catalogue failed, or is full: the next try may find it well.
                if not isinstance(error, (ServerBusy, QuotaExceeded, StoreError)):
                    self._bus.tell(error)
            if not first.settled:
                first.resolve(None)
            if store.available and self._unfinished(store):
                await pause(self._bus.loop, RECOVER_MS)
        del self._running[store]
        if not first.settled:
            first.resolve(None)
        await self._bus.remains.resume()

    def _unfinished(self, store: StoreHost) -> bool:
        return bool(_missing(store)) or store.store_id in self._doubted

    async def _try(self, store: StoreHost) -> None:
        opening = store.openings
        marks = await self._marks_about(store)
        if marks is None:
            return
        incarnation = await self._bus.catalogue.next_incarnation()
        opened = await self._open(store, incarnation, doubtful_keys(marks))
        await _remove_marks(marks)
        _check_still_open(store, opening)
        await self._settle_doubt(store)
        _check_still_open(store, opening)
        for tenant, broker in opened:
            tenant.start(broker)

    async def _marks_about(self, store: StoreHost) -> Marks | None:
        """The marks that other stores hold about this one; None where not all of them can be asked yet."""
        doubt = self._doubted.get(store.store_id)
        if doubt is None:
            return []
        others = [other for other in self._bus.stores if other is not store]
        if not doubt.inherited:
            others = [other for other in others if other in doubt.marked]
        if self._wandering.get(store) or not all(other.available for other in others):
            return None
        if doubt.inherited and self._bus.misses(store):
            return None
        found: Marks = []
        prefix = MARKS + store.store_id
        for other in others:
            rows = await other.run(_scan(prefix))
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
                await pay(self._bus, tenant, broker)
            except StoreError as error:
                tenant.problem = str(error)
                self._bus.tell(error)
            else:
                opened.append((tenant, broker))
        return opened

    async def _settle_doubt(self, store: StoreHost) -> None:
        """Strikes the doubt off; one that comes up meanwhile is written down after that."""
        doubt = self._doubted.pop(store.store_id, None)
        if doubt is None:
            return
        try:
            await self._bus.catalogue.write(Changes().delete(records.DOUBT + store.store_id))
        except ServerBusy:
            self._doubted.setdefault(store.store_id, doubt)
            raise

    def _heard(self, promise: Promise[None]) -> None:
        try:
            promise.result()
        except (ServerBusy, QuotaExceeded):
            return  # what remains of deleted entities is looked for again when the next store returns
        except PolybusError as error:
            self._bus.tell(error)


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


def _scan(prefix: bytes):  # type: ignore[no-untyped-def]
    return rows_of((yield Scan(prefix, after(prefix), 1 << 30)))


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
    done: Promise[None] = Promise()
    broker.out().replies.append((done.reply, None, None))
    await done


async def _remove_marks(marks: Marks) -> None:
    """The rows are gone: the marks go, too; returns when that is synced everywhere."""
    waiting: list[Promise[None]] = []
    for store, rows in marks:
        if not store.available:
            raise store.unavailable()
        for key, _ in rows:
            store.batch.delete(key)
        done: Promise[None] = Promise()
        store.batch.replies.append((done.reply, None, None))
        waiting.append(done)
        store.touch()
    for done in waiting:
        await done
