"""One partition at work: its broker while its store is there, its timers, and who waits for its return."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from polybus.clock import Clock
from polybus.errors import PartitionUnavailable, PolybusError, StoreError
from polybus.hosting.store_host import StoreHost
from polybus.limits import RECOVER_MS
from polybus.message.message import Message
from polybus.partition import sending, transactions, upkeep
from polybus.partition.broker import NOT_DUE, Broker, Router
from polybus.partition.log import Log
from polybus.partition.output import Output, Reply
from polybus.partition.sessions import Session
from polybus.partition.settings import EntitySettings
from polybus.promise import Handle, Loop, Promise, pause
from polybus.rows import Get, Read

if TYPE_CHECKING:
    from polybus.namespace.delivery.session_source import SessionSource
    from polybus.namespace.delivery.source import Source

T = TypeVar("T")


class Unkeyed:
    """A send that another partition may have to take over."""

    __slots__ = ()

    def written(self, keys: list[bytes]) -> None:
        """Its messages are in the open output, in these rows."""
        raise NotImplementedError


class PartitionHost:
    def __init__(
        self,
        entity_id: int,
        index: int,
        settings: EntitySettings,
        store: StoreHost,
        router: Router,
        loop: Loop,
        clock: Clock,
    ) -> None:
        self.entity_id = entity_id
        self.index = index
        self.settings = settings
        self.store = store
        self.broker: Broker | None = None
        self.problem: str | None = None
        """Why the partition did not come up though its store did, or cannot do its work: a damaged record."""
        self.sources: dict[int, Source] = {}
        self.session_sources: dict[int, SessionSource] = {}
        self.on_opening: Callable[[PartitionHost, Broker], None] | None = None
        """Called before the broker serves: floors of cursors must be there when the first message is settled."""
        self.on_change: Callable[[PartitionHost], None] | None = None
        self._router = router
        self._loop = loop
        self._clock = clock
        self._timer: Handle | None = None
        self._armed_mono_ms = NOT_DUE
        self._armed_wall_ms = NOT_DUE
        self._waiting_sends: list[tuple[list[Message], list[bytes], Reply, object, Unkeyed | None]] = []
        self._reading_ids = False
        self._retired = False
        store.tenants[entity_id, index] = self

    @property
    def available(self) -> bool:
        return self.broker is not None

    def require(self) -> Broker:
        """The broker; PartitionUnavailable where its store is down (B9, F1)."""
        if self.broker is None:
            raise self.store.unavailable()
        return self.broker

    def run(self, steps: Generator[Read, list[object], T]) -> Promise[T]:
        return self.store.run(steps)

    # Life

    async def open(self, incarnation: int) -> Broker:
        """Makes the broker from what the store holds; it serves only after `start`."""
        broker = Broker(self.entity_id, self.index, self.settings, self.store, self._router, incarnation)
        await self.run(broker.open())
        return broker

    def start(self, broker: Broker) -> None:
        """The partition serves."""
        if self._retired or self.broker is not None:
            return
        if self.on_opening is not None:
            self.on_opening(self, broker)
        self.broker = broker
        for source in self.sources.values():
            source.partition_opened(self)
        for sessions in self.session_sources.values():
            sessions.partition_opened(self)
        self.arm()
        if broker.transfers:
            self._router.outbox_grew(broker)
        if self.on_change is not None:
            self.on_change(self)

    def fenced(self) -> None:
        """The store is gone, and with it everything in memory, locks included."""
        broker, self.broker = self.broker, None
        self._disarm()
        if broker is not None:
            for log in broker.logs.values():
                if log.sessions is not None:
                    for session in list(log.sessions.held.values()):
                        session.lost = True
                        self._session_lost(session)
        for source in self.sources.values():
            source.partition_closed(self)
        waiting, self._waiting_sends = self._waiting_sends, []
        for _, _, reply, context, _ in waiting:
            reply(context, None, self.store.unavailable())
        if self.on_change is not None:
            self.on_change(self)

    def retire(self) -> None:
        """The entity is deleted: nothing more happens here."""
        self._retired = True
        self._disarm()
        self.broker = None
        self.store.tenants.pop((self.entity_id, self.index), None)

    def settled(self, batch: Output) -> None:
        """A batch that this partition wrote to is synced: something may be due, or have to be moved on."""
        del batch
        broker = self.broker
        if broker is not None and upkeep.first_due_ms(broker) < self._armed_wall_ms:
            self.arm()

    # Sends

    def send(self, messages: list[Message], reply: Reply, context: object, sent: Unkeyed | None = None) -> None:
        """Stores messages in order of the calls; ids that memory cannot vouch for are read first."""
        broker = self.require()
        keys = sending.rows_needed(broker, messages) if self.settings.duplicate_window_ms else []
        if not keys and not self._waiting_sends:
            written = sending.send(broker, self._clock.now(), messages, None, reply, context)
            if sent is not None:
                sent.written(written)
            return
        sending.check(broker, messages)
        self._waiting_sends.append((messages, keys, reply, context, sent))
        self._read_ids()

    def _read_ids(self) -> None:
        if self._reading_ids or not self._waiting_sends:
            return
        self._reading_ids = True
        keys = [key for _, needed, _, _, _ in self._waiting_sends for key in needed]
        count = len(self._waiting_sends)
        broker = self.broker
        self.run(read_rows(keys)).then(lambda promise: self._ids_read(broker, count, promise))

    def _ids_read(self, broker: Broker | None, count: int, promise: Promise[dict[bytes, object]]) -> None:
        self._reading_ids = False
        if broker is self.broker:  # else those who waited have heard that it is gone
            ready, self._waiting_sends = self._waiting_sends[:count], self._waiting_sends[count:]
            for messages, _, reply, context, sent in ready:
                try:
                    rows = promise.result()
                    written = sending.send(self.require(), self._clock.now(), messages, rows, reply, context)
                    if sent is not None:
                        sent.written(written)
                except PolybusError as error:
                    reply(context, None, error)
        self._read_ids()

    def reserve(self, count: int) -> Promise[list[int]]:
        """Sequence numbers for messages that will be scheduled later; settled when nobody else can get them."""
        numbers: Promise[list[int]] = Promise()
        transactions.reserve(self.require(), count, numbers.reply, None)
        return numbers

    # Time

    def locked_until(self, mono_ms: int) -> None:
        """A lock was given: the timer must not ring later than its end."""
        if mono_ms < self._armed_mono_ms:
            self._arm_in(mono_ms - self._clock.now().mono_ms)

    def arm(self) -> None:
        if self.broker is not None:
            wait_ms = upkeep.next_due(self.broker, self._clock.now())
            if wait_ms < NOT_DUE:
                self._arm_in(wait_ms)

    def _arm_in(self, wait_ms: int) -> None:
        self._disarm()
        now = self._clock.now()
        self._armed_mono_ms = now.mono_ms + wait_ms
        # One that is to ring at once is never set anew, or steady commits would put it off for ever.
        self._armed_wall_ms = now.wall_ms + wait_ms if wait_ms else 0
        self._timer = self._loop.call_later(max(wait_ms, 1) / 1000, self.tick)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._armed_mono_ms = self._armed_wall_ms = NOT_DUE

    def tick(self) -> None:
        """Does what time has made due, and sets the timer for what comes next."""
        self._disarm()
        broker = self.broker
        if broker is None:
            return
        now = self._clock.now()
        for session in upkeep.expire_locks(broker, now):
            self._session_lost(session)
        if broker.due_ms <= now.wall_ms and not broker.activating:
            self.run(upkeep.activate(broker, now)).then(self._rearm)
        if broker.expiry_due_ms <= now.wall_ms and not broker.sweeping:
            self.run(upkeep.sweep(broker, now)).then(self._rearm)
        if self.settings.duplicate_window_ms:
            self.run(upkeep.prune_duplicates(broker, now)).then(self._rearm)
        self.arm()

    def _rearm(self, promise: Promise[Any]) -> None:
        try:
            promise.result()
        except (PartitionUnavailable, StoreError) as error:
            if isinstance(error, StoreError):
                self.problem = str(error)  # a damaged record; it must not stop the clock for all the others
            if self.broker is not None:  # else opening the store again sets the timers anew
                self._arm_in(RECOVER_MS)
            return
        self.arm()

    def try_again(self, callback: Callable[[], None]) -> None:
        """A read has failed though the store is there: the callback is called a little later."""
        if self.broker is not None:
            self._loop.call_later(RECOVER_MS / 1000, callback)

    def turn(self) -> Promise[None]:
        """Settled when everybody else has had a turn: for work on many rows."""
        return pause(self._loop, 0)

    def _session_lost(self, session: Session) -> None:
        for sessions in list(self.session_sources.values()):
            sessions.session_lost(session)

    def watch(self, log: Log, source: Source) -> None:
        """Lets a source know when the log has something to give."""
        log.watcher = PartitionWatch(source, self)


class PartitionWatch:
    """Tells a source which of its partitions has something."""

    def __init__(self, source: Source, partition: PartitionHost) -> None:
        self._source = source
        self._partition = partition

    def available(self) -> None:
        self._source.available(self._partition)


def read_rows(keys: list[bytes]) -> Generator[Read, list[object], dict[bytes, object]]:
    """Rows by key, for a verb that wants them all at once."""
    answer = yield Get(keys)
    return dict(zip(keys, answer, strict=True))
