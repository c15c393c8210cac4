"""Reads that are answered late: rows as they were when a verb asked, handed over after other verbs and commits.

Verbs are interleaved at random at every read, and commits are taken apart into sealing, writing and telling. Whatever
the order: no message is held twice at a time, none that was settled comes back, none is lost, sessions keep their
order, and every batch that is written passes the audit.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from tests.unit.partition.solo import Pending, Solo

from polybus.errors import MessageNotFound, PolybusError, SessionCannotBeLocked, SessionLockLost
from polybus.message.message import build
from polybus.partition import moving, receiving, session_verbs, upkeep
from polybus.partition.entry import Entry
from polybus.partition.sessions import Session
from polybus.partition.settings import EntitySettings, LogSettings
from polybus.rules import Rule, TrueFilter

EXPECTED_ERRORS = (MessageNotFound, SessionCannotBeLocked, SessionLockLost)
OUTCOMES = ["complete", "abandon", "defer", "dead-letter", "release"]
Key = tuple[int, bytes]
"""A copy of a message: the log it was sent to, and its body."""


class Verb:
    """A verb under way, and what to do with its result."""

    def __init__(self, name: str, pending: Pending, log_id: int) -> None:
        self.name = name
        self.pending = pending
        self.log_id = log_id


class Late(RuleBasedStateMachine):
    kind = "queue"

    @initialize(size=st.integers(0, 2), expires=st.booleans(), dead=st.booleans())
    def start(self, size: int, expires: bool, dead: bool) -> None:
        config = EntitySettings("q", 1, self.kind == "topic")
        bounds = config.bounds
        bounds.window_entries = bounds.page_entries = bounds.session_entries = size + 1
        bounds.window_bytes = bounds.session_bytes = 300 * (size + 1)
        bounds.sweep_rows, bounds.sessions = 2, 2
        bounds.separate_body_bytes, bounds.shared_body_bytes = 100, 20
        config.own.requires_session = self.kind == "sessions"
        self.logs = [0]
        if self.kind == "topic":
            self.logs = [4, 8]
            for number in (1, 2):
                config.subscriptions[number] = LogSettings(number, f"q/Subscriptions/{number}")
                config.rules.add(number, Rule("all", TrueFilter(), None, 0))
        for own in (config.own, *config.subscriptions.values()):
            own.lock_ms, own.max_delivery_count, own.dead_letter_expired = 10_000, 4, dead
            if expires:
                own.ttl_ms = 25_000
        self.solo = Solo(config)
        self.solo.routes["other"] = (9, 0)
        self.verbs: list[Verb] = []
        self.held: dict[Key, Entry] = {}
        self.sent = 0
        self.there: set[Key] = set()
        self.over: set[Key] = set()
        """Completed or cancelled: never to be seen again."""
        self.away: set[Key] = set()
        """Moved, expired or dead: no longer in its log."""
        self.seen: set[int] = set()
        """Numbers that a session has given out: only these may come after higher ones."""
        self.last_seen: dict[str, int] = {}
        self.sessions: list[Session] = []
        self.scheduled: dict[int, bytes] = {}

    # Commands that ask for nothing

    @rule(
        session=st.sampled_from(["a", "b"]),
        large=st.booleans(),
        delay_ms=st.sampled_from([0, 0, 0, 1_500]),
        count=st.integers(1, 2),
    )
    def send(self, session: str, large: bool, delay_ms: int, count: int) -> None:
        for _ in range(count):
            self._send(session, large, delay_ms)

    def _send(self, session: str, large: bool, delay_ms: int) -> None:
        self.sent += 1
        body = b"%05d" % self.sent + b"x" * (90 if large else 0)
        due_ms = self.solo.now.wall_ms + delay_ms if delay_ms else None
        self.solo.send_all([build(body, session_id=session, scheduled_ms=due_ms)], commit=False)
        if delay_ms:
            self.scheduled[self.solo.batch.replies[-1][2][0]] = body  # type: ignore[index]
        else:
            self.there |= {(log_id, body) for log_id in self.logs}

    @rule()
    def seal(self) -> None:
        self.solo.seal()

    @precondition(lambda self: self.solo.sealed)
    @rule()
    def write(self) -> None:
        self.solo.write()

    @precondition(lambda self: self.solo.written)
    @rule()
    def land(self) -> None:
        self.solo.land()

    @rule()
    def commit(self) -> None:
        self.solo.commit()

    @rule(ms=st.sampled_from([1, 1_000, 6_000, 12_000]))
    def move_time(self, ms: int) -> None:
        self.solo.pass_time(ms)
        upkeep.expire_locks(self.solo.broker, self.solo.now)
        self.sessions = [session for session in self.sessions if not session.lost]

    def _delivered(self, log_id: int, entry: Entry, away: bool = False) -> None:
        body = entry.loaded().body()[0][1]
        assert isinstance(body, bytes)
        key = (log_id, body)
        assert key in self.there or body in self.scheduled.values(), "a message was invented"
        self.there.add(key)
        assert key not in self.over, "a settled message came back"
        other = self.held.get(key)
        assert other is None or not other.lock or other is entry, "a message is held twice"
        if away:
            self.over.add(key)
            return
        self.held[key] = entry
        assert self.solo.broker.locks[entry.lock] is entry

    @precondition(lambda self: self.kind != "sessions")
    @rule(data=st.data(), away=st.sampled_from([False, False, True]))
    def take(self, data: st.DataObject, away: bool) -> None:
        log_id = data.draw(st.sampled_from(self.logs))
        verb = receiving.take_away(self.solo.broker, self.solo.log(log_id), self.solo.now) if away else None
        entry = verb if away else receiving.take(self.solo.broker, self.solo.log(log_id), self.solo.now, None)
        if entry is not None:
            self._delivered(log_id, entry, away)

    @rule(
        data=st.data(), session=st.sampled_from(["a", "b"]), outcomes=st.lists(st.sampled_from(OUTCOMES), max_size=3)
    )
    def receive(self, data: st.DataObject, session: str, outcomes: list[str]) -> None:
        """Messages come and a receiver works on them: left to chance, hardly one would ever be settled."""
        self.send(session, data.draw(st.booleans()), 0, 2)
        self.solo.commit()
        if self.kind == "sessions" and not self.sessions:
            self.accept(session)
        for outcome in outcomes:
            before = set(self.held)
            if self.kind != "sessions":
                self.take(data, False)
            elif self.sessions:
                self.take_from(data, False)
            for key in sorted(set(self.held) - before):
                self._settle(key, outcome)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES))
    def settle(self, data: st.DataObject, outcome: str) -> None:
        self._settle(data.draw(st.sampled_from(sorted(self.held))), outcome)

    def _settle(self, key: Key, outcome: str) -> None:
        entry = self.held.pop(key)
        if not entry.lock or entry.locked_until_ms <= self.solo.now.mono_ms:
            return
        if outcome == "complete":
            self.solo.complete(entry, commit=False)
            self.over.add(key)
        elif outcome == "abandon":
            self.solo.abandon(entry, commit=False)
        elif outcome == "defer":
            self.solo.defer(entry, commit=False)
        elif outcome == "dead-letter":
            self.solo.dead_letter(entry, commit=False)
        else:
            self.solo.release(entry)

    # Verbs that ask for rows

    def _begin(self, name: str, steps: Generator[Any, Any, Any], log_id: int = 0) -> None:
        self._go_on(Verb(name, self.solo.begin(steps), log_id))

    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        solo = self.solo
        broker, now = solo.broker, solo.now
        log_id = data.draw(st.sampled_from(self.logs))
        log = solo.log(log_id)
        numbers = data.draw(st.lists(st.integers(1, max(log.counter, 1)), min_size=1, max_size=3))
        choices = [
            "sweep",
            "activate",
            "move",
            "cancel",
            "peek",
            "page" if self.kind != "sessions" else "accept-next",
        ]
        choices += ["deferred"] if self.kind != "sessions" else ["accept", "session-page", "session-deferred"]
        name = data.draw(st.sampled_from(choices))
        session = data.draw(st.sampled_from(self.sessions)) if self.sessions and name.startswith("session") else None
        if name == "sweep" and broker.expiry_due_ms <= now.wall_ms and not broker.sweeping:
            self._begin(name, upkeep.sweep(broker, now))
        elif name == "activate" and broker.due_ms <= now.wall_ms and not broker.activating:
            self._begin(name, upkeep.activate(broker, now))
        elif name == "move":
            self._begin(
                name, moving.move(broker, log, now, numbers, {}, {}, "other", 0, solo.reply, ("move", log_id))
            )
        elif name == "cancel":
            self._begin(name, upkeep.cancel(broker, now, numbers, self._cancelled, numbers))
        elif name == "peek":
            self._begin(name, receiving.peek(broker, log, now, numbers[0], 3, 200, None))
        elif name == "page" and log.wants_page():
            self._begin(name, receiving.load_page(broker, log), log_id)
        elif name == "deferred":
            steps = receiving.take_deferred(broker, log, now, numbers, True, None, None)
            self._begin(name, steps, log_id)
        elif name == "accept-next":
            self._begin(name, session_verbs.accept_next(broker, log, now, "me"))
        elif name == "accept":
            self._begin(
                "accept-next", session_verbs.accept(broker, log, data.draw(st.sampled_from(["a", "b"])), now, "me")
            )
        elif name == "session-page" and session is not None and session.wants_page():
            self._begin(name, session_verbs.load_page(broker, log, session))
        elif name == "session-deferred" and session is not None:
            self._begin("deferred", session_verbs.take_deferred(broker, log, session, now, numbers, True))

    def _cancelled(self, context: object, result: object, error: PolybusError | None) -> None:
        assert isinstance(context, list)
        self.over |= {(log_id, self.scheduled[number]) for log_id in self.logs for number in context}

    @precondition(lambda self: self.verbs)
    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        verb = self.verbs.pop(data.draw(st.integers(0, len(self.verbs) - 1)))
        verb.pending.step()
        self._go_on(verb)

    @precondition(lambda self: self.verbs)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        """The store does not answer in time."""
        self.verbs.pop(data.draw(st.integers(0, len(self.verbs) - 1))).pending.drop()

    def _go_on(self, verb: Verb) -> None:
        pending = verb.pending
        if not pending.done:
            self.verbs.append(verb)
        elif pending.error is not None:
            assert isinstance(pending.error, EXPECTED_ERRORS), pending.error
        elif verb.name == "deferred":
            for entry in pending.result:
                self._delivered(verb.log_id, entry)
        elif verb.name == "accept-next" and pending.result is not None:
            assert pending.result not in self.sessions
            assert [s.id for s in self.sessions if not s.lost].count(pending.result.id) == 0, (
                "a session is held twice"
            )
            self.sessions.append(pending.result)

    @precondition(lambda self: self.kind == "sessions")
    @rule(session=st.sampled_from(["a", "b"]))
    def accept(self, session: str) -> None:
        """At once, so that messages arrive in sessions that are held."""
        solo = self.solo
        solo.commit()
        pending = solo.begin(session_verbs.accept(solo.broker, solo.log(), session, solo.now, "me"))
        while not pending.done:
            pending.step()
        self._go_on(Verb("accept-next", pending, 0))

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), away=st.sampled_from([False, False, True]))
    def take_from(self, data: st.DataObject, away: bool) -> None:
        session = data.draw(st.sampled_from(self.sessions))
        entry = session_verbs.take(self.solo.broker, session, self.solo.now, not away)
        if entry is not None:
            last = self.last_seen.get(session.id, 0)
            assert entry.sequence > last or entry.sequence in self.seen, "a session is out of order"
            self.last_seen[session.id] = max(entry.sequence, last)
            self.seen.add(entry.sequence)
            self._delivered(0, entry, away)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), count=st.booleans())
    def release_session(self, data: st.DataObject, count: bool) -> None:
        session = self.sessions.pop(data.draw(st.integers(0, len(self.sessions) - 1)))
        session_verbs.release(self.solo.broker, self.solo.log(), session, self.solo.now, count)

    # The end

    def teardown(self) -> None:
        if not hasattr(self, "solo"):
            return
        solo = self.solo
        for verb in self.verbs:
            try:
                verb.pending.finish()
            except EXPECTED_ERRORS:
                continue
        solo.commit()
        assert solo.broker.bodies.memory.keys() <= self._bodies_in_memory(), "a body stays in memory for nobody"
        before = self._contents()
        solo.crash()
        assert self._contents() == before
        solo.move(1)
        found: list[Key] = []
        for log_id in self.logs:
            found += self._drain(log_id)
        solo.move(60_000)
        assert solo.tables() in ("", "F")
        assert len(found) == len(set(found)), "a message is there twice"
        assert not set(found) & self.over
        moved = [result for context, result, _ in solo.replies if isinstance(context, tuple) and context[0] == "move"]
        missing = self.there - set(found) - self.over
        assert len(missing) <= sum(len(result.moved) for result in moved) + self._expired()

    def _expired(self) -> int:
        """Whether messages can have expired without a trace."""
        own = self.solo.settings.own
        return 0 if own.dead_letter_expired or own.ttl_ms > 1 << 60 else len(self.there)

    def _bodies_in_memory(self) -> set[int]:
        entries: list[Entry] = []
        for log in self.solo.broker.logs.values():
            entries += [*log.memory.values(), *log.deferrals.entries.values()]
        return {entry.body for entry in entries}

    def _contents(self) -> dict[int, list[int]]:
        return {each: self.solo.numbers(each) for log_id in self.logs for each in (log_id, log_id + 1)}

    def _drain(self, log_id: int) -> list[Key]:
        solo = self.solo
        bodies: list[Any] = []
        for each in (log_id, log_id + 1):
            scheduled = solo.peek(count=1_000) if self.kind == "topic" else []
            resting = [
                peeked.marks.sequence for peeked in solo.peek(count=1_000, log_id=each) if peeked.marks.state == 1
            ]
            if resting:
                bodies += [
                    entry.loaded().body()[0][1] for entry in solo.take_deferred(*resting, lock=False, log_id=each)
                ]
            shown = [*solo.peek(count=1_000, log_id=each), *scheduled]
            waiting = [peeked.marks.sequence for peeked in shown if peeked.marks.state == 2]
            if waiting:
                solo.cancel(*waiting)
            if solo.log(each).sessions is None:
                while (entry := solo.take_away(each)) is not None:
                    bodies.append(entry.loaded().body()[0][1])
            else:
                bodies += self._drain_sessions()
        solo.commit()
        return [(log_id, body) for body in bodies]

    def _drain_sessions(self) -> list[Any]:
        bodies: list[Any] = []
        while (session := self.solo.accept_next()) is not None:
            last = 0
            while (entry := self.solo.take_from(session, lock=False)) is not None:
                assert entry.sequence > last, "a session is out of order"
                last = entry.sequence
                bodies.append(entry.loaded().body()[0][1])
            self.solo.release_session(session)
        return bodies


class LateSessions(Late):
    kind = "sessions"


class LateTopic(Late):
    kind = "topic"


CHECKS = settings(
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("machine", [Late, LateSessions, LateTopic])
def test_late_answers_change_nothing(machine: type[Late]) -> None:
    run_state_machine_as_test(machine, settings=CHECKS)
