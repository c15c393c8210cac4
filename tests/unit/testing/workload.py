"""A seeded workload of several clients on the reference bus, which records what they do and see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from polybus.errors import BusError
from polybus.testing.history import DEAD_LETTER_QUEUE, FAILED, OK, UNKNOWN, History, Op, Recorder, digest
from polybus.testing.reference import Delivery, Message, ReferenceBus, ReferencePartition, SessionLock, Ticket
from polybus.testing.sim_loop import SimClock, SimLoop
from polybus.testing.verifier import EntityOptions, FinalState
from polybus.testing.verifier.contents import ACTIVE, DEAD_LETTER, DEFERRED

QUEUES = {
    "plain": EntityOptions(lock_ms=4_000, max_delivery_count=3),
    "parted": EntityOptions(partitions=4, lock_ms=4_000),
    "sessions": EntityOptions(partitions=4, sessions=True, lock_ms=3_000, max_delivery_count=8),
    "dedup": EntityOptions(partitions=4, dedup_window_ms=8_000, lock_ms=4_000),
    "short": EntityOptions(ttl_ms=5_000, lock_ms=1_500),
    "buried": EntityOptions(
        partitions=2, ttl_ms=5_000, dead_letter_on_expiry=True, lock_ms=1_500, max_delivery_count=2
    ),
}
KEYS = ("red", "green", "blue")
SESSIONS = ("s1", "s2", "s3", "s4", "s5")


@dataclass
class Held:
    """A delivery that a client has not settled yet."""

    entity: str
    delivery: Delivery


@dataclass
class Client:
    recorder: Recorder
    waits: Ticket | None = None
    ended: Callable[[Ticket], None] | None = None
    held: list[Held] = field(default_factory=list)
    deferred: list[tuple[str, Message]] = field(default_factory=list)
    scheduled: list[tuple[str, int, str]] = field(default_factory=list)
    session: tuple[str, SessionLock] | None = None
    transaction: str | None = None


class Workload:
    """Each step one client does something, or time passes, or a partition syncs, or something breaks."""

    def __init__(self, seed: int, bus_class: type[ReferenceBus] = ReferenceBus, clients: int = 4) -> None:
        self.rng = Random(seed)
        self.loop = SimLoop(seed)
        self.clock = SimClock(self.loop)
        self.history = History()
        self.bus = bus_class(QUEUES, self.clock)
        self.clients = [Client(Recorder(f"c{n}", self.clock, self.history)) for n in range(clients)]
        self._attempted: tuple[str, str, dict[str, Any]] = ("", "", {})
        self.harness = Recorder("harness", self.clock, self.history)
        self._sent = 0
        self._transactions = 0
        self._recent_ids: list[str] = []

    def run(self, steps: int) -> tuple[History, FinalState]:
        for _ in range(steps):
            self._step()
        self._come_to_rest()
        return self.history, self.bus.contents()

    def _step(self) -> None:
        draw = self.rng.random()
        if draw < 0.25:
            self._sync_some()
        elif draw < 0.28:
            self.loop.run_for(self.rng.choice((0.001, 0.01, 0.2, 1.0)))
            self._recover_some()
        elif draw < 0.285:
            self._jump()
        elif draw < 0.305:
            self._break_something()
        else:
            self._act(self.rng.choice(self.clients))

    def _come_to_rest(self) -> None:
        for name, partitions in self.bus.partitions.items():
            for partition in partitions:
                if not partition.up:
                    self.bus.recover(name, partition.index)
        for client in self.clients:
            if client.transaction is not None:
                self._rollback(client)
        self.loop.run_for(20.0)
        for partitions in self.bus.partitions.values():
            for partition in partitions:
                partition.sync()
        self._collect()

    # The environment

    def _sync_some(self) -> None:
        for partitions in self.bus.partitions.values():
            for partition in partitions:
                if partition.up and self.rng.random() < 0.4:
                    partition.sync()
        self._collect()

    def _break_something(self) -> None:
        draw = self.rng.random()
        if draw < 0.2:
            self._restart()
        else:
            up = [p for ps in self.bus.partitions.values() for p in ps if p.up]
            partition = self.rng.choice([p for p in up if p.waiting] or up)
            self._fence(partition.name, partition.index)
        self._collect()

    def _recover_some(self) -> None:
        """Stores come back sooner than they fail, so that most of the run has something to do."""
        for name, partitions in self.bus.partitions.items():
            for partition in partitions:
                if not partition.up and self.rng.random() < 0.5:
                    self.bus.recover(name, partition.index)

    def _jump(self) -> None:
        by_ms = self.rng.choice((-2_000, -50, 50, 1_000))
        self.harness.record(Op.CLOCK_MOVED, detail=f"the wall clock is about to jump by {by_ms} ms")
        self.clock.jump_wall(by_ms)

    def _written(self, name: str, index: int) -> int:
        return self.rng.randint(0, len(self.bus.partitions[name][index].waiting))

    def _fence(self, name: str, index: int) -> None:
        self.bus.fence(name, index, self._written(name, index))
        self.harness.record(Op.FENCED, name, partitions=(index,))

    def _restart(self) -> None:
        places = [(name, p.index) for name, ps in self.bus.partitions.items() for p in ps]
        self.bus.restart({place: self._written(*place) for place in places})
        self.harness.record(Op.RESTART)
        for client in self.clients:
            client.session = client.transaction = None

    def _collect(self) -> None:
        for client in self.clients:
            ticket, ended = client.waits, client.ended
            if ticket is not None and ticket.outcome is not None and ended is not None:
                client.waits = client.ended = None
                ended(ticket)

    # The clients

    def _act(self, client: Client) -> None:
        if client.waits is not None:
            return
        actions = (
            (self._send, 20),
            (self._send_batch, 4),
            (self._schedule, 5),
            (self._cancel, 4),
            (self._resend, 6),
            (self._receive, 20),
            (self._take, 3),
            (self._settle, 25),
            (self._settle_again, 2),
            (self._renew, 5),
            (self._use_session, 40),
            (self._receive_deferred, 5),
            (self._receive_dead, 5),
            (self._transact, 12),
        )
        action = self.rng.choices([a for a, _ in actions], [w for _, w in actions])[0]
        try:
            action(client)
        except BusError as error:
            op, entity, values = self._attempted
            client.recorder.record(op, entity, FAILED, detail=type(error).__name__, **values)

    def _attempt(self, op: str, entity: str, **values: Any) -> None:
        """Says what is being tried, so that a refusal can be recorded."""
        self._attempted = (op, entity, values)

    def _wait(self, client: Client, ticket: Ticket, ended: Callable[[Ticket], None]) -> None:
        client.waits, client.ended = ticket, ended

    def _record_when_known(self, client: Client, ticket: Ticket, ops: list[tuple[str, str, dict[str, Any]]]) -> None:
        began = client.recorder.begin()

        def ended(ticket: Ticket) -> None:
            for op, entity, values in ops:
                client.recorder.record(op, entity, ticket.outcome or UNKNOWN, began=began, **values)

        self._wait(client, ticket, ended)

    def _message(self, queue: str, due_ms: int = 0) -> Message:
        self._sent += 1
        name = f"m{self._sent}"
        session = self.rng.choice(SESSIONS) if QUEUES[queue].sessions else None
        keyed = session is None and QUEUES[queue].dedup_window_ms is None and self.rng.random() < 0.5
        key = self.rng.choice(KEYS) if keyed else None
        if queue == "dedup":
            self._recent_ids = [*self._recent_ids[-5:], name]
        return Message(name, f"body of {name}".encode(), key, session, due_ms)

    @staticmethod
    def _sent_values(message: Message) -> dict[str, Any]:
        return {
            "message_id": message.message_id,
            "key": message.key,
            "session": message.session,
            "digest": digest(message.body),
            "due_ms": message.due_ms or None,
        }

    def _send(self, client: Client) -> None:
        queue = self.rng.choice((*QUEUES, "sessions", "parted"))
        message = self._message(queue)
        values = self._sent_values(message)
        self._attempt(Op.SEND, queue, **values)
        self._record_when_known(client, self.bus.send(queue, [message]), [(Op.SEND, queue, values)])

    def _send_batch(self, client: Client) -> None:
        queue = self.rng.choice(("plain", "parted"))
        key = self.rng.choice((None, *KEYS))
        messages = [Message(m.message_id, m.body, key) for m in (self._message(queue) for _ in range(3))]
        batch = f"b{self._sent}"
        ops = [(Op.BATCH_SEND, queue, {**self._sent_values(m), "batch": batch}) for m in messages]
        try:
            ticket = self.bus.send(queue, messages)
        except BusError:
            for op, entity, values in ops:
                client.recorder.record(op, entity, FAILED, **values)
        else:
            self._record_when_known(client, ticket, ops)
            self._maybe_fence(next((p for p in self.bus.partitions[queue] if p.waiting), None))

    def _resend(self, client: Client) -> None:
        """Sends an id again, as one does after a time-out."""
        if not self._recent_ids:
            return
        name = self.rng.choice(self._recent_ids)
        message = Message(name, f"body of {name}".encode())
        values = self._sent_values(message)
        self._attempt(Op.SEND, "dedup", **values)
        self._record_when_known(client, self.bus.send("dedup", [message]), [(Op.SEND, "dedup", values)])

    def _schedule(self, client: Client) -> None:
        queue = self.rng.choice(list(QUEUES))
        due_ms = self.clock.now().wall_ms + self.rng.choice((500, 2_000, 6_000, 60_000))
        message = self._message(queue, due_ms)
        values = self._sent_values(message)
        self._attempt(Op.SCHEDULE, queue, **values)
        began = client.recorder.begin()

        def ended(ticket: Ticket) -> None:
            number = ticket.answer[0] if ticket.outcome == OK and ticket.answer else None
            client.recorder.record(
                Op.SCHEDULE, queue, ticket.outcome or UNKNOWN, began=began, number=number, **values
            )
            if number is not None:
                client.scheduled.append((queue, number, message.message_id))

        self._wait(client, self.bus.send(queue, [message]), ended)

    def _cancel(self, client: Client) -> None:
        if not client.scheduled:
            return
        queue, number, message_id = client.scheduled.pop(self.rng.randrange(len(client.scheduled)))
        values = {"number": number, "message_id": message_id}
        self._attempt(Op.CANCEL, queue, **values)
        self._record_when_known(client, self.bus.cancel(queue, number), [(Op.CANCEL, queue, values)])

    # Receiving

    def _delivered(self, client: Client, op: str, entity: str, delivery: Delivery) -> None:
        message = delivery.message
        client.recorder.record(op, entity, **self._seen_values(message), token=delivery.token)
        client.held.append(Held(entity, delivery))

    @staticmethod
    def _seen_values(message: Message) -> dict[str, Any]:
        return {
            "message_id": message.message_id,
            "key": message.key,
            "session": message.session,
            "number": message.number,
            "count": message.count,
            "digest": digest(message.body),
            "enqueued_ms": message.enqueued_ms,
        }

    def _receive(self, client: Client) -> None:
        queue = self.rng.choice([name for name, options in QUEUES.items() if not options.sessions])
        self._attempt(Op.RECEIVE, queue)
        delivery = self.bus.receive(queue)
        if delivery is not None:
            self._delivered(client, Op.RECEIVE, queue, delivery)

    def _receive_dead(self, client: Client) -> None:
        queue = self.rng.choice(list(QUEUES))
        self._attempt(Op.RECEIVE, queue + DEAD_LETTER_QUEUE)
        delivery = self.bus.receive(queue, DEAD_LETTER)
        if delivery is not None:
            self._delivered(client, Op.RECEIVE, queue + DEAD_LETTER_QUEUE, delivery)

    def _take(self, client: Client) -> None:
        queue = self.rng.choice(("plain", "parted"))
        self._attempt(Op.RECEIVE_AND_DELETE, queue)
        began = client.recorder.begin()

        def ended(ticket: Ticket) -> None:
            values = {}
            if ticket.outcome == OK and ticket.answer is None:
                return
            if ticket.outcome == OK:
                values = self._seen_values(ticket.answer)
            client.recorder.record(Op.RECEIVE_AND_DELETE, queue, ticket.outcome or UNKNOWN, began=began, **values)

        self._wait(client, self.bus.take(queue), ended)

    def _receive_deferred(self, client: Client) -> None:
        if not client.deferred:
            return
        place = self.rng.randrange(len(client.deferred))
        queue, message = client.deferred[place]
        lock = None
        if QUEUES[queue].sessions:
            if client.session is None or client.session[1].session != message.session:
                return
            lock = client.session[1]
            if not self._still_holds(client):
                return
        self._attempt(Op.RECEIVE_DEFERRED, queue, number=message.number)
        delivery = self.bus.receive_deferred(queue, message.number, lock)
        del client.deferred[place]
        self._delivered(client, Op.RECEIVE_DEFERRED, queue, delivery)

    # Settling

    def _held_values(self, held: Held) -> dict[str, Any]:
        message = held.delivery.message
        return {
            "message_id": message.message_id,
            "session": message.session,
            "number": message.number,
            "token": held.delivery.token,
        }

    def _settle(self, client: Client) -> None:
        if not client.held:
            return
        held = client.held.pop(self.rng.randrange(len(client.held)))
        how = self.rng.choices((Op.COMPLETE, Op.ABANDON, Op.DEFER, Op.DEAD_LETTER), (50, 25, 12, 13))[0]
        if held.entity.endswith(DEAD_LETTER_QUEUE) and how in (Op.DEFER, Op.DEAD_LETTER):
            how = Op.COMPLETE
        self._settle_as(client, held, how)

    def _settle_as(self, client: Client, held: Held, how: str) -> None:
        values = self._held_values(held)
        self._attempt(how, held.entity, **values)
        began = client.recorder.begin()

        def ended(ticket: Ticket) -> None:
            outcome = ticket.outcome or UNKNOWN
            client.recorder.record(how, held.entity, outcome, began=began, **values)
            if how == Op.DEFER and outcome == OK:
                client.deferred.append((held.entity, held.delivery.message))

        self._wait(client, self.bus.settle(held.delivery.token, how), ended)

    def _settle_again(self, client: Client) -> None:
        """Tries a token that somebody was given once, as a confused client does."""
        tokens = [e for e in self.history.events[-400:] if e.op == Op.RECEIVE and e.token is not None]
        if not tokens:
            return
        event = self.rng.choice(tokens)
        values = {"message_id": event.message_id, "session": event.session, "number": event.number}
        values["token"] = event.token
        if self.rng.random() < 0.5 and event.session is None:
            self._attempt(Op.RENEW, event.entity, **values)
            self.bus.renew(event.token or "")
            client.recorder.record(Op.RENEW, event.entity, **values)
            return
        self._attempt(Op.COMPLETE, event.entity, **values)
        ticket = self.bus.settle(event.token or "", Op.COMPLETE)
        self._record_when_known(client, ticket, [(Op.COMPLETE, event.entity, values)])

    def _renew(self, client: Client) -> None:
        held = [held for held in client.held if held.delivery.message.session is None]
        if not held:
            return
        one = self.rng.choice(held)
        values = self._held_values(one)
        self._attempt(Op.RENEW, one.entity, **values)
        self.bus.renew(one.delivery.token)
        client.recorder.record(Op.RENEW, one.entity, **values)

    # Sessions

    def _use_session(self, client: Client) -> None:
        if client.session is None:
            self._accept(client)
            return
        queue, lock = client.session
        draw = self.rng.random()
        self._attempt(Op.RECEIVE, queue, session=lock.session)
        partition = self.bus.home(queue, lock.session)
        if draw < 0.7:
            if not self._still_holds(client):
                return
            delivery = partition.receive(ACTIVE, lock)
            if delivery is not None:
                self._delivered(client, Op.RECEIVE, queue, delivery)
        elif draw < 0.85:
            self._attempt(Op.SESSION_RENEW, queue, session=lock.session)
            partition.renew_session(lock)
            client.recorder.record(Op.SESSION_RENEW, queue, session=lock.session)
        else:
            client.session = None
            self._attempt(Op.SESSION_RELEASE, queue, session=lock.session)
            partition.release_session(lock)
            client.recorder.record(Op.SESSION_RELEASE, queue, session=lock.session)

    def _still_holds(self, client: Client) -> bool:
        """The bus tells a client whose session lock is gone; it may then accept another session."""
        assert client.session is not None
        queue, lock = client.session
        try:
            self.bus.home(queue, lock.session).find_session(lock)
        except BusError:
            client.session = None
            client.recorder.record(Op.SESSION_LOST, queue, session=lock.session)
            return False
        return True

    def _accept(self, client: Client) -> None:
        session = self.rng.choice(SESSIONS)
        self._attempt(Op.SESSION_ACCEPT, "sessions", session=session)
        partition = self.bus.home("sessions", session)
        client.session = ("sessions", partition.accept(session))
        client.recorder.record(Op.SESSION_ACCEPT, "sessions", session=session)

    # Transactions

    def _transact(self, client: Client) -> None:
        if client.transaction is None:
            self._declare(client)
        elif self.rng.random() < 0.75:
            self._commit(client)
        else:
            self._rollback(client)

    def _declare(self, client: Client) -> None:
        """Declares one that completes what the client holds and sends two messages on."""
        held = [h for h in client.held if h.entity in ("plain", "parted", "sessions")]
        if not held:
            return
        one = self.rng.choice(held)
        self._transactions += 1
        client.transaction = name = f"t{self._transactions}"
        self.bus.declare(name)
        client.recorder.record(Op.DECLARE, transaction=name)
        values = self._held_values(one)
        self._attempt(Op.COMPLETE, one.entity, transaction=name, **values)
        self.bus.join(name, one.entity, Op.COMPLETE, one.delivery.token)
        client.held.remove(one)
        client.recorder.record(Op.COMPLETE, one.entity, transaction=name, **values)
        for _ in range(2):
            self._join_send(client, name, one)

    def _join_send(self, client: Client, name: str, one: Held) -> None:
        message = self._message(one.entity)
        origin = one.delivery.message
        message = Message(message.message_id, message.body, self._key_of(one), origin.session)
        values = self._sent_values(message)
        self._attempt(Op.SEND, one.entity, transaction=name, **values)
        self.bus.join(name, one.entity, Op.SEND, message)
        client.recorder.record(Op.SEND, one.entity, transaction=name, **values)

    def _key_of(self, one: Held) -> str | None:
        """A key that leads to the partition of what is being settled."""
        origin = one.delivery.message
        if origin.session is not None:
            return None
        if origin.key is not None:
            return origin.key
        wanted = origin.number >> 48
        for key in (*KEYS, *(f"k{n}" for n in range(50))):
            partition = self.bus.partitions[one.entity]
            if self.bus.home(one.entity, key) is partition[wanted]:
                return key
        raise AssertionError("some key leads to every partition")

    def _commit(self, client: Client) -> None:
        name, client.transaction = client.transaction, None
        self._attempt(Op.COMMIT, transaction=name, entity="")
        partition = self.bus.transaction(name or "").partition
        self._record_when_known(client, self.bus.commit(name or ""), [(Op.COMMIT, "", {"transaction": name})])
        self._maybe_fence(partition)

    def _maybe_fence(self, partition: ReferencePartition | None) -> None:
        """Stores like to fail in the middle of what must not happen in part."""
        if partition is not None and partition.up and self.rng.random() < 0.25:
            self._fence(partition.name, partition.index)
            self._collect()

    def _rollback(self, client: Client) -> None:
        name, client.transaction = client.transaction, None
        self._attempt(Op.ROLLBACK, transaction=name, entity="")
        try:
            self.bus.rollback(name or "")
        except BusError:
            client.recorder.record(Op.ROLLBACK, "", FAILED, transaction=name)
        else:
            client.recorder.record(Op.ROLLBACK, "", transaction=name)
