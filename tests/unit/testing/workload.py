"""A seeded workload of several clients on the reference bus, which records what they do and see."""

from __future__ import annotations

from polybus.errors import BusError
from polybus.testing.history import FAILED, History, Op
from polybus.testing.verifier import FinalState
from polybus.testing.verifier.contents import ACTIVE
from tests.support.reference import Message

from .workload_clients import Receiving
from .workload_world import KEYS, QUEUES, SESSIONS, Client, Held


class Workload(Receiving):
    """Each step one client does something, or time passes, or a partition syncs, or something breaks."""

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

    def _rollback(self, client: Client) -> None:
        name, client.transaction = client.transaction, None
        self._attempt(Op.ROLLBACK, transaction=name, entity="")
        try:
            self.bus.rollback(name or "")
        except BusError:
            client.recorder.record(Op.ROLLBACK, "", FAILED, transaction=name)
        else:
            client.recorder.record(Op.ROLLBACK, "", transaction=name)
