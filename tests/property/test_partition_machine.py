"""Random histories of one partition against a small model: nothing lost, nothing invented, counters true, order kept.

After each step the rows that were written are audited (see `audit`), so that no index, body or counter goes astray.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.property.partition_model import DEFERRED, Item, LogModel, Model, Sent
from tests.unit.partition.solo import Solo

from polybus.errors import InvalidOperation, MessageLockLost, MessageNotFound, SessionLockLost
from polybus.message.message import Message, build
from polybus.partition import sending, session_verbs, settling, transactions
from polybus.partition.entry import Entry
from polybus.partition.sessions import Session
from polybus.partition.settings import EntitySettings, LogSettings
from polybus.rules import CorrelationFilter, Rule, SqlAction, SqlFilter, TrueFilter

OUTCOMES = ["complete", "abandon", "defer", "dead-letter", "release", "renew"]
SESSIONS = st.sampled_from(["a", "b", "cc", ""])
SENTS = st.builds(
    dict,
    body=st.sampled_from([b"s", b"m" * 40, b"l" * 90]),
    message_id=st.sampled_from([None, "1", "2", "3", "4"]),
    session=SESSIONS,
    ttl_ms=st.sampled_from([None, None, None, 3_000, 15_000]),
    delay_ms=st.sampled_from([0, 0, 0, 0, 2_000, 9_000]),
    color=st.sampled_from(["none", "red", "blue"]),
)


def tiny(settings: EntitySettings, size: int) -> None:
    """Windows so small that everything has to be paged."""
    bounds = settings.bounds
    if size < 3:
        bounds.window_entries, bounds.page_entries, bounds.session_entries = size + 1, size + 1, size + 1
        bounds.window_bytes = bounds.session_bytes = 300 * (size + 1)
        bounds.sweep_rows, bounds.recent_ids, bounds.sessions = 2, 2, 1 + size
    bounds.separate_body_bytes, bounds.shared_body_bytes = 100, 60


class Open:
    """A transaction that is not discharged yet, and what the model has to do then."""

    def __init__(self) -> None:
        self.work = transactions.Work()
        self.settlements: list[tuple[LogModel, Item, int, str]] = []
        self.sends: list[Sent] = []


class Machine(RuleBasedStateMachine):
    kind = "queue"

    @initialize(
        window=st.integers(0, 3),
        ttl_ms=st.sampled_from([None, 20_000]),
        dead_letter_expired=st.booleans(),
        dedup=st.booleans(),
        index=st.sampled_from([0, 3]),
    )
    def start(self, window: int, ttl_ms: int | None, dead_letter_expired: bool, dedup: bool, index: int) -> None:
        config = EntitySettings("q", 16, self.kind == "topic")
        self.model: Model
        self.held: list[tuple[int, Entry]] = []
        self.sessions: dict[tuple[int, str], Session] = {}
        self.work = Open()
        self._configure(config, ttl_ms, dead_letter_expired, dedup)
        tiny(config, window)
        self.solo = Solo(config, index)
        now = self.solo.now
        model = self.model = Model(now.wall_ms, now.mono_ms)
        model.ttl_ms, model.dead_letter_expired = ttl_ms, dead_letter_expired
        model.window_ms = config.duplicate_window_ms
        if self.kind == "topic":
            model.topic = LogModel()
            model.logs = {4: LogModel(), 8: LogModel(), 12: LogModel()}
        else:
            model.logs = {0: LogModel(sessions=self.kind == "sessions")}
        model.commit()

    def _configure(self, config: EntitySettings, ttl_ms: int | None, dead_letter_expired: bool, dedup: bool) -> None:
        config.duplicate_window_ms = 8_000 if dedup else 0
        logs = [config.own]
        if self.kind == "topic":
            for number in (1, 2, 3):
                config.subscriptions[number] = LogSettings(number, f"q/Subscriptions/{number}")
                logs.append(config.subscriptions[number])
            config.rules.add(1, Rule("all", TrueFilter(), None, 0))
            config.rules.add(2, Rule("red", CorrelationFilter(properties={"color": "red"}), None, 0))
            config.rules.add(3, Rule("bright", SqlFilter("color IN ('red', 'blue')"), None, 0))
            config.rules.add(3, Rule("act", SqlFilter("color <> 'none'"), SqlAction("SET seen = 1"), 0))
        for log in logs:
            log.lock_ms, log.max_delivery_count = 10_000, 3
            log.dead_letter_expired = dead_letter_expired
            if ttl_ms is not None:
                log.ttl_ms = ttl_ms
        config.own.requires_session = self.kind == "sessions"

    def _number(self, sequence: int) -> int:
        assert sequence >> 48 == self.solo.index
        return sequence & (1 << 48) - 1

    def _sequence(self, number: int) -> int:
        return self.solo.index << 48 | number

    def _built(self, fields: dict[str, Any]) -> tuple[Sent, Message]:
        fields = dict(fields)
        delay_ms = fields.pop("delay_ms")
        sent = Sent(scheduled_ms=self.model.wall_ms + delay_ms if delay_ms else 0, **fields)
        message = build(
            sent.body,
            message_id=sent.message_id,
            session_id=sent.session,
            ttl_ms=sent.ttl_ms,
            scheduled_ms=sent.scheduled_ms or None,
            application={"color": sent.color},
        )
        return sent, message

    # Coming in

    @rule(sents=st.lists(SENTS, min_size=1, max_size=4))
    def send(self, sents: list[dict[str, Any]]) -> None:
        pairs = [self._built(fields) for fields in sents]
        expected = [self.model.send(sent) for sent, _ in pairs]
        self.solo.send_all([message for _, message in pairs], commit=False)
        numbers = self.solo.batch.replies[-1][2]
        assert isinstance(numbers, list)
        assert [self._number(number) if number else 0 for number in numbers] == expected

    @rule()
    def commit(self) -> None:
        self.solo.commit()
        self.model.commit()

    @rule()
    def crash(self) -> None:
        self.solo.crash()
        self.model.crash()
        self.held.clear()
        self.sessions.clear()
        self.work = Open()

    @rule(ms=st.sampled_from([1, 1_000, 2_500, 10_000, 30_000]))
    def move(self, ms: int) -> None:
        lost = self.solo.move(ms)
        gone = {session for log in self.model.logs.values() for session in log.held}
        self.model.move(ms)
        gone -= {session for log in self.model.logs.values() for session in log.held}
        assert {session.id for session in lost} == gone
        self.sessions = {key: session for key, session in self.sessions.items() if not session.lost}

    @precondition(lambda self: self.model.scheduled)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.model.scheduled)))
        self.solo.commit()
        self.model.commit()
        self.solo.cancel(self._sequence(number))
        self.model.cancel(number)
        self.model.commit()

    # Going out

    def _pick_log(self, data: st.DataObject) -> tuple[int, LogModel]:
        log_id = data.draw(st.sampled_from(sorted(self.model.logs)))
        return log_id, self.model.logs[log_id]

    @precondition(lambda self: self.kind != "sessions")
    @rule(data=st.data(), away=st.sampled_from([False, False, False, True]))
    def take(self, data: st.DataObject, away: bool) -> None:
        log_id, log = self._pick_log(data)
        expected = log.next_item(self.model.wall_ms)
        entry = self.solo.take_away(log_id) if away else self.solo.take(log_id)
        assert (entry is None) == (expected is None), (entry, expected)
        if entry is not None and expected is not None:
            self._taken(log_id, log, entry, expected, away)

    def _taken(self, log_id: int, log: LogModel, entry: Entry, expected: Item, away: bool) -> None:
        assert self._number(entry.sequence) == expected.number
        assert entry.loaded().body()[0][1] == expected.sent.body
        assert (entry.delivery_count, entry.expires_ms) == (expected.count, expected.expires_ms)
        if away:
            self.model.complete(log, expected)
        else:
            self.model.locked(log, expected, entry.lock)
            self.held.append((log_id, entry))

    @rule(data=st.data())
    def take_dead(self, data: st.DataObject) -> None:
        log_id, log = self._pick_log(data)
        entry = self.solo.take(log_id + 1)
        there = {item.number: item for item in log.dead.values() if item.free(self.model.wall_ms) and not item.moving}
        assert (entry is None) == (not there)
        if entry is not None:
            item = there[self._number(entry.sequence)]
            assert entry.loaded().body()[0][1] == item.sent.body
            item.lock, item.until_ms = entry.lock, self.model.mono_ms + self.model.lock_ms
            self.held.append((log_id, entry))

    @rule(
        data=st.data(),
        sents=st.lists(SENTS, max_size=3),
        outcomes=st.lists(st.sampled_from([*OUTCOMES, "keep", "join", "fetch"]), min_size=1, max_size=6),
    )
    def receive(self, data: st.DataObject, sents: list[dict[str, Any]], outcomes: list[str]) -> None:
        """Messages come and a receiver works on them: left to chance, hardly one would ever be settled."""
        if sents:
            self.send(sents)
        self.commit()
        for outcome in outcomes:
            before = len(self.held)
            self._take_one(data, outcome)
            if len(self.held) == before or outcome == "keep":
                continue
            if outcome == "join":
                self._join(before, data.draw(st.sampled_from(OUTCOMES[:4])))
            elif outcome == "fetch":
                self._settle(before, data.draw(st.sampled_from(OUTCOMES)))
            else:
                self._settle(before, outcome)
        if self.work.settlements:
            self._end(data.draw(st.sampled_from(["now", "late", "not", "open"])))

    def _end(self, how: str) -> None:
        """The transaction is committed, now or when locks have run out; or rolled back; or it stays open."""
        if how == "late":
            self.move(10_000)
        if how != "open":
            self.discharge(how != "not")

    def _take_one(self, data: st.DataObject, outcome: str) -> None:
        """The next message, or a deferred one."""
        if self.kind != "sessions":
            if outcome == "fetch":
                self.take_deferred(data, True, False)
            else:
                self.take(data, False)
        elif not self.sessions:
            self.accept_next()
        elif outcome == "fetch":
            self.take_deferred_from(data, True)
        else:
            self.take_from(data, False)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES))
    def settle(self, data: st.DataObject, outcome: str) -> None:
        self._settle(data.draw(st.integers(0, len(self.held) - 1)), outcome)

    def _pick_held(self, place: int) -> tuple[LogModel, Item | None, Entry, int]:
        """A delivery that was made; the item is None where its lock has ended."""
        log_id, entry = self.held.pop(place)
        log = self.model.logs[log_id]
        items = [*log.items.values(), *log.dead.values()]
        lock = entry.lock
        item = next((item for item in items if lock and item.lock == lock), None)
        return log, item, entry, lock

    def _settle(self, place: int, outcome: str) -> None:
        log, item, entry, lock = self._pick_held(place)
        if item is None or item.until_ms <= self.model.mono_ms:
            with pytest.raises((MessageLockLost, SessionLockLost)):
                settling.complete(self.solo.broker, entry.log, lock, self.solo.now, None, None)
            return
        if entry.transaction is not None:
            with pytest.raises(InvalidOperation):
                settling.complete(self.solo.broker, entry.log, lock, self.solo.now, None, None)
            return
        dead = log.dead.get(item.number) is item
        if outcome == "complete":
            self.solo.complete(entry, commit=False)
            self.model.complete(log, item)
        elif outcome == "abandon":
            self.solo.abandon(entry, commit=False)
            self.model.failed(log, item)
        elif outcome == "defer":
            self.solo.defer(entry, commit=False)
            self.model.defer(item)
        elif outcome == "dead-letter" and not dead:
            self.solo.dead_letter(entry, commit=False)
            self.model.kill(log, item)
        elif outcome == "release":
            self.solo.release(entry)
            item.lock = 0
        elif outcome == "renew" and not log.sessions:
            settling.renew(self.solo.broker, entry.log, lock, self.solo.now)
            item.until_ms = self.model.mono_ms + self.model.lock_ms
            self.held.append((0 if 0 in self.model.logs else entry.log.id - entry.log.kind, entry))

    # Transactions

    @precondition(lambda self: self.held)
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES[:4]))
    def settle_in_transaction(self, data: st.DataObject, outcome: str) -> None:
        self._join(data.draw(st.integers(0, len(self.held) - 1)), outcome)

    def _join(self, place: int, outcome: str) -> None:
        """Nothing happens yet; the message stays locked, and nobody else can settle it."""
        log, item, entry, lock = self._pick_held(place)
        if item is None or item.until_ms <= self.model.mono_ms or entry.transaction is not None:
            return
        if outcome == "dead-letter" and log.dead.get(item.number) is item:
            return
        transactions.hold(self.solo.broker, self.work.work, entry.log, lock, self.solo.now, outcome, "r", "d")
        self.work.settlements.append((log, item, lock, outcome))
        self.held.append((entry.log.id - entry.log.kind, entry))

    @rule(sents=st.lists(SENTS, min_size=1, max_size=3))
    def send_in_transaction(self, sents: list[dict[str, Any]]) -> None:
        for fields in sents:
            sent, message = self._built(fields)
            self.work.sends.append(sent)
            self.work.work.sends.append(message)

    @precondition(lambda self: self.work.settlements or self.work.sends)
    @rule(commit=st.sampled_from([True, True, False]))
    def discharge(self, commit: bool) -> None:
        """Everything happens, or nothing: a lock that has ended undoes it all."""
        done, self.work = self.work, Open()
        broker, now = self.solo.broker, self.solo.now
        if not commit:
            transactions.roll_back(done.work)
            return
        keys = sending.rows_needed(broker, done.work.sends)
        rows: dict[bytes, object] = {key: self.solo.rows.get(key) for key in keys}
        if any(item.lock != lock or item.until_ms <= now.mono_ms for _, item, lock, _ in done.settlements):
            with pytest.raises((MessageLockLost, SessionLockLost)):
                transactions.commit(broker, done.work, now, rows, self.solo.reply, "commit")
            transactions.roll_back(done.work)
            return
        transactions.commit(broker, done.work, now, rows, self.solo.reply, "commit")
        for log, item, _, outcome in done.settlements:
            self._settled(log, item, outcome)
        for sent in done.sends:
            self.model.send(sent)

    def _settled(self, log: LogModel, item: Item, outcome: str) -> None:
        if outcome == "complete":
            self.model.complete(log, item)
        elif outcome == "abandon":
            self.model.failed(log, item)
        elif outcome == "defer":
            self.model.defer(item)
        else:
            self.model.kill(log, item)

    def _pick_number(self, data: st.DataObject, items: dict[int, Item]) -> int:
        """Of a deferred message where there is one, mostly."""
        deferred = [number for number, item in items.items() if item.state == DEFERRED]
        return data.draw(st.sampled_from([*sorted(deferred), *sorted(deferred), *sorted(items), 99]))

    @precondition(lambda self: self.kind != "sessions")
    @rule(data=st.data(), lock=st.booleans(), dead=st.booleans())
    def take_deferred(self, data: st.DataObject, lock: bool, dead: bool) -> None:
        log_id, log = self._pick_log(data)
        items = log.dead if dead else log.items
        number = self._pick_number(data, items)
        item = items.get(number)
        if item is None or item.state != DEFERRED or item.lock:
            with pytest.raises(MessageNotFound):
                self.solo.take_deferred(self._sequence(number), lock=lock, log_id=log_id + dead)
            return
        entry = self.solo.take_deferred(self._sequence(number), lock=lock, log_id=log_id + dead)[0]
        assert (entry.delivery_count, entry.loaded().body()[0][1]) == (item.count, item.sent.body)
        if lock:
            item.lock, item.until_ms = entry.lock, self.model.mono_ms + self.model.lock_ms
            self.held.append((log_id, entry))
        else:
            self.model.complete(log, item)

    @rule(data=st.data(), dead=st.booleans(), count=st.integers(1, 4))
    def peek(self, data: st.DataObject, dead: bool, count: int) -> None:
        """Peeking on and on shows everything once, in order."""
        log_id, _ = self._pick_log(data)
        expected = self.model.visible(log_id, dead)
        seen: list[int] = []
        first = 1
        while peeked := self.solo.peek(self._sequence(first), count, 200, log_id=log_id + dead):
            seen += [self._number(item.marks.sequence) for item in peeked]
            first = seen[-1] + 1
        assert seen == expected

    # Sessions

    @precondition(lambda self: self.kind == "sessions")
    @rule(session_id=SESSIONS)
    def accept(self, session_id: str) -> None:
        log = self.model.logs[0]
        if session_id not in log.held:
            self.sessions[0, session_id] = self.solo.accept(session_id)
            self.model.hold(log, session_id)

    @precondition(lambda self: self.kind == "sessions")
    @rule()
    def accept_next(self) -> None:
        log = self.model.logs[0]
        session = self.solo.accept_next()
        if session is None:
            assert not log.waiting(self.model.wall_ms)
        else:
            assert session.id in log.waiting(self.model.wall_ms)
            self.sessions[0, session.id] = session
            self.model.hold(log, session.id)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), away=st.sampled_from([False, False, False, True]))
    def take_from(self, data: st.DataObject, away: bool) -> None:
        log = self.model.logs[0]
        session = self.sessions[data.draw(st.sampled_from(sorted(self.sessions)))]
        expected = log.next_item(self.model.wall_ms, session.id)
        entry = self.solo.take_from(session, not away)
        assert (entry is None) == (expected is None), (entry, expected)
        if entry is not None and expected is not None:
            self._taken(0, log, entry, expected, away)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), count=st.booleans())
    def release_session(self, data: st.DataObject, count: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.sessions)))
        session_verbs.release(self.solo.broker, self.solo.log(), self.sessions.pop(key), self.solo.now, count)
        self.model.let_go(self.model.logs[0], key[1], count)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def renew_session(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.sessions)))
        session_verbs.renew(self.solo.log(), self.sessions[key], self.solo.now)
        log = self.model.logs[0]
        hold = log.held[key[1]]
        hold.until_ms = self.model.mono_ms + self.model.lock_ms
        for item in log.items.values():
            if item.lock and item.hold == hold.number:
                item.until_ms = hold.until_ms

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), lock=st.booleans())
    def take_deferred_from(self, data: st.DataObject, lock: bool) -> None:
        session = self.sessions[data.draw(st.sampled_from(sorted(self.sessions)))]
        log = self.model.logs[0]
        number = self._pick_number(data, log.items)
        item = log.items.get(number)
        steps = session_verbs.take_deferred(
            self.solo.broker, self.solo.log(), session, self.solo.now, [self._sequence(number)], lock
        )
        if item is None or item.state != DEFERRED or item.lock or item.sent.session != session.id:
            with pytest.raises(MessageNotFound):
                self.solo.run(steps)
            return
        entry = self.solo.run(steps)[0]
        assert entry.delivery_count == item.count
        if lock:
            self.model.locked(log, item, entry.lock)
            self.held.append((0, entry))
        else:
            self.model.complete(log, item)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), state=st.sampled_from([None, b"one", b"three"]))
    def set_state(self, data: st.DataObject, state: bytes | None) -> None:
        session = self.sessions[data.draw(st.sampled_from(sorted(self.sessions)))]
        self.solo.run(
            session_verbs.set_state(
                self.solo.broker, self.solo.log(), session, state, self.solo.now, self.solo.reply, "state"
            )
        )
        states = self.model.logs[0].states
        states.pop(session.id, None)
        if state is not None:
            states[session.id] = state

    # What must always hold

    @invariant()
    def counters_are_true(self) -> None:
        if not hasattr(self, "solo"):
            return
        broker = self.solo.broker
        assert broker.scheduled == len(self.model.scheduled)
        for log_id, expected in self.model.logs.items():
            log, dead = self.solo.log(log_id), self.solo.log(log_id + 1)
            assert (log.active, log.deferred) == (
                len(expected.items) - len(expected.in_state(DEFERRED)),
                len(expected.in_state(DEFERRED)),
            )
            assert dead.active + dead.deferred == len(expected.dead)
            locked = [item for item in (*expected.items.values(), *expected.dead.values()) if item.lock]
            assert log.locked + dead.locked == len(locked)

    @invariant()
    def states_are_true(self) -> None:
        if not hasattr(self, "solo") or self.kind != "sessions":
            return
        for session in ("a", "b"):
            assert self.solo.run(session_verbs.get_state(self.solo.log(), session)) == self.model.logs[0].states.get(
                session
            )

    def teardown(self) -> None:
        """Drained to the last message, only counters are left."""
        if not hasattr(self, "solo"):
            return
        solo = self.solo
        solo.crash()
        solo.move(10_000)
        for log_id in self.model.logs:
            for each in (log_id, log_id + 1):
                numbers = [peeked.marks for peeked in solo.peek(0, 1000, log_id=each)]
                resting = [marks.sequence for marks in numbers if marks.state == 1]
                if resting:
                    solo.take_deferred(*resting, lock=False, log_id=each)
                waiting = [marks.sequence for marks in numbers if marks.state == 2]
                if waiting:
                    solo.cancel(*waiting)
                self._empty(each)
        solo.move(60_000)
        assert solo.tables() in ("", "N")
        assert solo.broker.size == sum(len(value) for key, value in solo.rows.items() if key[7:8] == b"N")

    def _empty(self, log_id: int) -> None:
        solo = self.solo
        if solo.log(log_id).sessions is None:
            while solo.take_away(log_id) is not None:
                pass
        else:
            while (session := solo.accept_next(log_id=log_id)) is not None:
                while solo.take_from(session, lock=False, log_id=log_id) is not None:
                    pass
                solo.release_session(session, log_id=log_id)
        solo.commit()


class Sessions(Machine):
    kind = "sessions"


class Topic(Machine):
    kind = "topic"


CHECKS = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("machine", [Machine, Sessions, Topic])
def test_random_histories_follow_the_model(machine: type[Machine]) -> None:
    run_state_machine_as_test(machine, settings=CHECKS)
