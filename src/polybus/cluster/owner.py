"""The owner's side of a link: what another process asks of partitions is done here, on their own clients' verbs.

For each log that the other side watches there is a standing demand: messages leave as they come, as many as were asked
for. What is delivered is locked for the other process; when the link breaks its sessions are released at once, and the
locks of its messages run out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polybus.clock import Clock
from polybus.cluster import values, verbs
from polybus.cluster.frames import Frame
from polybus.cluster.link import Link
from polybus.cluster.values import Reader, Values, error_of, nonsense
from polybus.errors import PartitionUnavailable, PolybusError, ProtocolError, SessionLockLost
from polybus.hosting.local_partition import LocalPartition
from polybus.hosting.partition_client import (
    Delivery,
    LogListener,
    PartitionClient,
    SessionListener,
    SessionLock,
    TransactionWork,
    UnkeyedSend,
)
from polybus.hosting.send_ledger import SENDER_BYTES, SendLedger
from polybus.limits import CLUSTER_DELIVERY_BYTES, TRANSACTION_MESSAGES
from polybus.partition.data import Statistics
from polybus.promise import Promise
from polybus.rules.selectors import Selector

Find = Callable[[int, int], LocalPartition | None]
Place = tuple[int, int]


class Owner:
    """Serves one link."""

    def __init__(self, link: Link, find: Find, clock: Clock) -> None:
        self.link = link
        self.find = find
        self.clock = clock
        self.sessions: dict[int, SessionDemand] = {}
        self._last_session = 0
        self._logs: dict[tuple[int, int, int], LogDemand] = {}
        self._followed: dict[Place, tuple[LocalPartition, Callable[[], None]]] = {}
        self._works: dict[tuple[int, int, bytes], TransactionWork] = {}
        """Open transactions of the other side: those that it leaves behind are rolled back."""
        self._awaited: dict[Place, None] = {}
        """Partitions that the other side has asked for and that are not here yet."""
        self.on_member_frame: Callable[[Frame], None] | None = None
        """Called with what is not about a partition."""
        link.on_frame = self._arrived
        link.on_closed.append(self._ended)

    def appeared(self, partition: LocalPartition) -> None:
        """A partition is here: whoever asked for it before may ask again."""
        place = (partition.entity_id, partition.index)
        if place in self._awaited:
            del self._awaited[place]
            self.link.tell(verbs.HERE, place[0], place[1], [])

    def _arrived(self, frame: Frame) -> None:
        if frame.verb >= verbs.HELLO:
            if self.on_member_frame is None:
                raise nonsense("a verb between members")
            self.on_member_frame(frame)
            return
        partition = self.find(frame.entity_id, frame.index)
        reader = Reader(frame.value)
        if partition is None:
            if frame.verb == verbs.FOLLOW:
                self._awaited[frame.entity_id, frame.index] = None
            self.link.refuse(frame, PartitionUnavailable("The partition is not here. Try again."))
            return
        try:
            asked = _ASKED.get(frame.verb)
            if asked is not None:
                self.link.answer_when(frame, asked(partition, reader))
            else:
                told = _TOLD.get(frame.verb)
                if told is None:
                    raise nonsense("a verb that only owners use")
                told(self, partition, frame, reader)
        except PolybusError as error:
            if isinstance(error, ProtocolError):
                raise
            self.link.refuse(frame, error)

    def _ended(self) -> None:
        for session in list(self.sessions.values()):
            session.partition.release_session(session.lock)
        for (_, _, log_id), log in self._logs.items():
            log.partition.unwatch(log_id, log)
        for partition, follower in self._followed.values():
            partition.followers.remove(follower)
        self._followed.clear()
        for (entity_id, index, _), work in self._works.items():
            found = self.find(entity_id, index)
            if found is not None:
                found.roll_back(work)

    # Following, sending

    def follow(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        del reader
        place = (frame.entity_id, frame.index)
        known = self._followed.get(place)
        if known is None or known[0] is not partition:

            def follower() -> None:
                self.link.tell(verbs.SERVES, place[0], place[1], [partition.available, partition.problem])

            partition.followers.append(follower)
            self._followed[place] = (partition, follower)
        self.link.answer(frame, [partition.available, partition.problem])

    def send(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        messages = reader.messages()
        sent = OwnedSend()
        for each in reader.readers():
            store_id, keys = each.data(), Reader(each.items())
            sent.doubtful = [*(sent.doubtful or []), (store_id, [keys.data() for _ in keys.left()])]
        partition.check_open()
        if reader.left():
            sent.number_in(partition.store.ledger, reader.data(), reader.number(), reader.number())
        try:
            partition.send(messages, self._sent, (frame, sent), sent)
        except PolybusError:
            sent.ended(False)
            raise

    def _sent(self, context: tuple[Frame, OwnedSend], result: list[int] | None, error: PolybusError | None) -> None:
        frame, sent = context
        sent.ended(error is None)
        keys: object = sent.keys
        if error is None:
            self.link.answer(frame, [result, keys])
        else:
            self.link.refuse(frame, error, keys)

    # Receiving

    def watch(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        log_id = reader.number()
        key = (frame.entity_id, frame.index, log_id)
        known = self._logs.get(key)
        if known is None or known.partition is not partition:
            known = self._logs[key] = LogDemand(self, partition, log_id)
        known.hinted = False
        partition.watch(log_id, known)

    def unwatch(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        log_id = reader.number()
        log = self._logs.pop((frame.entity_id, frame.index, log_id), None)
        if log is not None:
            partition.unwatch(log_id, log)

    def log(self, frame: Frame, log_id: int) -> LogDemand:
        found = self._logs.get((frame.entity_id, frame.index, log_id))
        if found is None:
            raise nonsense("a demand for a log that is not watched")
        return found

    def demand(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        del partition
        self.log(frame, reader.number()).demand(frame, reader.number())

    def take_selected(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        log = self.log(frame, reader.number())
        log.hinted = False
        taken = partition.take_selected(log.log_id, Selector(reader.text()), reader.number())
        self.link.answer(frame, _deliveries(taken))

    # Settling

    def complete(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        delivery = values.locked_of(partition, reader)
        partition.complete(delivery, self.clock.now(), self._settled, frame)

    def settle(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        delivery = values.locked_of(partition, reader)
        outcome, reason, description = reader.text(), reader.text_or_none(), reader.text_or_none()
        now, properties = self.clock.now(), reader.properties()
        partition.settle(delivery, now, outcome, reason, description, properties, self._settled, frame)

    def release(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        partition.release(values.locked_of(partition, reader), self.clock.now(), self._settled, frame)

    def give_back(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        del frame
        for each in reader.readers():
            partition.give_back(values.locked_of(partition, each))

    def _settled(self, frame: Frame, result: None, error: PolybusError | None) -> None:
        del result
        if error is None:
            self.link.answer(frame, None)
        else:
            self.link.refuse(frame, error)

    # Sessions

    def accept(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        log_id, session_id, holder = reader.number(), reader.text(), reader.text()
        promise = partition.accept_session(log_id, session_id, holder)
        promise.then(lambda promise: self._accepted(partition, frame, promise))

    def accept_next(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        log_id, holder = reader.number(), reader.text()
        self.log(frame, log_id).hinted = False
        promise = partition.accept_next_session(log_id, holder)
        promise.then(lambda promise: self._accepted(partition, frame, promise))

    def _accepted(self, partition: LocalPartition, frame: Frame, promise: Promise[Any]) -> None:
        try:
            lock: SessionLock | None = promise.result()
        except PolybusError as error:
            self.link.refuse(frame, error)
            return
        if lock is None:
            self.link.answer(frame, [])
        elif self.link.closed:
            partition.release_session(lock)
        else:
            self._last_session += 1
            self.sessions[self._last_session] = SessionDemand(self, partition, frame, self._last_session, lock)
            self.link.answer(frame, [self._last_session, lock.id, lock.locked_until_ms])

    def session(self, reader: Reader) -> SessionDemand:
        found = self.sessions.get(reader.number())
        if found is None:
            raise SessionLockLost("The session lock has expired. Accept the session again.")
        return found

    def session_or_none(self, reader: Reader) -> SessionLock | None:
        return None if reader.passes_none() else self.session(reader).lock

    def session_demand(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        del partition
        self.session(reader).demand(frame, reader.number())

    def renew_session(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        self.link.answer_when(frame, partition.renew_session(self.session(reader).lock))

    def release_session(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        del frame
        found = self.sessions.pop(reader.number(), None)
        if found is not None:
            partition.release_session(found.lock)

    def get_state(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        self.link.answer_when(frame, partition.get_session_state(self.session(reader).lock))

    def set_state(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        lock = self.session(reader).lock
        self.link.answer_when(frame, partition.set_session_state(lock, reader.data_or_none()))

    def take_deferred(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        log_id, numbers, lock = reader.number(), reader.numbers(), reader.flag()
        promise = partition.take_deferred(log_id, numbers, lock, self.session_or_none(reader))
        self.link.answer_when(frame, _then(promise, _deliveries))

    def delete_before(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        log_id, count, before_ms = reader.number(), reader.number(), reader.number()
        session = self.session_or_none(reader)
        self.link.answer_when(frame, partition.delete_before(log_id, count, before_ms, session))

    # Transactions

    def _work(self, frame: Frame, txn_id: bytes) -> TransactionWork:
        key = (frame.entity_id, frame.index, txn_id)
        found = self._works.get(key)
        if found is None:
            found = self._works[key] = TransactionWork(txn_id)
        return found

    def hold(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        work = self._work(frame, reader.data())
        delivery = values.locked_of(partition, reader)
        outcome, reason, description = reader.text(), reader.text_or_none(), reader.text_or_none()
        properties = reader.properties()
        promise = partition.hold_in_transaction(work, delivery, outcome, reason, description, properties)
        self.link.answer_when(frame, promise)

    def commit(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        work = values.work_of(reader)
        self._works.pop((frame.entity_id, frame.index, work.id), None)
        self.link.answer_when(frame, partition.commit(work))

    def roll_back(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        txn_id = reader.data()
        partition.roll_back(self._works.pop((frame.entity_id, frame.index, txn_id), TransactionWork(txn_id)))

    # What is told and not answered

    def forward_backlog(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        del frame, reader
        partition.forward_backlog()

    def trim_events(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        del frame, reader
        partition.trim_events()

    def set_floor(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        del frame
        partition.set_floor(reader.number(), reader.number())

    def forget_subscription(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        del frame
        number = reader.number()
        if number < 1:
            raise nonsense("a subscription's number")
        partition.forget_subscription(number)

    def clock_moved(self, partition: LocalPartition, frame: Frame, reader: Reader) -> None:
        del frame, reader
        partition.clock_moved()


class OwnedSend(UnkeyedSend):
    """A send for another process, which is told the rows."""

    __slots__ = ("keys", "ledger", "number", "sender")

    def __init__(self) -> None:
        self.doubtful = None
        self.keys: list[bytes] | None = None
        self.ledger: SendLedger | None = None
        self.sender = b""
        self.number = 0

    def number_in(self, ledger: SendLedger | None, sender: bytes, number: int, heard_below: int) -> None:
        """Its sender has numbered it: the next owner of the store must be able to tell what became of it."""
        if len(sender) != SENDER_BYTES:
            raise nonsense("a sender's id")
        if ledger is not None:
            ledger.begins(sender, number, heard_below)
            self.ledger, self.sender, self.number = ledger, sender, number

    def written(self, keys: list[bytes]) -> None:
        self.keys = keys
        if self.ledger is not None:
            self.ledger.written(self.sender, self.number)

    def ended(self, stored: bool) -> None:
        if self.ledger is not None:
            self.ledger.ends(self.sender, self.number, stored)


class LogDemand(LogListener):
    """How many messages of a log the other side wants now."""

    def __init__(self, owner: Owner, partition: LocalPartition, log_id: int) -> None:
        self._owner = owner
        self.partition = partition
        self.log_id = log_id
        self.credit = 0
        self.hinted = False
        """The other side knows that there may be something, and has not asked since."""
        self._searching = 0
        self._told_searching = 0
        """Demands whose answer said that the log is being searched: the end of that is told, too."""
        self._pumping = False

    def demand(self, frame: Frame, more: int) -> None:
        """The other side wants so many more; with 0 it wants none any longer.

        It is told at once how many of them are not there, so that it can look for them elsewhere; they are forgotten
        here. What comes later is hinted at, and it may want fewer then.
        """
        self.credit = self.credit + more if more > 0 else 0
        self.hinted = False
        self._pump()
        unsent, self.credit = self.credit, 0
        searching = self._searching > 0
        self._told_searching += searching
        self._owner.link.answer(frame, [unsent, searching])

    def available(self, partition: PartitionClient) -> None:
        if self.credit > 0:
            self._pump()
        elif not self.hinted:
            self.hinted = True
            self._owner.link.tell(verbs.AVAILABLE, partition.entity_id, partition.index, [self.log_id])

    def unavailable(self, partition: PartitionClient) -> None:
        del partition
        self.credit = 0
        self.hinted = False

    def searching(self, partition: PartitionClient) -> None:
        del partition
        self._searching += 1

    def searched(self, partition: PartitionClient) -> None:
        del partition
        self._searching = max(self._searching - 1, 0)
        if not self._searching and self._told_searching:
            place, told, self._told_searching = self.partition, self._told_searching, 0
            self._owner.link.tell(verbs.SEARCHED, place.entity_id, place.index, [self.log_id, told])

    def _pump(self) -> None:
        if self._pumping:
            return
        self._pumping = True
        taken: list[Delivery] = []
        size = 0
        try:
            while self.credit > 0:
                delivery = self.partition.take(self.log_id, self.credit)
                if delivery is None:
                    break
                self.credit -= 1
                taken.append(delivery)
                size += delivery.size
                if size >= CLUSTER_DELIVERY_BYTES:
                    self._deliver(taken)
                    taken, size = [], 0
        finally:
            self._pumping = False
            self._deliver(taken)

    def _deliver(self, taken: list[Delivery]) -> None:
        if taken:
            value: Values = [self.log_id, _deliveries(taken)]
            self._owner.link.tell(verbs.DELIVERIES, self.partition.entity_id, self.partition.index, value)


class SessionDemand(SessionListener):
    """A session that the other side holds, and how many of its messages it wants now."""

    def __init__(self, owner: Owner, partition: LocalPartition, frame: Frame, number: int, lock: SessionLock) -> None:
        self._owner = owner
        self.partition = partition
        self._place = (frame.entity_id, frame.index)
        self._number = number
        self.lock = lock
        self.credit = 0
        self._searching = False
        self._asked: list[Frame] = []
        self._pumping = False
        self._again = False
        lock.listener = self

    def demand(self, frame: Frame, more: int) -> None:
        self.credit = self.credit + more if more > 0 else 0
        self._asked.append(frame)
        self._pump()
        self._answer()

    def available(self) -> None:
        if self.credit > 0:
            self._pump()
        else:
            self._tell(verbs.SESSION_AVAILABLE, [self._number])

    def searching(self) -> None:
        self._searching = True

    def searched(self) -> None:
        self._searching = False
        self._answer()

    def lost(self) -> None:
        self._owner.sessions.pop(self._number, None)
        self._tell(verbs.SESSION_LOST, [self._number])

    def _tell(self, verb: int, value: Values) -> None:
        self._owner.link.tell(verb, self._place[0], self._place[1], value)

    def _answer(self) -> None:
        if self._asked and not self._searching and not self._pumping:
            asked, self._asked = self._asked, []
            unsent, self.credit = self.credit, 0
            for frame in asked:
                self._owner.link.answer(frame, unsent)
                unsent = 0

    def _pump(self) -> None:
        self._again = True
        if self._pumping:
            return
        self._pumping = True
        taken: list[Delivery] = []
        try:
            while self._again and self.credit > 0:
                self._again = False
                while self.credit > 0:
                    delivery = self.partition.take_in_session(self.lock, self.credit)
                    if delivery is None:
                        break
                    self.credit -= 1
                    taken.append(delivery)
        finally:
            self._pumping = False
            if taken:
                self._tell(verbs.SESSION_DELIVERIES, [self._number, _deliveries(taken)])


def _deliveries(found: list[Delivery]) -> Values:
    return [values.delivery_values(delivery) for delivery in found]


def _then(promise: Promise[Any], to_values: Callable[[Any], object]) -> Promise[Any]:
    """What was promised, as plain values."""
    plain: Promise[Any] = Promise()

    def settled(promise: Promise[Any]) -> None:
        try:
            plain.resolve(to_values(promise.result()))
        except PolybusError as error:
            plain.reject(error)

    promise.then(settled)
    return plain


def _each(to_values: Callable[[Any], object]) -> Callable[[list[Any]], Values]:
    return lambda found: [to_values(each) for each in found]


def _reserve(partition: LocalPartition, reader: Reader) -> Promise[Any]:
    count = reader.number()
    if not 0 <= count <= TRANSACTION_MESSAGES:
        raise nonsense("a count")
    return partition.reserve(count)


def _numbers_of(partition: LocalPartition, reader: Reader) -> Promise[Any]:
    return _then(partition.delete_numbers(reader.number(), reader.numbers()), values.moved_values)


def _move(partition: LocalPartition, reader: Reader) -> Promise[Any]:
    log_id, numbers = reader.number(), reader.numbers()
    changed = {}
    for each in reader.readers():
        number = each.number()
        changed[number] = each.message()
    edits = values.edits_of(reader)
    moved = partition.move(log_id, numbers, changed, edits, reader.text(), reader.number())
    return _then(moved, values.moved_values)


def _outgoing(partition: LocalPartition, reader: Reader) -> Promise[Any]:
    destination = (reader.number(), reader.number())
    return _then(partition.outgoing(destination, reader.number(), reader.number()), _each(values.transfer_values))


def _refuse_outgoing(partition: LocalPartition, reader: Reader) -> Promise[Any]:
    destination = (reader.number(), reader.number())
    refused = values.transfers_of(reader)
    return partition.refuse_outgoing(destination, refused, error_of(reader))


def _peek(partition: LocalPartition, reader: Reader) -> Promise[Any]:
    log_id, first, count, max_bytes = reader.number(), reader.number(), reader.number(), reader.number()
    return _then(partition.peek(log_id, first, count, max_bytes, reader.text_or_none()), _each(values.peeked_values))


def _read_records(partition: LocalPartition, reader: Reader) -> Promise[Any]:
    log_id, first, last = reader.number(), reader.number(), reader.number()
    found = partition.read_records(log_id, first, last, reader.number(), reader.number(), reader.data())
    return _then(found, values.records_values)


def _statistics(partition: LocalPartition, reader: Reader) -> Promise[Any]:
    settings = partition.settings
    logs = (settings.own, *settings.subscriptions.values())

    def counted(found: Statistics) -> Values:
        return [values.statistics_values(found), [[log.number, log.accessed_ms] for log in logs if log.accessed_ms]]

    return _then(partition.statistics(reader.numbers()), counted)


def _are_locked(partition: LocalPartition, reader: Reader) -> Promise[Any]:
    return partition.are_locked([values.locked_of(partition, each) for each in reader.readers()])


def _destinations(partition: LocalPartition, reader: Reader) -> Promise[Any]:
    del reader
    return _then(partition.destinations(), _each(list))


Asked = Callable[[LocalPartition, Reader], Promise[Any]]
_ASKED: dict[int, Asked] = {
    verbs.RESERVE: _reserve,
    verbs.CANCEL_SCHEDULED: lambda p, r: p.cancel_scheduled(r.numbers()),
    verbs.PEEK: _peek,
    verbs.DELETE_NUMBERS: _numbers_of,
    verbs.DEFER_NUMBERS: lambda p, r: _then(p.defer_numbers(r.number(), r.numbers()), values.moved_values),
    verbs.PEEK_SESSION_STATE: lambda p, r: p.peek_session_state(r.number(), r.text()),
    verbs.UNDEFER: lambda p, r: _then(p.undefer(r.number(), r.numbers()), values.moved_values),
    verbs.CANCEL_NUMBERS: lambda p, r: _then(p.cancel_numbers(r.numbers()), values.moved_values),
    verbs.RESCHEDULE: lambda p, r: _then(p.reschedule(r.numbers(), r.number(), r.number()), values.moved_values),
    verbs.RENEW: lambda p, r: p.renew(values.locked_of(p, r)),
    verbs.FIND_LOCKED: lambda p, r: _then(p.find_locked(r.number(), r.data()), values.delivery_values),
    verbs.ARE_LOCKED: _are_locked,
    verbs.LIST_SESSIONS: lambda p, r: p.list_sessions(r.number(), r.number(), r.number_or_none()),
    verbs.DESCRIBE_SESSIONS: lambda p, r: _then(
        p.describe_sessions(r.number(), r.text_or_none(), r.number()), _each(values.session_values)
    ),
    verbs.REMOVE_INTENT: lambda p, _: p.remove_intent(),
    verbs.DESTINATIONS: _destinations,
    verbs.OUTGOING: _outgoing,
    verbs.REMOVE_OUTGOING: lambda p, r: p.remove_outgoing((r.number(), r.number()), values.transfers_of(r)),
    verbs.REFUSE_OUTGOING: _refuse_outgoing,
    verbs.TAKE_OVER: lambda p, r: p.take_over((r.number(), r.number()), values.transfers_of(r)),
    verbs.MOVE: _move,
    verbs.LOG_END: lambda p, r: _then(p.log_end(r.number()), values.range_values),
    verbs.LOG_RANGE: lambda p, r: _then(p.log_range(r.number(), r.number_or_none()), values.range_values),
    verbs.READ_RECORDS: _read_records,
    verbs.READ_EVENTS: lambda p, r: _then(
        p.read_events(r.number(), r.number(), r.number()), _each(values.event_values)
    ),
    verbs.EXCESS: lambda p, r: p.excess(r.number(), r.number(), r.number()),
    verbs.STAGE: lambda p, r: p.stage(r.data(), r.number(), r.messages()),
    verbs.PUBLISH_CHUNK: lambda p, r: p.publish_chunk(r.data()),
    verbs.DROP_STAGE: lambda p, r: p.drop_stage(r.data()),
    verbs.OLD_STAGES: lambda p, r: p.old_stages(r.number()),
    verbs.STATISTICS: _statistics,
    verbs.HIGHEST_SUBSCRIPTION: lambda p, _: p.highest_subscription(),
    verbs.PURGE_SUBSCRIPTION: lambda p, r: p.purge_subscription(r.number()),
    verbs.LOSE_MESSAGE_LOCKS: lambda p, r: p.lose_message_locks(r.number(), r.number_or_none()),
    verbs.LOSE_SESSION_LOCKS: lambda p, r: p.lose_session_locks(r.number(), r.text_or_none()),
}
"""Verbs that answer with a promise of plain values."""

_TOLD: dict[int, Callable[[Owner, LocalPartition, Frame, Reader], None]] = {
    verbs.FOLLOW: Owner.follow,
    verbs.SEND: Owner.send,
    verbs.WATCH: Owner.watch,
    verbs.UNWATCH: Owner.unwatch,
    verbs.DEMAND: Owner.demand,
    verbs.TAKE_DEFERRED: Owner.take_deferred,
    verbs.COMPLETE: Owner.complete,
    verbs.SETTLE: Owner.settle,
    verbs.RELEASE: Owner.release,
    verbs.GIVE_BACK: Owner.give_back,
    verbs.ACCEPT_SESSION: Owner.accept,
    verbs.ACCEPT_NEXT_SESSION: Owner.accept_next,
    verbs.SESSION_DEMAND: Owner.session_demand,
    verbs.RENEW_SESSION: Owner.renew_session,
    verbs.RELEASE_SESSION: Owner.release_session,
    verbs.GET_SESSION_STATE: Owner.get_state,
    verbs.SET_SESSION_STATE: Owner.set_state,
    verbs.HOLD: Owner.hold,
    verbs.COMMIT: Owner.commit,
    verbs.ROLL_BACK: Owner.roll_back,
    verbs.DELETE_BEFORE: Owner.delete_before,
    verbs.FORWARD_BACKLOG: Owner.forward_backlog,
    verbs.TRIM_EVENTS: Owner.trim_events,
    verbs.SET_FLOOR: Owner.set_floor,
    verbs.FORGET_SUBSCRIPTION: Owner.forget_subscription,
    verbs.CLOCK_MOVED: Owner.clock_moved,
    verbs.TAKE_SELECTED: Owner.take_selected,
}
"""Verbs that need the link's own state, or have no answer."""
