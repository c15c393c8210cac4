"""One partition of the reference bus: a disk that survives crashes and a memory that does not.

Operations that change the disk are submitted and happen when the partition is synced, in order and each as
one atomic batch; only then is their ticket resolved. Locks and sessions are memory. A crash resolves what was
waiting as unknown, whether it had reached the disk or not. Time is read from the clock that is given; nothing
runs by itself. Which partition a message goes to is not decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from polybus.clock import Clock, Now
from polybus.errors import (
    BusError,
    MessageLockLost,
    MessageNotFound,
    SessionCannotBeLocked,
    SessionLockLost,
)
from polybus.testing.history import FAILED, OK, UNKNOWN, Op
from polybus.testing.verifier.contents import (
    ACTIVE,
    DEAD_LETTER,
    DEFERRED,
    SCHEDULED,
    STATES,
    EntityOptions,
)
from tests.support.reference.parts import Batch, Command, Delivery, Message, MessageLock, SessionLock, Ticket


class ReferencePartition:
    """One partition of one queue."""

    def __init__(self, name: str, index: int, options: EntityOptions, clock: Clock) -> None:
        self.name = name
        self.index = index
        self.options = options
        self.disk: Batch = {}
        self.up = True
        self.incarnation = 0
        self.waiting: list[tuple[Command, Ticket]] = []
        self._clock = clock
        self._wall_ms = 0
        self._tokens = 0
        self.load()

    def load(self) -> None:
        """Builds memory from the disk, and nothing else."""
        self.incarnation += 1
        self.batch: Batch = {}
        numbers = sorted(key[1] for key in self.disk if key[0] == "message")
        self.messages: dict[int, Message] = {number: self.disk["message", number] for number in numbers}
        self.seen: dict[str, int] = {key[1]: at for key, at in self.disk.items() if key[0] == "seen"}
        self.last_number: int = self.disk.get(("last",), self.index << 48)
        self.counters: dict[str, int] = {state: self.disk.get(("counter", state), 0) for state in STATES}
        self.locks: dict[str, MessageLock] = {}
        self.locked: dict[int, str] = {}
        self.sessions: dict[str, SessionLock] = {}

    def now(self) -> Now:
        now = self._clock.now()
        self._wall_ms = max(self._wall_ms, now.wall_ms)
        return Now(self._wall_ms, now.mono_ms)

    # Writing

    def submit(self, command: Command, ticket: Ticket) -> None:
        self.waiting.append((command, ticket))

    def sync(self) -> None:
        """Carries out what waits, and answers it."""
        self.tick()
        waiting, self.waiting = self.waiting, []
        for command, ticket in waiting:
            try:
                answer = self.execute(command)
            except BusError as error:
                ticket.resolve(FAILED, error)
            else:
                ticket.resolve(OK, answer)

    def execute(self, command: Command) -> Any:
        answer = command()
        self.write(self.batch)
        self.batch = {}
        return answer

    def write(self, batch: Batch) -> None:
        for key, value in batch.items():
            if value is None:
                self.disk.pop(key, None)
            else:
                self.disk[key] = value

    def crash(self, written: int) -> None:
        """The first `written` commands reach the disk, none is answered, memory is gone."""
        for command, _ in self.waiting[:written]:
            try:
                self.execute(command)
            except BusError:
                self.batch = {}
        for _, ticket in self.waiting:
            ticket.resolve(UNKNOWN)
        self.waiting = []
        self.load()

    def put(self, message: Message) -> None:
        old = self.messages.get(message.number)
        if old is not None:
            self.tally(old.state, -1)
        self.tally(message.state, 1)
        self.messages[message.number] = message
        self.batch["message", message.number] = message

    def drop(self, number: int) -> None:
        self.tally(self.messages.pop(number).state, -1)
        self.batch["message", number] = None

    def tally(self, state: str, by: int) -> None:
        self.counters[state] += by
        self.batch["counter", state] = self.counters[state]

    def next_number(self) -> int:
        self.last_number += 1
        self.batch["last",] = self.last_number
        return self.last_number

    # Commands

    def send(self, messages: Sequence[Message], mark: tuple[int, int] | None = None) -> list[int | None]:
        """Stores what is no duplicate; `mark` says which partition may hold a copy of a rerouted send."""
        if mark is not None:
            self.batch["mark", *mark] = True
        return [None if self.is_duplicate(message) else self.store(message) for message in messages]

    def is_duplicate(self, message: Message) -> bool:
        window = self.options.dedup_window_ms
        if window is None:
            return False
        now = self.now().wall_ms
        seen = self.seen.get(message.message_id)
        if seen is not None and now < seen + window:
            return True
        self.seen[message.message_id] = now
        self.batch["seen", message.message_id] = now
        return False

    def store(self, message: Message) -> int:
        now = self.now().wall_ms
        state = SCHEDULED if message.due_ms > now else ACTIVE
        number = self.next_number()
        self.put(replace(message, number=number, state=state, count=0, enqueued_ms=now))
        return number

    def cancel(self, number: int) -> None:
        message = self.messages.get(number)
        if message is None or message.state != SCHEDULED:
            raise MessageNotFound(str(number))
        self.drop(number)

    def take(self, session: SessionLock | None = None) -> Message | None:
        """Receive and delete."""
        self.tick()
        message = self.next_free(ACTIVE, session)
        if message is not None:
            self.drop(message.number)
        return message

    def settle(self, token: str, how: str) -> None:
        lock = self.find_lock(token)
        message = self.messages[lock.number]
        self.unlock(token)
        if how == Op.COMPLETE:
            self.drop(message.number)
        elif how == Op.ABANDON:
            self.give_back(message)
        elif message.state != DEAD_LETTER:
            self.put(replace(message, state=DEFERRED if how == Op.DEFER else DEAD_LETTER))

    def give_back(self, message: Message) -> None:
        """Raises the delivery count, and dead-letters what has reached the maximum."""
        if message.state == DEAD_LETTER:
            return
        message = replace(message, count=message.count + 1)
        most = self.options.max_delivery_count
        if most is not None and message.count >= most:
            message = replace(message, state=DEAD_LETTER)
        self.put(message)

    def transact(self, members: Sequence[tuple[str, Any]]) -> None:
        """Settlements and sends as one batch; nothing is done when one lock is gone."""
        for how, subject in members:
            if how != Op.SEND:
                self.find_lock(subject)
        for how, subject in members:
            if how == Op.SEND:
                self.send([subject])
            else:
                self.settle(subject, how)

    # Time

    def tick(self) -> None:
        """What time alone does: locks run out, messages expire, scheduled ones become active."""
        now = self.now()
        for token, lock in list(self.locks.items()):
            if not self.is_held(lock, now):
                self.unlock(token)
                self.give_back(self.messages[lock.number])
        self.sessions = {name: lock for name, lock in self.sessions.items() if lock.until_ms > now.mono_ms}
        for message in list(self.messages.values()):
            if self.is_expired(message, now) and message.number not in self.locked:
                self.expire(message)
        due = [m for m in self.messages.values() if m.state == SCHEDULED and self.is_due(m, now)]
        for message in sorted(due, key=lambda m: (m.due_ms, m.number)):
            self.drop(message.number)
            self.put(replace(message, number=self.next_number(), state=ACTIVE, enqueued_ms=now.wall_ms))
        self.execute(lambda: None)

    def is_held(self, lock: MessageLock, now: Now) -> bool:
        if lock.session is not None:
            return self.sessions.get(lock.session.session) is lock.session and self.is_open(lock.session, now)
        return lock.until_ms > now.mono_ms

    def is_open(self, session: SessionLock, now: Now) -> bool:
        return session.until_ms > now.mono_ms

    def is_due(self, message: Message, now: Now) -> bool:
        return message.due_ms <= now.wall_ms

    def is_expired(self, message: Message, now: Now) -> bool:
        ttl = self.options.ttl_ms
        return ttl is not None and message.state in (ACTIVE, DEFERRED) and message.enqueued_ms + ttl <= now.wall_ms

    def expire(self, message: Message) -> None:
        if self.options.dead_letter_on_expiry:
            self.put(replace(message, state=DEAD_LETTER))
        else:
            self.drop(message.number)

    # Locks

    def next_free(self, state: str, session: SessionLock | None) -> Message | None:
        for message in self.messages.values():
            wanted = session is None or message.session == session.session
            if wanted and message.state == state and self.is_free(message):
                return message
        return None

    def is_free(self, message: Message) -> bool:
        return message.number not in self.locked

    def receive(self, state: str = ACTIVE, session: SessionLock | None = None) -> Delivery | None:
        self.tick()
        message = self.next_free(state, session)
        return None if message is None else self.lock(message, session)

    def receive_deferred(self, number: int, session: SessionLock | None = None) -> Delivery:
        self.tick()
        message = self.messages.get(number)
        if message is None or message.state != DEFERRED or number in self.locked:
            raise MessageNotFound(str(number))
        return self.lock(message, session)

    def lock(self, message: Message, session: SessionLock | None) -> Delivery:
        self._tokens += 1
        token = f"{self.name}/{self.index}/{self.incarnation}/{self._tokens}"
        until_ms = self.now().mono_ms + self.options.lock_ms
        self.locks[token] = MessageLock(message.number, until_ms, session)
        self.locked[message.number] = token
        return Delivery(message, token)

    def unlock(self, token: str) -> None:
        lock = self.locks.pop(token)
        if self.locked.get(lock.number) == token:
            del self.locked[lock.number]

    def find_lock(self, token: str) -> MessageLock:
        lock = self.locks.get(token)
        if lock is None or not self.is_held(lock, self.now()):
            raise MessageLockLost(token)
        return lock

    def renew(self, token: str) -> None:
        self.find_lock(token).until_ms = self.now().mono_ms + self.options.lock_ms

    def accept(self, session: str) -> SessionLock:
        self.tick()
        if self.session_is_taken(session):
            raise SessionCannotBeLocked(session)
        lock = SessionLock(session, self.now().mono_ms + self.options.lock_ms)
        self.sessions[session] = lock
        return lock

    def session_is_taken(self, session: str) -> bool:
        return session in self.sessions

    def find_session(self, lock: SessionLock) -> None:
        if self.sessions.get(lock.session) is not lock or not self.is_open(lock, self.now()):
            raise SessionLockLost(lock.session)

    def renew_session(self, lock: SessionLock) -> None:
        self.find_session(lock)
        lock.until_ms = self.now().mono_ms + self.options.lock_ms

    def release_session(self, lock: SessionLock) -> None:
        self.find_session(lock)
        del self.sessions[lock.session]
        self.tick()
