"""Clients that receive outside sessions: under locks or for good, and settle in every way there is, or too late."""

from __future__ import annotations

from typing import Any

from polybus.errors import PolybusError
from polybus.message.message import GROUP_ID
from polybus.message.outcome import ABANDON, DEAD_LETTER, DEFER, RETRY_PROPERTY
from polybus.message.overlay import laid_over
from polybus.message.rendering import STATE_DEFERRED
from polybus.namespace.delivery import entity_verbs
from polybus.namespace.delivery.source import Delivery, MessageSource, give_back
from polybus.namespace.entities.entity import Entity
from polybus.namespace.entities.names import Address
from polybus.promise import Promise
from polybus.testing.history import DEAD_LETTER_QUEUE, FAILED, OK, UNKNOWN, Began, Op, Recorder, digest
from tests.support.simulation.client import Client, identity_of, outcome_of
from tests.support.simulation.places import Place, Plan
from tests.support.simulation.surroundings import Surroundings


class Held:
    """A delivery that was seen and is not settled, as its client knows it."""

    def __init__(self, world: Surroundings, name: str, address: Address, delivery: Delivery) -> None:
        self.life = world.life
        self.name = name
        self.address = address
        self.delivery = delivery
        self.token = delivery.token
        self.identity = identity_of(delivery.message)
        self.number = world.rests.number(name, self.identity, delivery)
        if world.rests.enabled and name in world.rests.retrying:
            world.rests.note(name, self.identity, delivery, self.number)
        self.session = laid_over(delivery.overlay, GROUP_ID, delivery.message.session_id)
        self.count = delivery.delivery_count

    def fields(self) -> dict[str, Any]:
        """What names it in the history."""
        return {
            "message_id": self.identity,
            "number": self.number,
            "token": self.token.hex() or None,
            "session": self.session,
        }


def note_delivery(recorder: Recorder, op: str, held: Held, began: Began | None = None) -> None:
    message = held.delivery.message
    values = {**held.fields(), "key": message.partition_key, "digest": digest(message.raw)}
    recorder.record(op, held.name, began=began, count=held.count, enqueued_ms=held.delivery.enqueued_ms, **values)


class Mailbox:
    """A receiver as the namespace sees it: it writes down what it is given."""

    def __init__(self, client: Receiver, source: MessageSource, deletes: bool) -> None:
        self.credit = 0
        self.deletes = deletes
        self.under_way = 0
        """Messages that may have been taken for good and have not come yet."""
        self._client = client
        self._source = source
        self._began = client.recorder.begin()
        self._intent = 0

    def want(self, count: int) -> None:
        self._began = self._client.recorder.begin() if not self.under_way else self._began
        self.credit += count
        self.under_way += count
        self._intend()
        self._source.want(self)

    def _intend(self) -> None:
        """Whatever is taken for good and never seen may be any of so many."""
        if self.deletes:
            client, before = self._client, self._intent
            fields = {"at_most": self.under_way}
            op = Op.RECEIVE_AND_DELETE
            self._intent = client.world.intend(client.recorder, op, client.recorded, self._began, **fields)
            client.world.done(before)

    def stop(self) -> int:
        """Wants nothing more; gives how many messages may be on their way for good."""
        self._source.forget(self)
        self.under_way -= self.credit
        self.credit = 0
        return self.under_way if self.deletes else 0

    def deliver(self, delivery: Delivery) -> None:
        self.under_way -= 1
        self._client.delivered(delivery, self._began if self.deletes else None)
        self._intend()

    def failed(self, error: PolybusError) -> None:
        self.under_way -= 1
        self._client.lost_one(error, self._began)


class Receiver(Client):
    def __init__(self, name: str, world: Surroundings, plan: Plan, place: Place, mode: str) -> None:
        super().__init__(name, world, plan)
        self.place = place
        self.deletes = mode == "deletes"
        dead = mode == "dead letters"
        self.address = place.dead_letters if dead else place.address
        self.recorded = place.name + DEAD_LETTER_QUEUE if dead else place.name
        self.held: list[Held] = []
        self._deferred: list[int] = []
        self._stale: list[Held] = []
        self._box: Mailbox | None = None
        self._wishes = world.rng(f"{name}/wishes")

    def entity(self) -> Entity:
        return self.world.namespace.entity(self.address.entity)

    async def act(self) -> None:
        draw = self.rng.random()
        if self._stale and self.rng.random() < 0.3:
            await self.settle(self._stale.pop(), self.rng.choice((Op.COMPLETE, Op.ABANDON, Op.RENEW)))
        elif draw < 0.35 or not self.held:
            self._want()
        elif draw < 0.90:
            await self._decide(self.held.pop(self.rng.randrange(len(self.held))))
        elif draw < 0.95 and self._deferred:
            await self._fetch_deferred()
        else:
            self._hang_up()

    def process_died(self) -> None:
        """Everything held is stale; some of it the client will still try to settle."""
        self._stale = self.held[-6:]
        self.held = []
        box, self._box = self._box, None
        if box is not None and self.deletes:
            self._vanish(box.under_way - box.credit)

    def _want(self) -> None:
        if self._box is None:
            self._box = Mailbox(self, self.entity().source(self.address), self.deletes)
        if self._box.credit < 4:
            self._box.want(self.rng.randint(1, 4))

    def _hang_up(self) -> None:
        """The link closes: what has not left is given back, what was delivered stays locked."""
        if self._box is not None and not self.deletes:
            self._box.stop()
            self._box = None
            self.recorder.record(Op.LINK_CLOSED, self.recorded)

    def _vanish(self, count: int) -> None:
        if count > 0:
            self.recorder.record(Op.RECEIVE_AND_DELETE, self.recorded, UNKNOWN, at_most=count)

    # What the bus calls

    def delivered(self, delivery: Delivery, began: Began | None) -> None:
        held = Held(self.world, self.recorded, self.address, delivery)
        if self.deletes:
            note_delivery(self.recorder, Op.RECEIVE_AND_DELETE, held, began)
            return
        if self.rng.random() < 0.02:
            give_back(delivery)  # it never left for the client
            self.recorder.record(Op.LINK_CLOSED, self.recorded)
            return
        note_delivery(self.recorder, Op.RECEIVE, held)
        self.held.append(held)

    def lost_one(self, error: PolybusError, began: Began) -> None:
        if outcome_of(error) == UNKNOWN:
            self.recorder.record(Op.RECEIVE_AND_DELETE, self.recorded, UNKNOWN, began=began, at_most=1)

    # Settling

    async def _decide(self, held: Held) -> None:
        draw = self.rng.random()
        if draw < 0.55:
            await self.settle(held, Op.COMPLETE)
        elif draw < 0.68:
            await self.settle(held, Op.ABANDON)
        elif draw < 0.76:
            await self._defer(held)
        elif draw < 0.83 and self.address.sub_queue is None:
            await self._bury(held)
        elif draw < 0.90:
            await self.settle(held, Op.RENEW)
            self.held.append(held)
        elif draw < 0.95:
            await self.settle(held, Op.RELEASE)
        # Else the client forgets it, and its lock runs out.

    async def _defer(self, held: Held) -> None:
        if await self.settle(held, Op.DEFER) != FAILED:
            self._deferred.append(held.delivery.sequence)

    async def _bury(self, held: Held) -> None:
        target = self.place.forwards_dead_letters_to
        if target is None:
            await self.settle(held, Op.DEAD_LETTER)
        else:
            await self._bury_elsewhere(held, target)

    async def _bury_elsewhere(self, held: Held, target: str) -> None:
        """To the verifier this is a transaction: it leaves one queue and enters another, or neither."""
        name = f"{self.name}/buried/{held.token.hex()}"
        message = held.delivery.message
        began = self.recorder.begin()
        taken = {**held.fields(), "transaction": name}
        sent = {**taken, "number": None, "token": None, "key": message.partition_key, "digest": digest(message.raw)}
        intents = [
            self.world.intend(self.recorder, Op.COMPLETE, held.name, began, **taken),
            self.world.intend(self.recorder, Op.SEND, target, began, **sent),
            self.world.intend(self.recorder, Op.COMMIT, "", began, transaction=name),
        ]
        outcome = await self._tried(held, Op.DEAD_LETTER)
        ended = FAILED if outcome == FAILED else OK
        self.recorder.record(Op.COMPLETE, held.name, ended, began=began, **taken)
        self.recorder.record(Op.SEND, target, ended, began=began, **sent)
        self.recorder.record(Op.COMMIT, outcome=outcome, began=began, transaction=name)
        for intent in intents:
            self.world.done(intent)

    async def settle(self, held: Held, op: str) -> str:
        """Decides about a delivery and writes down what came of it."""
        began = self.recorder.begin()
        intent = self.world.intend(self.recorder, op, held.name, began, **held.fields())
        outcome = await self._tried(held, op)
        self.recorder.record(op, held.name, outcome, began=began, **held.fields())
        self.world.done(intent)
        return outcome

    async def _tried(self, held: Held, op: str) -> str:
        try:
            await self._settled(held, op)
        except PolybusError as error:
            return outcome_of(error)
        return OK

    async def _settled(self, held: Held, op: str) -> None:
        delivery = held.delivery
        if held.life is not self.world.life or self.rng.random() < 0.1:
            delivery = await self.world.call(self._by_token(held))
        await settle(self.world, delivery, op, self._wish(held) if op == Op.ABANDON else None)

    def _wish(self, held: Held) -> float | None:
        """When the client wants an abandoned message again, where it says so."""
        queue = self.address.subscription is None and self.address.sub_queue is None
        deferred = held.delivery.state == STATE_DEFERRED  # a wish would make it active, which nobody else does
        gone = self.world.rests.has_left(held.name, held.identity, held.number)
        if not self.world.rests.enabled or not queue or deferred or gone or self.place.options.sessions:
            return None
        self.world.rests.note(held.name, held.identity, held.delivery, held.number)
        return self._wishes.choice((0.0, 0.3, 1.5, 4.0))

    def _by_token(self, held: Held) -> Promise[Delivery]:
        entity = self.entity()
        return self.world.namespace.delivery_of(entity, entity.log_id(held.address), held.token)

    async def _fetch_deferred(self) -> None:
        number = self._deferred.pop(self.rng.randrange(len(self._deferred)))
        began = self.recorder.begin()
        lock = self.rng.random() < 0.7
        namespace = self.world.namespace
        entity = self.entity()
        work = entity_verbs.receive_deferred(namespace, entity, entity.log_id(self.address), [number], lock, None)
        intent = 0
        if not lock:
            intent = self.world.intend(self.recorder, Op.RECEIVE_DEFERRED, self.recorded, began, at_most=1)
        try:
            found = await self.call(work)
        except PolybusError as error:
            if outcome_of(error) == UNKNOWN and not lock:
                self.recorder.record(Op.RECEIVE_DEFERRED, self.recorded, UNKNOWN, began=began, at_most=1)
            self.world.done(intent)
            return
        for delivery in found:
            held = Held(self.world, self.recorded, self.address, delivery)
            note_delivery(self.recorder, Op.RECEIVE_DEFERRED, held, began)
            if lock:
                self.held.append(held)
        self.world.done(intent)

    def close(self) -> None:
        super().close()
        if self._box is not None:
            self._box.stop()


def settle(world: Surroundings, delivery: Delivery, op: str, wish_s: float | None = None) -> Promise[None]:
    """One verb of the partition; a promise as a client over a connection sees it."""
    done: Promise[None] = Promise()
    partition, now = delivery.partition, world.clock.now()
    if op == Op.COMPLETE:
        partition.complete(delivery, now, done.reply, None)
    elif op == Op.ABANDON:
        wish: dict[str, object] = {} if wish_s is None else {RETRY_PROPERTY: wish_s}
        partition.settle(delivery, now, ABANDON, None, None, {"tried": True, **wish}, done.reply, None)
    elif op == Op.DEFER:
        partition.settle(delivery, now, DEFER, None, None, None, done.reply, None)
    elif op == Op.DEAD_LETTER:
        partition.settle(delivery, now, DEAD_LETTER, "simulated", "on purpose", None, done.reply, None)
    elif op == Op.RELEASE:
        partition.release(delivery, now, done.reply, None)
    else:
        entity_verbs.renew_lock(delivery).result()
        done.resolve(None)
    return world.call(done)
