"""What a partition should do, in plain lists and dictionaries: no paging, no rows, no batches.

`copy` of the whole model stands for a commit, and going back to that copy for a crash.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

ACTIVE, DEFERRED = "active", "deferred"


@dataclass
class Sent:
    """What the sender wrote."""

    body: bytes
    message_id: str | None = None
    session: str | None = None
    ttl_ms: int | None = None
    scheduled_ms: int = 0
    color: str = "none"


@dataclass
class Item:
    """A message in a log."""

    number: int
    sent: Sent
    expires_ms: int
    state: str = ACTIVE
    count: int = 0
    lock: int = 0
    until_ms: int = 0
    hold: int = 0
    moving: bool = True
    """On its way in or back: not to be had before the commit."""

    def alive(self, wall_ms: int) -> bool:
        return not self.expires_ms or self.expires_ms > wall_ms

    def free(self, wall_ms: int) -> bool:
        return self.state == ACTIVE and not self.lock and self.alive(wall_ms)


@dataclass
class Hold:
    """A session that somebody holds."""

    number: int
    until_ms: int


@dataclass
class LogModel:
    sessions: bool = False
    counter: int = 0
    items: dict[int, Item] = field(default_factory=dict)
    dead: dict[int, Item] = field(default_factory=dict)
    held: dict[str, Hold] = field(default_factory=dict)
    states: dict[str, bytes] = field(default_factory=dict)

    def in_state(self, state: str) -> list[Item]:
        return [item for item in self.items.values() if item.state == state]

    def next_item(self, wall_ms: int, session: str | None = None) -> Item | None:
        """The lowest number that can be had now; in a session nothing is had before what is on its way back."""
        own = [item for item in self.items.values() if session is None or item.sent.session == session]
        free = sorted((item for item in own if item.free(wall_ms)), key=lambda item: item.number)
        for item in free:
            if not item.moving:
                return item
            if session is not None:
                return None
        return None

    def waiting(self, wall_ms: int) -> set[str]:
        """Free sessions that have messages."""
        found = {str(item.sent.session) for item in self.items.values() if item.free(wall_ms) and not item.moving}
        return found - set(self.held)


class Model:
    def __init__(self, wall_ms: int, mono_ms: int) -> None:
        self.wall_ms = wall_ms
        self.mono_ms = mono_ms
        self.lock_ms = 10_000
        self.max_count = 3
        self.ttl_ms: int | None = None
        self.dead_letter_expired = False
        self.window_ms = 0
        self.logs: dict[int, LogModel] = {}
        self.topic: LogModel | None = None
        self.scheduled: dict[int, Sent] = {}
        self.ids: dict[str, int] = {}
        self.holds = 0
        self.committed: Model = self
        self.commit()

    # Commit and crash

    def commit(self) -> None:
        for log in self.logs.values():
            for item in (*log.items.values(), *log.dead.values()):
                item.moving = False
        self.committed = self  # so that the copy does not hold the copy before it
        self.committed = copy.deepcopy(self)

    def crash(self) -> None:
        kept = copy.deepcopy(self.committed)
        self.logs, self.topic, self.scheduled, self.ids = kept.logs, kept.topic, kept.scheduled, kept.ids
        if self.topic is None:
            pass
        for log in self.logs.values():
            log.held.clear()
            for item in (*log.items.values(), *log.dead.values()):
                item.lock = 0
        self.commit()

    # Coming in

    def send(self, sent: Sent) -> int:
        if self.window_ms and sent.message_id is not None:
            seen = self.ids.get(sent.message_id)
            if seen is not None and self.wall_ms - seen < self.window_ms:
                return 0
            self.ids[sent.message_id] = self.wall_ms
        counter = self.topic or self.logs[0]
        counter.counter += 1
        if sent.scheduled_ms > self.wall_ms:
            self.scheduled[counter.counter] = sent
        elif self.topic is None:
            self._enter(self.logs[0], counter.counter, sent)
        else:
            self._publish(sent)
        return counter.counter

    def _publish(self, sent: Sent) -> None:
        """Subscription 1 takes everything, 2 only what is red, 3 red and blue once each, and more by an action."""
        copies = {1: 1, 2: int(sent.color == "red"), 3: int(sent.color in ("red", "blue")) * 2}
        for number, count in copies.items():
            if number * 4 in self.logs:
                log = self.logs[number * 4]
                for _ in range(count):
                    log.counter += 1
                    self._enter(log, log.counter, sent)

    def _enter(self, log: LogModel, number: int, sent: Sent) -> None:
        lives = [ttl for ttl in (self.ttl_ms, sent.ttl_ms) if ttl is not None]
        log.items[number] = Item(number, sent, self.wall_ms + min(lives) if lives else 0)

    def cancel(self, number: int) -> None:
        del self.scheduled[number]

    # Going out

    def locked(self, log: LogModel, item: Item, lock: int) -> None:
        item.lock = lock
        session = log.held.get(str(item.sent.session)) if log.sessions else None
        item.until_ms = self.mono_ms + self.lock_ms if session is None else session.until_ms
        item.hold = 0 if session is None else session.number

    def complete(self, log: LogModel, item: Item) -> None:
        del (log.items if item.number in log.items and log.items[item.number] is item else log.dead)[item.number]

    def failed(self, log: LogModel, item: Item) -> None:
        """A delivery ended without settlement."""
        item.lock = 0
        item.count += 1
        if item.count >= self.max_count and log.items.get(item.number) is item:
            self.kill(log, item)
        elif item.state == ACTIVE:
            item.moving = True

    def defer(self, item: Item) -> None:
        item.lock = 0
        item.state = DEFERRED

    def kill(self, log: LogModel, item: Item) -> None:
        del log.items[item.number]
        item.lock = item.expires_ms = 0
        item.state, item.moving = ACTIVE, True
        log.dead[item.number] = item

    # Sessions

    def hold(self, log: LogModel, session: str) -> None:
        self.holds += 1
        log.held[session] = Hold(self.holds, self.mono_ms + self.lock_ms)

    def let_go(self, log: LogModel, session: str, count: bool) -> None:
        held = log.held.pop(session)
        for item in sorted(log.items.values(), key=lambda item: item.number):
            if item.lock and item.hold == held.number:
                if count:
                    self.failed(log, item)
                else:
                    item.lock = 0

    # Time

    def move(self, ms: int) -> None:
        """Time passes: locks end, what is due becomes active, what is too old goes."""
        self.wall_ms += ms
        self.mono_ms += ms
        for log in self.logs.values():
            for session in [session for session, held in log.held.items() if held.until_ms <= self.mono_ms]:
                self.let_go(log, session, True)
            for item in [*log.items.values(), *log.dead.values()]:
                if item.lock and item.until_ms <= self.mono_ms:
                    self.failed(log, item)
        for number in sorted(self.scheduled, key=lambda number: (self.scheduled[number].scheduled_ms, number)):
            if self.scheduled[number].scheduled_ms <= self.wall_ms:
                sent = self.scheduled.pop(number)
                counter = self.topic or self.logs[0]
                counter.counter += 1
                if self.topic is None:
                    self._enter(self.logs[0], counter.counter, sent)
                else:
                    self._publish(sent)
        for log in self.logs.values():
            for item in list(log.items.values()):
                if not item.alive(self.wall_ms) and not item.lock:
                    if self.dead_letter_expired:
                        self.kill(log, item)
                    else:
                        del log.items[item.number]
        self.ids = {name: at for name, at in self.ids.items() if self.wall_ms - at <= self.window_ms}
        self.commit()

    def visible(self, log_id: int, dead: bool) -> list[int]:
        """The numbers that a peek shows: what is committed, whatever happened to it since."""
        kept = self.committed
        log = kept.logs[log_id]
        if dead:
            return sorted(log.dead)
        numbers = [item.number for item in log.items.values() if item.alive(self.wall_ms)]
        return sorted(numbers + (list(kept.scheduled) if log_id == 0 else []))
