"""The sessions of a partition in this process: its client's verbs about them"""

from __future__ import annotations

from polybus.errors import InvalidOperation, PolybusError, SessionLockLost
from polybus.hosting.partition_client import Delivery, SessionLock
from polybus.hosting.partition_host import PartitionHost
from polybus.partition import session_list, session_verbs
from polybus.partition.broker import Broker
from polybus.partition.data import ListedSession
from polybus.partition.log import Log
from polybus.partition.sessions import Session
from polybus.promise import C, Promise, Reply, pause, rejected, resolved, spawn


class LocalSessionLock(SessionLock):
    """A session's lock with what it locks. It is the session's holder, too."""

    def __init__(self, log: Log, session_id: str, holder: str) -> None:
        super().__init__(log.id, session_id, holder)
        self.log = log
        self.session: Session | None = None
        self.reading = False

    def __str__(self) -> str:
        return self.holder


class LocalSessions(PartitionHost):
    """The sessions of a partition in this process."""

    def may_have_session(self, log_id: int) -> bool:
        broker = self.broker
        return broker is not None and session_verbs.book(broker.log(log_id)).has_waiting()

    def accept_session(self, log_id: int, session_id: str, holder: str) -> Promise[SessionLock]:
        return spawn(self._accept_session(log_id, session_id, holder))

    async def _accept_session(self, log_id: int, session_id: str, holder: str) -> SessionLock:
        broker = self.require()
        lock = LocalSessionLock(broker.log(log_id), session_id, holder)
        session = await self.run(session_verbs.accept(broker, lock.log, session_id, self._clock.now(), lock))
        return await self._held(lock, session)

    def accept_next_session(self, log_id: int, holder: str) -> Promise[SessionLock | None]:
        return spawn(self._accept_next_session(log_id, holder))

    async def _accept_next_session(self, log_id: int, holder: str) -> SessionLock | None:
        broker = self.require()
        lock = LocalSessionLock(broker.log(log_id), "", holder)
        session = await self.run(session_verbs.accept_next(broker, lock.log, self._clock.now(), lock))
        if session is not None:
            return await self._held(lock, session)
        if session_verbs.book(lock.log).has_more():
            await pause(self._loop, 0)  # everybody else has a turn
            listener = self.listeners.get(log_id)
            if listener is not None:
                listener.available(self)
        return None

    async def _held(self, lock: LocalSessionLock, session: Session) -> SessionLock:
        """Waits until what the last holder did is on disk: what comes next in the session depends on it."""
        lock.id = session.id
        lock.session = session
        lock.locked_until_ms = session.until_wall_ms
        self.locked_until(session.until_ms)
        await self.store.synced()
        self.require()
        self._check_held(lock)
        return lock

    def _check_held(self, lock: SessionLock) -> LocalSessionLock:
        """SessionLockLost where the session is no longer held: its time is over, or its broker is gone."""
        assert isinstance(lock, LocalSessionLock), "a session's lock goes back to the partition that gave it"
        if lock.lost or session_of(lock).lost:
            raise SessionLockLost(f"The session lock has expired on the session '{lock.id}'.")
        session_verbs.require_held(lock.log, lock.id, self._clock.now(), lock)
        return lock

    def take_in_session(self, session: SessionLock, credit: int) -> Delivery | None:
        del credit
        broker = self.broker
        assert isinstance(session, LocalSessionLock), "a session's lock goes back to the partition that gave it"
        if broker is None or session.lost or not self.store.may_hand_out:
            return None
        entry = session_verbs.take(broker, session_of(session), self._clock.now(), True)
        delivery = None if entry is None else self.delivery(broker, entry)
        self._load_session(broker, session)
        return delivery

    def take_away_in_session(self, session: SessionLock, credit: int, reply: Reply[C, Delivery], context: C) -> bool:
        del credit
        broker = self.broker
        assert isinstance(session, LocalSessionLock), "a session's lock goes back to the partition that gave it"
        if broker is None or session.lost:
            return False
        entry = session_verbs.take(broker, session_of(session), self._clock.now(), False)
        if entry is not None:
            broker.out().replies.append((reply, context, self.delivery(broker, entry)))
        self._load_session(broker, session)
        return entry is not None

    def _load_session(self, broker: Broker, lock: LocalSessionLock) -> None:
        session, listener = lock.session, lock.listener
        if session is None or listener is None or lock.reading or session.lost or not session.wants_page():
            return
        lock.reading = True
        listener.searching()
        self.run(session_verbs.load_page(broker, lock.log, session)).then(
            lambda promise: self._session_loaded(lock, promise)
        )

    def _session_loaded(self, lock: LocalSessionLock, promise: Promise[None]) -> None:
        lock.reading = False
        session, listener = session_of(lock), lock.listener
        if listener is None:
            return
        try:
            promise.result()
        except PolybusError:
            self.try_again(listener.available)
        else:
            if session.has_ready() or not session.whole:
                listener.available()
        listener.searched()

    def renew_session(self, session: SessionLock) -> Promise[int]:
        try:
            self.require()
            lock = self._check_held(session)
            held = session_of(lock)
            lock.locked_until_ms = session_verbs.renew(lock.log, held, self._clock.now())
        except PolybusError as error:
            return rejected(error)
        self.locked_until(held.until_ms)
        return resolved(lock.locked_until_ms)

    def release_session(self, session: SessionLock) -> None:
        broker = self.broker
        assert isinstance(session, LocalSessionLock), "a session's lock goes back to the partition that gave it"
        held = session_of(session)
        session.listener = None
        if broker is not None and not held.lost:
            session_verbs.release(broker, session.log, held, self._clock.now())
        session.lost = True

    def get_session_state(self, session: SessionLock) -> Promise[bytes | None]:
        try:
            lock = self._check_held(session)
            self.require()
        except PolybusError as error:
            return rejected(error)
        return self.run(session_verbs.get_state(lock.log, lock.id))

    def set_session_state(self, session: SessionLock, state: bytes | None) -> Promise[None]:
        return spawn(self._set_session_state(session, state))

    async def _set_session_state(self, session: SessionLock, state: bytes | None) -> None:
        lock, now = self._check_held(session), self._clock.now()
        done: Promise[None] = Promise()
        await self.run(
            session_verbs.set_state(self.require(), lock.log, session_of(lock), state, now, done.reply, None)
        )
        await done

    def peek_session_state(self, log_id: int, session_id: str) -> Promise[bytes | None]:
        broker = self.broker
        if broker is None:
            return rejected(self.unavailable())
        return self.run(session_verbs.get_state(broker.log(log_id), session_id))

    def list_sessions(self, log_id: int, limit: int, updated_after_ms: int | None) -> Promise[list[str]]:
        broker = self.broker
        if broker is None:
            return rejected(self.unavailable())
        return self.run(session_verbs.list_sessions(broker.log(log_id), None, limit, updated_after_ms))

    def describe_sessions(self, log_id: int, after: str | None, limit: int) -> Promise[list[ListedSession]]:
        broker = self.broker
        if broker is None:
            return rejected(self.unavailable())
        log = broker.log(log_id)
        if log.sessions is None:
            return rejected(InvalidOperation(f"'{log.settings.source}' has no sessions."))
        return self.run(session_list.list_sessions(log, after, limit))


def session_of(lock: SessionLock) -> Session:
    """What a lock holds, for whoever is below the partition's client."""
    assert isinstance(lock, LocalSessionLock), "a session's lock goes back to the partition that gave it"
    assert lock.session is not None, "a lock that was given out holds a session"
    return lock.session
