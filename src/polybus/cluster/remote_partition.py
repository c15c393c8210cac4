"""A partition whose broker is in another process: each verb of its client is a frame to its owner.

What its owner has sent for receivers is at hand until one takes it; what nobody takes goes back at once, so this side
never holds more than its receivers asked for. When the link breaks, whoever waits hears that the partition is not
available, sessions are lost, and a send that was under way is in doubt, for only the owner knows its rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from polybus.clock import Now
from polybus.cluster import values, verbs
from polybus.cluster.frames import LEDGER_VERSION, Frame
from polybus.cluster.link import Link, LinkLost
from polybus.cluster.values import Reader, Values, nonsense
from polybus.errors import BusError, PolybusError, QuotaExceeded, ServerBusy, SessionLockLost
from polybus.hosting.partition_client import (
    Delivery,
    LogListener,
    PartitionClient,
    SessionLock,
    TransactionWork,
    UnkeyedSend,
)
from polybus.hosting.partition_host import STORE_FULL, Listeners, also
from polybus.hosting.send_ledger import NotStored
from polybus.hosting.store_host import InDoubt, StoreHost
from polybus.limits import CLUSTER_DEMAND, CLUSTER_SENDS_BYTES
from polybus.message.edit import Edit
from polybus.message.message import Message
from polybus.message.peeked import Peeked
from polybus.partition.data import (
    ListedSession,
    LogEvent,
    LogRange,
    Moved,
    OutboxMessage,
    Records,
    Statistics,
)
from polybus.partition.output import Output
from polybus.partition.settings import EntitySettings
from polybus.promise import C, Promise, Reply, rejected
from polybus.rules.selectors import Selector

T = TypeVar("T")


class RemoteLog:
    """A log that receivers of this process receive from."""

    def __init__(self, listener: LogListener) -> None:
        self.listener = listener
        self.at_hand: deque[Delivery] = deque()
        self.asked = 0
        """Messages that the owner was asked for and has not sent."""
        self.searching = 0
        """Demands for which the owner still looks in its store."""
        self.may_have_session = False
        self.selected: dict[Selector, list[Delivery]] = {}
        """What is at hand for one receiver that selects."""
        self.selecting: dict[Selector, None] = {}
        """For whom the owner is asked now."""


class RemoteSessionLock(SessionLock):
    """A session's lock as its owner numbers it on this link."""

    def __init__(self, log_id: int, session_id: str, holder: str, number: int) -> None:
        super().__init__(log_id, session_id, holder)
        self.number = number
        self.at_hand: deque[Delivery] = deque()
        self.asked = 0


class RemotePartition(PartitionClient):
    def __init__(self, entity_id: int, index: int, settings: EntitySettings, store: StoreHost, link: Link) -> None:
        super().__init__(entity_id, index, settings, store)
        self.elsewhere = True
        self._serves = False
        self._sending = 0
        """Bytes of sends that are not confirmed."""
        self._logs: dict[int, RemoteLog] = {}
        self._sessions: dict[int, RemoteSessionLock] = {}
        self._floors: dict[int, int] = {}
        """Floors of cursors by log: an owner that comes later is told them, too."""
        self.on_change: Callable[[PartitionClient], None] | None = None
        self.home: RemotePartitions | None = None
        """Those that the same links lead to."""
        self.attach(link)

    # The link

    def attach(self, link: Link) -> None:
        """A link to the owner is there, perhaps a new one, or the partition has only now come to be there."""
        self._link = link
        link.ask(verbs.FOLLOW, self.entity_id, self.index, [], self._followed)
        for log_id, floor in self._floors.items():
            self._tell(verbs.SET_FLOOR, [log_id, floor])
        for log_id in self._logs:
            self._tell(verbs.WATCH, [log_id])

    def _tell(self, verb: int, value: Values) -> None:
        self._link.tell(verb, self.entity_id, self.index, value)

    def _ask(self, verb: int, value: Values, read: Callable[[Reader], T]) -> Promise[T]:
        promise: Promise[T] = Promise()

        def answered(reader: Reader | None, error: PolybusError | None) -> None:
            if error is not None:
                promise.reject(error)
            else:
                assert reader is not None
                promise.resolve(read(reader))

        self._link.ask(verb, self.entity_id, self.index, value, answered)
        return promise

    def _followed(self, reader: Reader | None, error: PolybusError | None) -> None:
        if error is None and reader is not None:
            self._changed(Reader(reader.items()))

    def _changed(self, reader: Reader) -> None:
        serves, self.problem = reader.flag(), reader.text_or_none()
        if serves == self._serves:
            return
        self._serves = serves
        if not serves:
            self._forget_hands()
        for log in list(self._logs.values()):
            if serves:
                log.may_have_session = True
                log.listener.available(self)
            else:
                log.listener.unavailable(self)
        if self.on_change is not None:
            self.on_change(self)

    def _forget_hands(self) -> None:
        """What is at hand was locked by a broker that is gone."""
        for log in list(self._logs.values()):
            log.at_hand.clear()
            log.asked = 0
            log.may_have_session = False
            self._searched(log, log.searching)

    def lost(self) -> None:
        """The link is gone, and with it what was locked for sessions here."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            self._session_lost(session)
        self._changed(Reader([False, "the connection to its owner is gone"]))

    def arrived(self, frame: Frame) -> None:
        """What the owner tells by itself."""
        reader = Reader(frame.value)
        if frame.verb == verbs.SERVES:
            self._changed(reader)
        elif frame.verb == verbs.HERE:
            self.attach(self._link)
        elif frame.verb == verbs.AVAILABLE:
            self._available(reader.number())
        elif frame.verb == verbs.SEARCHED:
            found = self._logs.get(reader.number())
            if found is not None:
                self._searched(found, reader.number())
        elif frame.verb == verbs.DELIVERIES:
            self._delivered(reader)
        elif frame.verb == verbs.SESSION_AVAILABLE:
            session = self._sessions.get(reader.number())
            if session is not None and session.listener is not None:
                session.listener.available()
        elif frame.verb == verbs.SESSION_DELIVERIES:
            self._delivered_in_session(reader)
        elif frame.verb == verbs.SESSION_LOST:
            lost = self._sessions.pop(reader.number(), None)
            if lost is not None:
                self._session_lost(lost)
        else:
            raise nonsense("a verb that only clients use")

    # Health

    @property
    def available(self) -> bool:
        return self._serves

    def check_open(self) -> None:
        self.check_available()
        if self.store.full:
            raise QuotaExceeded(STORE_FULL)
        if self._sending > CLUSTER_SENDS_BYTES:
            raise ServerBusy("Too much waits for a messaging store; try again.")

    # Sending

    def send(
        self, messages: list[Message], reply: Reply[C, list[int]], context: C, sent: UnkeyedSend | None = None
    ) -> None:
        self.check_available()
        size = sum([message.size for message in messages])
        self._sending += size
        doubtful: Values = []
        if sent is not None and sent.doubtful is not None:
            doubtful = [[store_id, list(keys)] for store_id, keys in sent.doubtful]

        def answered(reader: Reader | None, error: PolybusError | None) -> None:
            found = Reader(reader.items()) if reader is not None and error is None else reader
            numbers = found.numbers() if found is not None and error is None else None
            keys = None if found is None else _keys(found)
            self._sending -= size
            if sent is not None and keys is not None:
                sent.written(keys)
            if outgoing is not None and isinstance(error, LinkLost):
                outgoing.settle(number).then(settled)
                return
            if outgoing is not None:
                outgoing.end(number)
            if isinstance(error, LinkLost):
                error = InDoubt("The connection to the process that owns a partition broke during a commit.")
            reply(context, numbers, error)

        def settled(promise: Promise[list[int]]) -> None:
            """Whoever owns the store now has said what became of it, or nobody could."""
            try:
                reply(context, promise.result(), None)
            except NotStored as error:
                reply(context, None, error)
            except PolybusError:
                reply(context, None, InDoubt("The node that owned a messaging store is gone during a commit."))

        value: Values = [[message.raw for message in messages], doubtful]
        outgoing = self.store.outgoing if self._link.version >= LEDGER_VERSION else None
        number = 0
        if outgoing is not None:
            number = outgoing.begin()
            value += [outgoing.sender, number, outgoing.heard_below]
        self._link.ask(verbs.SEND, self.entity_id, self.index, value, answered)

    def reserve(self, count: int) -> Promise[list[int]]:
        return self._ask(verbs.RESERVE, [count], _numbers)

    def cancel_scheduled(self, numbers: list[int]) -> Promise[None]:
        return self._ask(verbs.CANCEL_SCHEDULED, [list(numbers)], _nothing)

    # Receiving

    def watch(self, log_id: int, listener: LogListener) -> None:
        log = self._logs.get(log_id)
        if log is None:
            log = self._logs[log_id] = RemoteLog(listener)
            self._tell(verbs.WATCH, [log_id])
        else:
            log.listener = also(log.listener, listener)
        if self._serves:  # nobody knows better before the owner has answered, and a receiver may want some now
            log.may_have_session = True
            listener.available(self)

    def unwatch(self, log_id: int, listener: LogListener) -> None:
        log = self._logs.get(log_id)
        if log is None:
            return
        known = log.listener
        if known is listener or (isinstance(known, Listeners) and known.remove(listener)):
            del self._logs[log_id]
            self._give_back_all(log.at_hand)
            self._tell(verbs.UNWATCH, [log_id])

    def at_hand(self, log_id: int) -> int:
        log = self._logs.get(log_id)
        return 0 if log is None else len(log.at_hand)

    def asked(self, log_id: int) -> int:
        log = self._logs.get(log_id)
        return 0 if log is None else log.asked

    def _available(self, log_id: int) -> None:
        log = self._logs.get(log_id)
        if log is not None:
            log.may_have_session = True
            log.listener.available(self)

    def take(self, log_id: int, credit: int) -> Delivery | None:
        log = self._logs.get(log_id)
        if log is None or not self._serves:
            return None
        if log.at_hand:
            return log.at_hand.popleft()
        self._demand(log_id, log, min(credit, CLUSTER_DEMAND))
        return None

    def _demand(self, log_id: int, log: RemoteLog, credit: int) -> None:
        """Asks for as many as there is credit for and were not asked for yet; what is not there the owner hints at."""
        more = credit - log.asked
        if more <= 0:
            return
        log.asked = credit
        log.listener.searching(self)

        def answered(reader: Reader | None, error: PolybusError | None) -> None:
            if reader is None or error is not None:
                log.asked = 0
                log.listener.searched(self)
                return
            answer = Reader(reader.items())
            log.asked = max(log.asked - answer.number(), 0)
            if answer.flag():
                log.searching += 1
                log.listener.searching(self)  # until the owner says so; what it has not is looked for elsewhere now
            log.listener.searched(self)

        self._link.ask(verbs.DEMAND, self.entity_id, self.index, [log_id, more], answered)

    def _searched(self, log: RemoteLog, demands: int) -> None:
        for _ in range(min(demands, log.searching)):
            log.searching -= 1
            log.listener.searched(self)

    def _delivered(self, reader: Reader) -> None:
        log_id = reader.number()
        found = values.deliveries_of(self, reader)
        log = self._logs.get(log_id)
        if log is None:
            self._give_back_all(deque(found))
            return
        log.asked = max(log.asked - len(found), 0)
        log.at_hand.extend(found)
        log.listener.available(self)
        if log.at_hand:  # whoever wanted them has gone meanwhile
            self._give_back_all(log.at_hand)
            if log.asked:
                log.asked = 0
                self._tell(verbs.DEMAND, [log_id, 0])

    def _give_back_all(self, deliveries: deque[Delivery]) -> None:
        if deliveries:
            self._tell(verbs.GIVE_BACK, [[values.lock_values(delivery) for delivery in deliveries]])
            deliveries.clear()

    def take_selected(self, log_id: int, selector: Selector, count: int) -> list[Delivery]:
        log = self._logs.get(log_id)
        if log is None or not self._serves:
            return []
        found = log.selected.pop(selector, None)
        if found is not None:
            self._give_back_all(deque(found[count:]))
            return found[:count]
        if selector not in log.selecting:
            self._select(log_id, log, selector, min(count, CLUSTER_DEMAND))
        return []

    def _select(self, log_id: int, log: RemoteLog, selector: Selector, count: int) -> None:
        log.selecting[selector] = None
        log.listener.searching(self)

        def answered(reader: Reader | None, error: PolybusError | None) -> None:
            found = [] if reader is None or error is not None else values.deliveries_of(self, reader)
            log.selecting.pop(selector, None)
            if found:
                log.selected[selector] = found
                log.listener.available(self)
                left = log.selected.pop(selector, None)
                if left is None:
                    log.listener.available(self)  # there may be more of them
                else:
                    self._give_back_all(deque(left))
            log.listener.searched(self)

        value: Values = [log_id, selector.sql, count]
        self._link.ask(verbs.TAKE_SELECTED, self.entity_id, self.index, value, answered)

    def take_away_selected(
        self, log_id: int, selector: Selector, count: int, reply: Reply[C, Delivery], context: C
    ) -> int:
        found = self.take_selected(log_id, selector, count)
        for delivery in found:
            self._remove(delivery, reply, context)
        return len(found)

    def take_away(self, log_id: int, credit: int, reply: Reply[C, Delivery], context: C) -> bool:
        return self._remove(self.take(log_id, credit), reply, context)

    def _remove(self, delivery: Delivery | None, reply: Reply[C, Delivery], context: C) -> bool:
        """Removes a message that was locked for this; it may leave when that is safe."""
        if delivery is None:
            return False

        def answered(reader: Reader | None, error: PolybusError | None) -> None:
            del reader
            assert delivery is not None
            delivery.lock = delivery.locked_until_ms = 0
            reply(context, None if error is not None else delivery, error)

        self._link.ask(verbs.COMPLETE, self.entity_id, self.index, values.lock_values(delivery), answered)
        return True

    def take_deferred(
        self, log_id: int, numbers: list[int], lock: bool, session: SessionLock | None
    ) -> Promise[list[Delivery]]:
        if session is not None and session.lost:
            return rejected(_lost(session))
        value: Values = [log_id, list(numbers), lock, _session_number(session)]
        return self._ask(verbs.TAKE_DEFERRED, value, lambda reader: values.deliveries_of(self, reader))

    def peek(self, log_id: int, first: int, count: int, max_bytes: int, session: str | None) -> Promise[list[Peeked]]:
        value: Values = [log_id, first, count, max_bytes, session]
        return self._ask(verbs.PEEK, value, lambda reader: [values.peeked_of(each) for each in reader.readers()])

    def delete_numbers(self, log_id: int, numbers: list[int]) -> Promise[Moved]:
        return self._ask(verbs.DELETE_NUMBERS, [log_id, list(numbers)], _moved)

    def defer_numbers(self, log_id: int, numbers: list[int]) -> Promise[Moved]:
        return self._ask(verbs.DEFER_NUMBERS, [log_id, list(numbers)], _moved)

    def undefer(self, log_id: int, numbers: list[int]) -> Promise[Moved]:
        return self._ask(verbs.UNDEFER, [log_id, list(numbers)], _moved)

    def cancel_numbers(self, numbers: list[int]) -> Promise[Moved]:
        return self._ask(verbs.CANCEL_NUMBERS, [list(numbers)], _moved)

    def reschedule(self, numbers: list[int], due_ms: int, by_ms: int) -> Promise[Moved]:
        return self._ask(verbs.RESCHEDULE, [list(numbers), due_ms, by_ms], _moved)

    # Settling

    def complete(self, delivery: Delivery, now: Now, reply: Reply[C, None] | None, context: C) -> None:
        del now
        self._settle(verbs.COMPLETE, values.lock_values(delivery), reply, context)

    def _settle(self, verb: int, value: Values, reply: Reply[C, None] | None, context: C) -> None:
        self.check_available()
        if reply is None:
            self._tell(verb, value)
            return

        def answered(reader: Reader | None, error: PolybusError | None) -> None:
            del reader
            assert reply is not None
            reply(context, None, error)

        self._link.ask(verb, self.entity_id, self.index, value, answered)

    def settle(
        self,
        delivery: Delivery,
        now: Now,
        outcome: str,
        reason: str | None,
        description: str | None,
        properties: dict[str, object] | None,
        reply: Reply[C, None] | None,
        context: C,
    ) -> None:
        del now
        value: Values = [*values.lock_values(delivery), outcome, reason, description, properties]
        self._settle(verbs.SETTLE, value, reply, context)

    def release(self, delivery: Delivery, now: Now, reply: Reply[C, None] | None, context: C) -> None:
        del now
        self._settle(verbs.RELEASE, values.lock_values(delivery), reply, context)

    def give_back(self, delivery: Delivery) -> None:
        self._tell(verbs.GIVE_BACK, [[values.lock_values(delivery)]])

    def renew(self, delivery: Delivery) -> Promise[int]:
        return self._ask(verbs.RENEW, values.lock_values(delivery), _number)

    def find_locked(self, log_id: int, token: bytes) -> Promise[Delivery]:
        return self._ask(
            verbs.FIND_LOCKED, [log_id, token], lambda reader: values.delivery_of(self, Reader(reader.items()))
        )

    def are_locked(self, deliveries: list[Delivery]) -> Promise[list[bool]]:
        value: Values = [[values.lock_values(each) for each in deliveries]]
        return self._ask(verbs.ARE_LOCKED, value, _flags)

    # Sessions

    def may_have_session(self, log_id: int) -> bool:
        log = self._logs.get(log_id)
        return self._serves and log is not None and log.may_have_session

    def accept_session(self, log_id: int, session_id: str, holder: str) -> Promise[SessionLock]:
        value: Values = [log_id, session_id, holder]
        return self._ask(
            verbs.ACCEPT_SESSION, value, lambda reader: self._accepted(log_id, holder, Reader(reader.items()))
        )

    def accept_next_session(self, log_id: int, holder: str) -> Promise[SessionLock | None]:
        log = self._logs.get(log_id)
        if log is not None:
            log.may_have_session = False  # the owner says so when there is one that it has not told of

        def accepted(reader: Reader) -> SessionLock | None:
            found = Reader(reader.items())
            if not found.left():
                return None
            if log is not None:
                log.may_have_session = True
            return self._accepted(log_id, holder, found)

        return self._ask(verbs.ACCEPT_NEXT_SESSION, [log_id, holder], accepted)

    def _accepted(self, log_id: int, holder: str, reader: Reader) -> SessionLock:
        number = reader.number()
        lock = RemoteSessionLock(log_id, reader.text(), holder, number)
        lock.locked_until_ms = reader.number()
        self._sessions[number] = lock
        return lock

    def take_in_session(self, session: SessionLock, credit: int) -> Delivery | None:
        lock = _remote(session)
        if lock.lost:
            return None
        if lock.at_hand:
            return lock.at_hand.popleft()
        wanted = min(credit, CLUSTER_DEMAND)
        more = wanted - lock.asked
        if more > 0:
            lock.asked = wanted
            if lock.listener is not None:
                lock.listener.searching()

            def answered(reader: Reader | None, error: PolybusError | None) -> None:
                unsent = 0 if reader is None or error is not None else reader.number()
                lock.asked = max(lock.asked - unsent, 0)
                if lock.listener is not None:
                    lock.listener.searched()

            self._link.ask(verbs.SESSION_DEMAND, self.entity_id, self.index, [lock.number, more], answered)
        return None

    def take_away_in_session(self, session: SessionLock, credit: int, reply: Reply[C, Delivery], context: C) -> bool:
        return self._remove(self.take_in_session(session, credit), reply, context)

    def _delivered_in_session(self, reader: Reader) -> None:
        lock = self._sessions.get(reader.number())
        found = values.deliveries_of(self, reader)
        if lock is None:
            return  # it was released, and with it what was on its way
        lock.asked = max(lock.asked - len(found), 0)
        lock.at_hand.extend(found)
        if lock.listener is not None:
            lock.listener.available()
        if lock.at_hand:
            self._give_back_all(lock.at_hand)
            if lock.asked:
                lock.asked = 0
                self._tell(verbs.SESSION_DEMAND, [lock.number, 0])

    def _session_lost(self, lock: RemoteSessionLock) -> None:
        lock.lost = True
        lock.at_hand.clear()
        if lock.listener is not None:
            lock.listener.lost()

    def renew_session(self, session: SessionLock) -> Promise[int]:
        lock = _remote(session)
        if lock.lost:
            return rejected(_lost(lock))

        def renewed(reader: Reader) -> int:
            lock.locked_until_ms = reader.number()
            return lock.locked_until_ms

        return self._ask(verbs.RENEW_SESSION, [lock.number], renewed)

    def release_session(self, session: SessionLock) -> None:
        lock = _remote(session)
        lock.listener = None
        if self._sessions.pop(lock.number, None) is not None:
            self._give_back_all(lock.at_hand)
            self._tell(verbs.RELEASE_SESSION, [lock.number])
        lock.lost = True

    def get_session_state(self, session: SessionLock) -> Promise[bytes | None]:
        if session.lost:
            return rejected(_lost(session))
        return self._ask(verbs.GET_SESSION_STATE, [_remote(session).number], lambda reader: reader.data_or_none())

    def set_session_state(self, session: SessionLock, state: bytes | None) -> Promise[None]:
        if session.lost:
            return rejected(_lost(session))
        return self._ask(verbs.SET_SESSION_STATE, [_remote(session).number, state], _nothing)

    def peek_session_state(self, log_id: int, session_id: str) -> Promise[bytes | None]:
        return self._ask(verbs.PEEK_SESSION_STATE, [log_id, session_id], lambda reader: reader.data_or_none())

    def list_sessions(self, log_id: int, limit: int, updated_after_ms: int | None) -> Promise[list[str]]:
        return self._ask(verbs.LIST_SESSIONS, [log_id, limit, updated_after_ms], _texts)

    def describe_sessions(self, log_id: int, after: str | None, limit: int) -> Promise[list[ListedSession]]:
        return self._ask(verbs.DESCRIBE_SESSIONS, [log_id, after, limit], values.sessions_of)

    # Transactions

    def hold_in_transaction(
        self,
        work: TransactionWork,
        delivery: Delivery,
        outcome: str,
        reason: str | None,
        description: str | None,
        properties: dict[str, object] | None,
    ) -> Promise[None]:
        def held(reader: Reader) -> None:
            del reader
            work.held += 1

        value: Values = [work.id, *values.lock_values(delivery), outcome, reason, description, properties]
        return self._ask(verbs.HOLD, value, held)

    def commit(self, work: TransactionWork) -> Promise[None]:
        return self._ask(verbs.COMMIT, values.work_values(work), _nothing)

    def roll_back(self, work: TransactionWork) -> None:
        self._tell(verbs.ROLL_BACK, [work.id])

    def remove_intent(self) -> Promise[None]:
        return self._ask(verbs.REMOVE_INTENT, [], _nothing)

    # Moving messages to other entities

    def destinations(self) -> Promise[list[tuple[int, int]]]:
        return self._ask(
            verbs.DESTINATIONS, [], lambda reader: [(each.number(), each.number()) for each in reader.readers()]
        )

    def outgoing(self, destination: tuple[int, int], limit: int, max_bytes: int) -> Promise[list[OutboxMessage]]:
        return self._ask(verbs.OUTGOING, [*destination, limit, max_bytes], values.transfers_of)

    def remove_outgoing(self, destination: tuple[int, int], moved: list[OutboxMessage]) -> Promise[None]:
        return self._ask(verbs.REMOVE_OUTGOING, [*destination, _transfers(moved)], _nothing)

    def refuse_outgoing(
        self, destination: tuple[int, int], refused: list[OutboxMessage], error: BusError
    ) -> Promise[None]:
        value: Values = [*destination, _transfers(refused), *values.error_values(error)]
        return self._ask(verbs.REFUSE_OUTGOING, value, _nothing)

    def take_over(self, source: tuple[int, int], arriving: list[OutboxMessage]) -> Promise[None]:
        return self._ask(verbs.TAKE_OVER, [*source, _transfers(arriving)], _nothing)

    def forward_backlog(self) -> None:
        self._tell(verbs.FORWARD_BACKLOG, [])

    def move(
        self,
        log_id: int,
        numbers: list[int],
        changed: dict[int, Message],
        edits: dict[int, Edit],
        destination: str,
        subscription: int,
    ) -> Promise[Moved]:
        whole: Values = [[number, message.raw] for number, message in changed.items()]
        value: Values = [log_id, list(numbers), whole, values.edits_values(edits), destination, subscription]
        return self._ask(verbs.MOVE, value, _moved)

    def delete_before(self, log_id: int, count: int, before_ms: int, session: SessionLock | None) -> Promise[int]:
        if session is not None and session.lost:
            return rejected(_lost(session))
        return self._ask(verbs.DELETE_BEFORE, [log_id, count, before_ms, _session_number(session)], _number)

    # Pipelines

    def log_end(self, log_id: int) -> Promise[LogRange]:
        return self._ask(verbs.LOG_END, [log_id], _range)

    def log_range(self, log_id: int, time_ms: int | None) -> Promise[LogRange]:
        return self._ask(verbs.LOG_RANGE, [log_id, time_ms], _range)

    def read_records(
        self, log_id: int, first: int, last: int, limit: int, max_bytes: int, start: bytes
    ) -> Promise[Records]:
        value: Values = [log_id, first, last, limit, max_bytes, start]
        return self._ask(verbs.READ_RECORDS, value, lambda reader: values.records_of(Reader(reader.items())))

    def read_events(self, log_id: int, first: int, limit: int) -> Promise[list[LogEvent]]:
        return self._ask(verbs.READ_EVENTS, [log_id, first, limit], values.events_of)

    def trim_events(self) -> None:
        self._tell(verbs.TRIM_EVENTS, [])

    def set_floor(self, log_id: int, floor: int) -> None:
        self._floors[log_id] = floor
        self._tell(verbs.SET_FLOOR, [log_id, floor])

    def excess(self, log_id: int, max_lag_ms: int, max_lag_bytes: int) -> Promise[int]:
        return self._ask(verbs.EXCESS, [log_id, max_lag_ms, max_lag_bytes], _number)

    def stage(self, stage_id: bytes, first: int, messages: list[Message]) -> Promise[None]:
        return self._ask(verbs.STAGE, [stage_id, first, [message.raw for message in messages]], _nothing)

    def publish_chunk(self, stage_id: bytes) -> Promise[bool]:
        return self._ask(verbs.PUBLISH_CHUNK, [stage_id], lambda reader: reader.flag())

    def drop_stage(self, stage_id: bytes) -> Promise[None]:
        return self._ask(verbs.DROP_STAGE, [stage_id], _nothing)

    def old_stages(self, before_ms: int) -> Promise[list[bytes]]:
        return self._ask(verbs.OLD_STAGES, [before_ms], _all_bytes)

    # Management

    def statistics(self, numbers: list[int]) -> Promise[Statistics]:
        return self._ask(verbs.STATISTICS, [list(numbers)], self._counted)

    def _counted(self, reader: Reader) -> Statistics:
        """When the entity was last used is known where its brokers are, and comes with what they hold."""
        found = Reader(reader.items())
        statistics = values.statistics_of(Reader(found.items()))
        for each in found.readers():
            number, accessed_ms = each.number(), each.number()
            settings = self.settings.own if number == 0 else self.settings.subscriptions.get(number)
            if settings is not None:
                settings.accessed_ms = max(settings.accessed_ms, accessed_ms)
        return statistics

    def highest_subscription(self) -> Promise[int]:
        return self._ask(verbs.HIGHEST_SUBSCRIPTION, [], _number)

    def forget_subscription(self, number: int) -> None:
        self._tell(verbs.FORGET_SUBSCRIPTION, [number])

    def purge_subscription(self, number: int) -> Promise[None]:
        return self._ask(verbs.PURGE_SUBSCRIPTION, [number], _nothing)

    def retire(self) -> None:
        """The owner retires its partition when it hears of the deletion itself."""
        self._serves = False
        self._forget_hands()
        self.store.tenants.pop((self.entity_id, self.index), None)
        if self.home is not None:
            self.home.remove(self)

    def fenced(self) -> None:
        """Another one takes the place of this: whoever waits here hears that it does not serve."""
        self.lost()

    def settled(self, batch: Output) -> None:
        """Only those who commit here have batches."""

    def clock_moved(self) -> None:
        self._tell(verbs.CLOCK_MOVED, [])

    def lose_message_locks(self, log_id: int, number: int | None) -> Promise[int]:
        return self._ask(verbs.LOSE_MESSAGE_LOCKS, [log_id, number], _number)

    def lose_session_locks(self, log_id: int, session_id: str | None) -> Promise[int]:
        return self._ask(verbs.LOSE_SESSION_LOCKS, [log_id, session_id], _number)


def _remote(session: SessionLock) -> RemoteSessionLock:
    assert isinstance(session, RemoteSessionLock), "a session's lock goes back to the partition that gave it"
    return session


def _lost(lock: SessionLock) -> SessionLockLost:
    return SessionLockLost(f"The session lock has expired on the session '{lock.id}'.")


def _session_number(session: SessionLock | None) -> int | None:
    return None if session is None else _remote(session).number


def _keys(reader: Reader) -> list[bytes] | None:
    """In which rows the owner has written a send, where it has."""
    return None if reader.passes_none() else _all_bytes(reader)


def _transfers(found: list[OutboxMessage]) -> Values:
    return [values.transfer_values(transfer) for transfer in found]


def _nothing(reader: Reader) -> None:
    del reader


def _number(reader: Reader) -> int:
    return reader.number()


def _numbers(reader: Reader) -> list[int]:
    return reader.numbers()


def _moved(reader: Reader) -> Moved:
    return values.moved_of(Reader(reader.items()))


def _range(reader: Reader) -> LogRange:
    return values.range_of(Reader(reader.items()))


def _flags(reader: Reader) -> list[bool]:
    found = Reader(reader.items())
    return [found.flag() for _ in found.left()]


def _texts(reader: Reader) -> list[str]:
    found = Reader(reader.items())
    return [found.text() for _ in found.left()]


def _all_bytes(reader: Reader) -> list[bytes]:
    found = Reader(reader.items())
    return [found.data() for _ in found.left()]


class RemotePartitions:
    """The partitions of one owner: what it tells goes to the one it is about. Its links come and go."""

    def __init__(self, link: Link) -> None:
        self._partitions: dict[tuple[int, int], RemotePartition] = {}
        self.attach(link)

    def attach(self, link: Link) -> None:
        """A new link to the owner: the partitions ask again whether they serve."""
        self._link = link
        link.on_frame = self.arrived
        link.on_closed.append(self.lost)
        for partition in list(self._partitions.values()):
            partition.attach(link)

    def lost(self) -> None:
        for partition in list(self._partitions.values()):
            partition.lost()

    def add(self, entity_id: int, index: int, settings: EntitySettings, store: StoreHost) -> RemotePartition:
        partition = RemotePartition(entity_id, index, settings, store, self._link)
        partition.home = self
        self._partitions[entity_id, index] = partition
        return partition

    def remove(self, partition: RemotePartition) -> None:
        place = (partition.entity_id, partition.index)
        if self._partitions.get(place) is partition:
            del self._partitions[place]

    def arrived(self, frame: Frame) -> None:
        partition = self._partitions.get((frame.entity_id, frame.index))
        if partition is not None:
            partition.arrived(frame)
