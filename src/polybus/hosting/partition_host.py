"""One partition at work in this process: its broker while its store is there, its timers, sends and receives.

What is asked for seldom is in `local_partition`, which adds the other verbs of the partition's client.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeVar

from polybus.amqp.codec import encode
from polybus.clock import Clock, Now
from polybus.errors import (
    MessageLockLost,
    PartitionUnavailable,
    PolybusError,
    QuotaExceeded,
    ServerBusy,
    SessionLockLost,
    StoreError,
)
from polybus.hosting.partition_client import Delivery, LogListener, PartitionClient, SessionLock, UnkeyedSend
from polybus.hosting.store_host import StoreHost
from polybus.limits import RECOVER_MS
from polybus.message.message import Message
from polybus.message.rendering import STATE_ACTIVE, STATE_DEFERRED
from polybus.partition import receiving, sending, settling, transactions, upkeep
from polybus.partition.broker import NOT_DUE, Broker
from polybus.partition.entry import Entry
from polybus.partition.log import Log
from polybus.partition.output import Output
from polybus.partition.records import sealed
from polybus.partition.sessions import Session
from polybus.partition.settings import EntitySettings
from polybus.promise import C, Loop, Promise, Reply, TimerHandle, pause
from polybus.rows import Get, Read
from polybus.rules.selectors import Selector

MARKS = b"K"
"""Table of marks in every store: a doubtful store's id, then a number of its own; the value names the doubtful rows."""
LOCK_LOST = (
    "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue, or"
    " was received by a different receiver instance."
)

STORE_FULL = "A messaging store has less free space than its reserve; nothing can be sent to it."

T = TypeVar("T")


class PartitionListener(Protocol):
    """Whoever knows the other entities: what a partition asks it, and tells it."""

    def route(self, destination: str, key: str | None, message_id: str | None) -> tuple[int, int]:
        """The (entity id, partition index) that takes a forwarded message with this session id or partition key;
        raises BusError where the destination cannot take it for good."""

    def outbox_ready(self, partition: PartitionClient) -> None:
        """Messages wait to be moved on, and are safe."""

    def changed(self, partition: PartitionClient) -> None:
        """The partition serves, or no longer does."""

    def failed(self, error: PolybusError) -> None:
        """Something is wrong that no client hears of."""


class PartitionHost(PartitionClient):
    def __init__(
        self,
        entity_id: int,
        index: int,
        settings: EntitySettings,
        store: StoreHost,
        listener: PartitionListener,
        loop: Loop,
        clock: Clock,
    ) -> None:
        super().__init__(entity_id, index, settings, store)
        self.broker: Broker | None = None
        self.listeners: dict[int, LogListener] = {}
        """By log: who receives from it."""
        self.listener = listener
        self.followers: list[Callable[[], None]] = []
        """Called when the partition serves, or no longer does: those who speak for it elsewhere."""
        self._loop = loop
        self._clock = clock
        self._timer: TimerHandle | None = None
        self._armed_mono_ms = NOT_DUE
        self._armed_wall_ms = NOT_DUE
        self._waiting_sends: list[
            tuple[list[Message], list[bytes], Reply[Any, list[int]], object, UnkeyedSend | None]
        ] = []
        self._reading_ids = False
        self._retired = False
        self._outbox_batch: Output | None = None
        """The output with which the outbox last grew and which is not synced yet."""
        # What the verbs in the modules beside this one keep.
        self._works: dict[bytes, transactions.Work] = {}
        """Settlements of open transactions, by the transaction's id."""
        self._floors: dict[int, int] = {}
        """Floors of cursors by log, also while there is no broker."""
        self._trimming: dict[int, Promise[None]] = {}
        """Logs whose kept messages are being removed."""
        self._events_trimmed: dict[int, int] = {}
        """By log: the last event that was removed."""
        store.tenants[entity_id, index] = self

    @property
    def available(self) -> bool:
        return self.broker is not None

    def require(self) -> Broker:
        """The broker, for whoever is below the partition's client; PartitionUnavailable where its store is down, or may
        be another's by now."""
        if self.broker is None or not self.store.may_hand_out:
            raise self.store.unavailable()
        return self.broker

    def run(self, steps: Generator[Read, list[object], T]) -> Promise[T]:
        return self.store.run(steps)

    # Life

    async def open(self, incarnation: int) -> Broker:
        """Makes the broker from what the store holds; it serves only after `start`."""
        broker = Broker(self.entity_id, self.index, self.settings, self.store, self, incarnation)
        await self.run(broker.open())
        return broker

    def start(self, broker: Broker) -> None:
        """The partition serves."""
        if self._retired or self.broker is not None:
            return
        self.prepare(broker)
        self.broker = broker
        for log_id, listener in list(self.listeners.items()):
            self._attach(broker, log_id, listener)
        self.arm()
        if broker.transfers:
            self.outbox_grew(broker)
        self.started(broker)
        self._tell_changed()

    def _tell_changed(self) -> None:
        for follower in list(self.followers):
            follower()
        self.listener.changed(self)

    def prepare(self, broker: Broker) -> None:
        """The broker is about to serve: nothing may have happened to its messages yet."""
        raise NotImplementedError

    def started(self, broker: Broker) -> None:
        """The broker serves: work goes on that its last life left behind."""
        raise NotImplementedError

    def fenced(self) -> None:
        """The store is gone, and with it everything in memory, locks included."""
        broker, self.broker = self.broker, None
        self._disarm()
        if broker is not None:
            for log in broker.logs.values():
                if log.sessions is not None:
                    for session in list(log.sessions.held.values()):
                        session.lost = True
                        self.session_lost(session)
        for listener in list(self.listeners.values()):
            listener.unavailable(self)
        waiting, self._waiting_sends = self._waiting_sends, []
        for _, _, reply, context, _ in waiting:
            reply(context, None, self.store.unavailable())
        self._tell_changed()

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

    def synced(self) -> Promise[None]:
        """Settled when everything that the partition has written so far is on disk."""
        self.require()
        return self.store.synced()

    # Sends

    def check_open(self) -> None:
        if self.broker is None:
            raise self.store.unavailable()
        store = self.store
        if store.full:
            raise QuotaExceeded(STORE_FULL)
        if store.overloaded:
            raise ServerBusy("Too much waits for a messaging store; try again.")

    def send(
        self, messages: list[Message], reply: Reply[C, list[int]], context: C, sent: UnkeyedSend | None = None
    ) -> None:
        """Ids that memory cannot vouch for are read first."""
        broker = self.broker
        if broker is None:
            raise self.store.unavailable()
        keys = sending.rows_needed(broker, messages) if self.settings.duplicate_window_ms else []
        if not keys and not self._waiting_sends:
            written = sending.send(broker, self._clock.now(), messages, None, reply, context)
            if sent is not None:
                self._written(broker, sent, written)
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
                    now_broker = self.require()
                    written = sending.send(now_broker, self._clock.now(), messages, rows, reply, context)
                    if sent is not None:
                        self._written(now_broker, sent, written)
                except PolybusError as error:
                    reply(context, None, error)
        self._read_ids()

    def _written(self, broker: Broker, sent: UnkeyedSend, keys: list[bytes]) -> None:
        """The very batch that holds the messages now names what failed stores may hold of them."""
        if sent.doubtful is not None:
            _mark(broker, sent.doubtful)
        sent.written(keys)

    # Receives

    def watch(self, log_id: int, listener: LogListener) -> None:
        known = self.listeners.get(log_id)
        self.listeners[log_id] = listener if known is None else also(known, listener)
        if self.broker is not None:
            self._attach(self.broker, log_id, self.listeners[log_id])

    def unwatch(self, log_id: int, listener: LogListener) -> None:
        known = self.listeners.get(log_id)
        if known is listener or (isinstance(known, Listeners) and known.remove(listener)):
            del self.listeners[log_id]

    def _attach(self, broker: Broker, log_id: int, listener: LogListener) -> None:
        log = broker.log(log_id)
        log.watcher = LogWatch(listener, self, log)
        if log.active or log.sessions is not None:
            listener.available(self)

    def take(self, log_id: int, credit: int) -> Delivery | None:
        del credit
        broker = self.broker
        if broker is None or not self.store.may_hand_out:
            return None
        log = broker.log(log_id)
        entry = receiving.take(broker, log, self._clock.now(), None)
        if log.wants_page():
            self._load_page(broker, log)
        if entry is None:
            return None
        if entry.locked_until_ms < self._armed_mono_ms:
            self.locked_until(entry.locked_until_ms)
        message = entry.message
        assert message is not None, "what is in the window is in memory"
        return Delivery(  # as `delivery` makes it: this is done for every message
            self,
            log_id,
            broker.token_head,
            entry.lock,
            message,
            entry.size,
            entry.sequence,
            entry.enqueued_ms,
            entry.expires_ms,
            entry.original,
            entry.delivery_count,
            STATE_ACTIVE,
            entry.locked_until_wall_ms,
            entry.overlay,
        )

    def take_away(self, log_id: int, credit: int, reply: Reply[C, Delivery], context: C) -> bool:
        del credit
        broker = self.broker
        if broker is None:
            return False
        log = broker.log(log_id)
        entry = receiving.take_away(broker, log, self._clock.now())
        if log.wants_page():
            self._load_page(broker, log)
        if entry is None:
            return False
        broker.out().replies.append((reply, context, self.delivery(broker, entry)))
        return True

    def take_selected(self, log_id: int, selector: Selector, count: int) -> list[Delivery]:
        broker = self.broker
        if broker is None or not self.store.may_hand_out:
            return []
        entries = self._selected(broker, log_id, selector, count, True)
        for entry in entries:
            if entry.locked_until_ms < self._armed_mono_ms:
                self.locked_until(entry.locked_until_ms)
        return [self.delivery(broker, entry) for entry in entries]

    def take_away_selected(
        self, log_id: int, selector: Selector, count: int, reply: Reply[C, Delivery], context: C
    ) -> int:
        broker = self.broker
        if broker is None:
            return 0
        entries = self._selected(broker, log_id, selector, count, False)
        for entry in entries:
            broker.out().replies.append((reply, context, self.delivery(broker, entry)))
        return len(entries)

    def _selected(self, broker: Broker, log_id: int, selector: Selector, count: int, lock: bool) -> list[Entry]:
        log = broker.log(log_id)
        entries = receiving.take_selected(broker, log, self._clock.now(), self.index, selector, count, lock)
        if log.wants_page():
            self._load_page(broker, log)
        return entries

    def delivery(self, broker: Broker, entry: Entry) -> Delivery:
        """The entry as data, with its lock as it is now."""
        return Delivery(
            self,
            entry.log.id,
            broker.token_head,
            entry.lock,
            entry.loaded(),
            entry.size,
            entry.sequence,
            entry.enqueued_ms,
            entry.expires_ms,
            entry.original,
            entry.delivery_count,
            STATE_DEFERRED if entry.deferred else STATE_ACTIVE,
            entry.locked_until_wall_ms,
            entry.overlay,
        )

    def _load_page(self, broker: Broker, log: Log) -> None:
        listener = self.listeners.get(log.id)
        if listener is None:
            return
        listener.searching(self)
        self.run(receiving.load_page(broker, log)).then(lambda promise: self._page_loaded(log, listener, promise))

    def _page_loaded(self, log: Log, listener: LogListener, promise: Promise[None]) -> None:
        try:
            promise.result()
        except PolybusError:
            self.try_again(lambda: listener.available(self))
        else:
            if log.has_ready() or not log.whole:
                listener.available(self)
        listener.searched(self)

    # Settling

    def complete(self, delivery: Delivery, now: Now, reply: Reply[C, None] | None, context: C) -> None:
        broker = self.broker
        if broker is None:
            raise self.store.unavailable()
        log = broker.logs.get(delivery.log_id)
        if log is None or delivery.head != broker.token_head:
            log = self.log_of(broker, delivery)
        settling.complete(broker, log, delivery.lock, now, reply, context)

    def log_of(self, broker: Broker, delivery: Delivery) -> Log:
        """The delivery's log, where this broker gave its lock."""
        log = broker.logs.get(delivery.log_id)
        if log is not None and delivery.head == broker.token_head:
            return log
        if log is not None and log.sessions is not None:
            raise SessionLockLost("The session lock has expired. Accept the session again.")
        raise MessageLockLost(LOCK_LOST)

    # Moving on

    def route(self, destination: str, entry: Entry) -> tuple[int, int]:
        """For the broker: which partition of another entity takes a message."""
        key = entry.session_id()
        if key is None:
            key = entry.loaded().partition_key
        return self.listener.route(destination, key, entry.message_id() if key is None else None)

    def outbox_grew(self, broker: Broker) -> None:
        """For the broker: messages entered its outbox. They move on when the open output is synced."""
        batch = broker.out()
        if self._outbox_batch is not batch:  # an earlier output says nothing about what is in this one
            self._outbox_batch = batch
            batch.replies.append((self._outbox_synced, batch, None))

    def _outbox_synced(self, context: Output, result: None, error: PolybusError | None) -> None:
        del result
        if self._outbox_batch is context:
            self._outbox_batch = None
        if error is None:
            self.listener.outbox_ready(self)

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
            self.session_lost(session)
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

    def clock_moved(self) -> None:
        self.tick()

    def session_lost(self, session: Session) -> None:
        """A session is held no longer: its holder hears of it."""
        lock = session.holder
        if isinstance(lock, SessionLock):
            lock.lost = True
            if lock.listener is not None:
                lock.listener.lost()


class Listeners(LogListener):
    """Several who receive from one log: each hears of everything, and another one first each time."""

    def __init__(self, listeners: list[LogListener]) -> None:
        self._listeners = listeners

    def add(self, listener: LogListener) -> None:
        if listener not in self._listeners:
            self._listeners.append(listener)

    def remove(self, listener: LogListener) -> bool:
        """Forgets one; True where none is left."""
        if listener in self._listeners:
            self._listeners.remove(listener)
        return not self._listeners

    def available(self, partition: PartitionClient) -> None:
        self._listeners.append(self._listeners.pop(0))
        for listener in list(self._listeners):
            listener.available(partition)

    def unavailable(self, partition: PartitionClient) -> None:
        for listener in list(self._listeners):
            listener.unavailable(partition)

    def searching(self, partition: PartitionClient) -> None:
        for listener in list(self._listeners):
            listener.searching(partition)

    def searched(self, partition: PartitionClient) -> None:
        for listener in list(self._listeners):
            listener.searched(partition)


def also(known: LogListener, listener: LogListener) -> LogListener:
    """Both of them: whoever listened, and one more."""
    if known is listener:
        return known
    if isinstance(known, Listeners):
        known.add(listener)
        return known
    return Listeners([known, listener])


class LogWatch:
    """Tells a listener which of its partitions has something; before that, holders that their sessions have."""

    def __init__(self, listener: LogListener, partition: PartitionHost, log: Log) -> None:
        self._listener = listener
        self._partition = partition
        self._log = log

    def available(self) -> None:
        sessions = self._log.sessions
        if sessions is not None and sessions.touched:
            touched, sessions.touched = sessions.touched, {}
            for session in touched.values():
                lock = session.holder
                if isinstance(lock, SessionLock) and lock.listener is not None:
                    lock.listener.available()
        self._listener.available(self._partition)


def _mark(broker: Broker, doubtful: list[tuple[bytes, list[bytes]]]) -> None:
    """Names what failed stores may hold, in the very batch that holds the messages now."""
    for store_id, keys in doubtful:
        broker.ids += 1
        unique = broker.token(1 << 47 | broker.ids)
        broker.out().put(MARKS + store_id + unique, sealed(encode(list(keys))))


def read_rows(keys: list[bytes]) -> Generator[Read, list[object], dict[bytes, object]]:
    """Rows by key, for a verb that wants them all at once."""
    answer = yield Get(keys)
    return dict(zip(keys, answer, strict=True))
