"""One broker alone: a dictionary for a store, a clock that is set by hand, commits when asked.

A commit is `seal`, `write` and `land`, which can be called one by one: memory runs ahead of the store, and the store
ahead of what memory was told. Reads are answered at once by `run`; `begin` captures what a read would show and lets
the test decide when the verb hears of it, as with a store across a network. Every write is audited.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Generator
from typing import Any

from polybus.clock import Now
from polybus.errors import EntityNotFound, PolybusError
from polybus.message.message import Message, build
from polybus.message.peeked import Peeked
from polybus.partition import receiving, sending, session_verbs, settling, upkeep
from polybus.partition.broker import Broker
from polybus.partition.entry import Entry
from polybus.partition.log import Log
from polybus.partition.output import Output, Sink
from polybus.partition.sessions import Session
from polybus.partition.settings import EntitySettings
from polybus.rows import Get, Read
from tests.unit.partition.audit import audit

START_MS = 1_700_000_000_000


class Solo(Sink):
    """Drives one broker: `commit` writes the open output, `crash` forgets everything that was not written."""

    def __init__(self, settings: EntitySettings | None = None, index: int = 0, entity_id: int = 7) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.keys: list[bytes] = []
        self.now = Now(START_MS, 1_000_000)
        self.settings = settings or EntitySettings("q", 1, False)
        self.index = index
        self.entity_id = entity_id
        self.incarnation = 0
        self.audited = True
        self.replies: list[tuple[object, Any, PolybusError | None]] = []
        self.grown = 0
        self.routes: dict[str, tuple[int, int]] = {}
        self.routed: list[tuple[str, str | None]] = []
        self.crash()

    def crash(self) -> None:
        """Opens the broker on what was written; everything else is gone."""
        self.batch = Output()
        self.sealed: deque[Output] = deque()
        self.written: deque[Output] = deque()
        self.incarnation += 1
        self.broker = Broker(self.entity_id, self.index, self.settings, self, self, self.incarnation)
        self.run(self.broker.open())

    # Sink and router of the broker
    def touch(self) -> None:
        pass

    def route(self, destination: str, entry: Entry) -> tuple[int, int]:
        self.routed.append((destination, entry.session_id()))
        if destination not in self.routes:
            raise EntityNotFound(f"'{destination}' could not be found.")
        return self.routes[destination]

    def outbox_grew(self, broker: Broker) -> None:
        self.grown += 1

    # Reads
    def answer(self, read: Read) -> list[object]:
        """As the real stores do: a scan stops before the row that would exceed its bytes, but for the first."""
        if isinstance(read, Get):
            return [self.rows.get(key) for key in read.keys]
        found: list[object] = []
        left = read.max_bytes
        for place in range(bisect_left(self.keys, read.start), len(self.keys)):
            key = self.keys[place]
            if key >= read.end or len(found) >= read.limit:
                break
            left -= len(key) + len(self.rows[key])
            if left < 0 and found:
                break
            found.append((key, self.rows[key]))
        return found

    def run(self, steps: Generator[Read, list[object], Any]) -> Any:
        return self.begin(steps).finish()

    def begin(self, steps: Generator[Read, list[object], Any]) -> Pending:
        return Pending(self, steps)

    # Commits
    def commit(self) -> None:
        self.seal()
        while self.sealed:
            self.write()
        while self.written:
            self.land()

    def seal(self) -> None:
        self.batch.seal()
        self.sealed.append(self.batch)
        self.batch = Output()

    def write(self) -> None:
        """The oldest sealed batch is in the store; nobody was told yet."""
        batch = self.sealed.popleft()
        for start, end in batch.ranges:
            for key in [key for key in self.rows if start <= key < end]:
                del self.rows[key]
        for key, value in batch.ops:
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value
        self.keys = sorted(self.rows)
        self.written.append(batch)
        if self.audited:
            audit(self.rows, self.broker)

    def land(self) -> None:
        self.written.popleft().release()

    def reply(self, context: object, result: object, error: PolybusError | None) -> None:
        self.replies.append((context, result, error))

    @property
    def said(self) -> Any:
        """The latest reply's result."""
        return self.replies[-1][1]

    # Time
    def pass_time(self, ms: int) -> None:
        self.now = Now(self.now.wall_ms + ms, self.now.mono_ms + ms)

    def move(self, ms: int) -> list[Session]:
        """Lets time pass, with everything that it brings."""
        self.pass_time(ms)
        lost = upkeep.expire_locks(self.broker, self.now)
        self.commit()
        self.upkeep()
        return lost

    def upkeep(self) -> None:
        for _ in range(10_000):
            if upkeep.next_due(self.broker, self.now):
                return
            if self.broker.due_ms <= self.now.wall_ms:
                self.run(upkeep.activate(self.broker, self.now))
            if self.broker.expiry_due_ms <= self.now.wall_ms:
                self.run(upkeep.sweep(self.broker, self.now))
            self.run(upkeep.prune_duplicates(self.broker, self.now))
            self.commit()
        raise AssertionError("the broker is never done with what is due")

    # Verbs
    def log(self, log_id: int = 0) -> Log:
        return self.broker.log(log_id)

    def send(self, body: bytes = b"x", commit: bool = True, **fields: Any) -> int:
        numbers = self.send_all([build(body, **fields)], commit)
        return int(numbers[0]) if commit else 0

    def send_all(self, messages: list[Message], commit: bool = True) -> list[int]:
        keys = sending.rows_needed(self.broker, messages)
        rows: dict[bytes, object] = {key: self.rows.get(key) for key in keys}
        self.sent_keys = sending.send(self.broker, self.now, messages, rows, self.reply, "send")
        if not commit:
            return []
        self.commit()
        assert self.replies[-1][0] == "send"
        return list(self.said)

    def take(self, log_id: int = 0) -> Entry | None:
        """The next message under a lock, paged in where it must be."""
        log = self.log(log_id)
        while True:
            entry = receiving.take(self.broker, log, self.now, None)
            if entry is not None or not log.wants_page():
                return entry
            self.run(receiving.load_page(self.broker, log))

    def take_all(self, log_id: int = 0) -> list[Entry]:
        found = []
        while (entry := self.take(log_id)) is not None:
            found.append(entry)
        return found

    def take_away(self, log_id: int = 0) -> Entry | None:
        log = self.log(log_id)
        while True:
            entry = receiving.take_away(self.broker, log, self.now)
            if entry is not None or not log.wants_page():
                return entry
            self.run(receiving.load_page(self.broker, log))

    def get(self, log_id: int = 0) -> Entry:
        entry = self.take(log_id)
        assert entry is not None, "there is nothing to take"
        return entry

    def complete(self, entry: Entry, commit: bool = True) -> None:
        settling.complete(self.broker, entry.log, entry.lock, self.now, self.reply, "complete")
        self._commit(commit)

    def abandon(self, entry: Entry, commit: bool = True, **properties: object) -> None:
        settling.abandon(self.broker, entry.log, entry.lock, self.now, properties, self.reply, "abandon")
        self._commit(commit)

    def defer(self, entry: Entry, commit: bool = True, **properties: object) -> None:
        settling.defer(self.broker, entry.log, entry.lock, self.now, properties, self.reply, "defer")
        self._commit(commit)

    def dead_letter(
        self,
        entry: Entry,
        reason: str | None = "r",
        description: str | None = "d",
        commit: bool = True,
        **more: object,
    ) -> None:
        verb = settling.dead_letter
        verb(self.broker, entry.log, entry.lock, self.now, reason, description, more, self.reply, "dead-letter")
        self._commit(commit)

    def release(self, entry: Entry) -> None:
        settling.release(self.broker, entry.log, entry.lock, self.now)

    def take_deferred(self, *numbers: int, lock: bool = True, log_id: int = 0) -> list[Entry]:
        log = self.log(log_id)
        return list(self.run(receiving.take_deferred(self.broker, log, self.now, list(numbers), lock, None, None)))

    def cancel(self, *numbers: int) -> None:
        self.run(upkeep.cancel(self.broker, self.now, list(numbers), self.reply, "cancel"))
        self.commit()

    def peek(
        self, first: int = 1, count: int = 100, max_bytes: int = 1 << 20, session: str | None = None, log_id: int = 0
    ) -> list[Peeked]:
        log = self.log(log_id)
        return list(self.run(receiving.peek(self.broker, log, self.now, first, count, max_bytes, session)))

    def numbers(self, log_id: int = 0) -> list[int]:
        return [peeked.marks.sequence for peeked in self.peek(log_id=log_id)]

    def accept(self, session_id: str, holder: object = "me", log_id: int = 0) -> Session:
        session = self.run(session_verbs.accept(self.broker, self.log(log_id), session_id, self.now, holder))
        assert isinstance(session, Session)
        return session

    def accept_next(self, holder: object = "me", log_id: int = 0) -> Session | None:
        session = self.run(session_verbs.accept_next(self.broker, self.log(log_id), self.now, holder))
        assert session is None or isinstance(session, Session)
        return session

    def take_from(self, session: Session, lock: bool = True, log_id: int = 0) -> Entry | None:
        while True:
            entry = session_verbs.take(self.broker, session, self.now, lock)
            if entry is not None or not session.wants_page():
                return entry
            self.run(session_verbs.load_page(self.broker, self.log(log_id), session))

    def release_session(self, session: Session, count: bool = True, log_id: int = 0) -> None:
        session_verbs.release(self.broker, self.log(log_id), session, self.now, count)
        self.commit()

    def _commit(self, commit: bool) -> None:
        if commit:
            self.commit()

    # What is there
    def tables(self) -> str:
        """The letters of the tables that have rows, those of counters left out."""
        at = len(self.broker.prefix)
        return "".join(sorted({chr(key[at]) for key in self.rows} - {"!", "L"}))


class Pending:
    """A verb that waits for rows: they are those of the moment when it asked."""

    def __init__(self, solo: Solo, steps: Generator[Read, list[object], Any]) -> None:
        self._solo = solo
        self._steps = steps
        self._answer: list[object] | None = None
        self.done = False
        self.result: Any = None
        self.error: PolybusError | None = None
        self.step()

    def step(self) -> bool:
        """Hands over the rows that were captured, and captures those that are asked for next."""
        assert not self.done
        try:
            read = self._steps.send(self._answer)  # type: ignore[arg-type]
        except StopIteration as stop:
            self.done, self.result = True, stop.value
        except PolybusError as error:
            self.done, self.error = True, error
        else:
            self._answer = self._solo.answer(read)
        return self.done

    def finish(self) -> Any:
        while not self.done:
            self.step()
        if self.error is not None:
            raise self.error
        return self.result

    def drop(self) -> None:
        """The store never answers."""
        self._steps.close()
