"""One broker alone: a dictionary for a store, a clock that is set by hand, commits when asked."""

from __future__ import annotations

from collections.abc import Generator

from polybus.clock import Now
from polybus.errors import EntityNotFound, PolybusError
from polybus.message.message import Message, build
from polybus.partition import receiving, sending, upkeep
from polybus.partition.broker import Broker
from polybus.partition.entry import Entry
from polybus.partition.output import Output
from polybus.partition.settings import EntitySettings
from polybus.rows import Get, Read


class Solo:
    """Drives one broker: `commit` writes the open output, `crash` forgets everything that was not committed."""

    def __init__(self, settings: EntitySettings | None = None, index: int = 0) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.now = Now(1_700_000_000_000, 1_000_000)
        self.settings = settings or EntitySettings("q", 1, False)
        self.index = index
        self.incarnation = 0
        self.replies: list[tuple[object, object, PolybusError | None]] = []
        self.grown = 0
        self.routes: dict[str, tuple[int, int]] = {}
        self.open()

    def open(self) -> None:
        self.batch = Output()
        self.incarnation += 1
        self.broker = Broker(7, self.index, self.settings, self, self, self.incarnation)
        self.run(self.broker.open())

    crash = open

    # Sink and router of the broker
    def touch(self) -> None:
        pass

    def route(self, destination: str, message: Message, session_id: str | None) -> tuple[int, int]:
        if destination not in self.routes:
            raise EntityNotFound(f"'{destination}' could not be found.")
        return self.routes[destination]

    def outbox_grew(self, broker: Broker) -> None:
        self.grown += 1

    def answer(self, read: Read) -> list[object]:
        if isinstance(read, Get):
            return [self.rows.get(key) for key in read.keys]
        found: list[object] = []
        size = 0
        for key in sorted(self.rows):
            if read.start <= key < read.end and len(found) < read.limit and (not found or size < read.max_bytes):
                found.append((key, self.rows[key]))
                size += len(self.rows[key])
        return found

    def run(self, steps: Generator[Read, list[object], object]) -> object:
        answer: list[object] | None = None
        try:
            while True:
                read = steps.send(answer)  # type: ignore[arg-type]
                answer = self.answer(read)
        except StopIteration as stop:
            return stop.value

    def commit(self) -> None:
        batch = self.batch
        batch.seal()
        self.batch = Output()
        for start, end in batch.ranges:
            for key in [key for key in self.rows if start <= key < end]:
                del self.rows[key]
        for key, value in batch.ops:
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value
        batch.release()

    def reply(self, context: object, result: object, error: PolybusError | None) -> None:
        self.replies.append((context, result, error))

    def move(self, ms: int) -> None:
        """Lets time pass, with everything that it brings."""
        self.now = Now(self.now.wall_ms + ms, self.now.mono_ms + ms)
        upkeep.expire_locks(self.broker, self.now)
        self.commit()
        while self.broker.due_ms <= self.now.wall_ms:
            self.run(upkeep.activate(self.broker, self.now))
            self.commit()
        if self.broker.expiry_due_ms <= self.now.wall_ms:
            self.run(upkeep.sweep(self.broker, self.now))
            self.commit()

    def send(self, body: bytes = b"x", commit: bool = True, **fields: object) -> int:
        message = build(body, **fields)  # type: ignore[arg-type]
        keys = sending.rows_needed(self.broker, [message])
        rows: dict[bytes, object] = {key: self.rows.get(key) for key in keys}
        sending.send(self.broker, self.now, [message], rows, self.reply, body)
        if not commit:
            return 0
        self.commit()
        numbers = self.replies[-1][1]
        assert isinstance(numbers, list)
        return int(numbers[0])

    def take(self, log_id: int = 0) -> Entry | None:
        log = self.broker.log(log_id)
        while not log.has_ready() and log.wants_page():
            self.run(receiving.load_page(self.broker, log))
        return receiving.take(self.broker, log, self.now, None)
