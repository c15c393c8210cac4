"""Clients that work in transactions: sends, settlements, sends to elsewhere; committed, rolled back or cut off."""

from __future__ import annotations

from polybus.errors import PolybusError
from polybus.namespace.delivery.transaction import Transaction
from polybus.namespace.entities.entity import Entity
from polybus.testing.history import FAILED, OK, UNKNOWN, Op
from tests.support.simulation.client import KEYS, SESSIONS, outcome_of
from tests.support.simulation.places import Entrance, Place, Plan
from tests.support.simulation.receivers import Held, Receiver
from tests.support.simulation.surroundings import Surroundings

_SETTLEMENTS = {
    Op.COMPLETE: "complete",
    Op.ABANDON: "abandon",
    Op.DEFER: "defer",
    Op.DEAD_LETTER: "dead-letter",
}


class Transactor(Receiver):
    """Receives from one place and settles in transactions, together with sends."""

    def __init__(self, name: str, world: Surroundings, plan: Plan, place: Place) -> None:
        super().__init__(name, world, plan, place, "locks")
        self._transactions = 0

    async def act(self) -> None:
        if self.rng.random() < 0.5:
            self._want()
        else:
            await self._transact()

    async def _transact(self) -> None:
        """A few operations, with pauses in which anything may happen, and then the discharge."""
        self._transactions += 1
        name = f"{self.name}/t{self._transactions}"
        process = self.world.life
        transaction = self.world.namespace.transactions.declare()
        self.recorder.record(Op.DECLARE, transaction=name)
        key = self.rng.choice(KEYS)
        for _ in range(self.rng.randint(1, 4)):
            if process is self.world.life and self.world.bus is not None:
                await self._join(transaction, name, key)
            if self.rng.random() < 0.3:
                await self.world.sleep(self.rng.choice((1, 50, 2_000)))
        await self._discharge(transaction, name, process is self.world.life)

    async def _join(self, transaction: Transaction, name: str, key: str) -> None:
        if self.held and self.rng.random() < 0.5:
            self._join_settlement(transaction, name, self.held.pop(0))
            return
        entrance = self.pick_entrance(ttl=False)
        if entrance is not None:
            await self._join_send(transaction, name, entrance, key)

    def _join_settlement(self, transaction: Transaction, name: str, held: Held) -> None:
        op = self.rng.choice((Op.COMPLETE, Op.COMPLETE, Op.ABANDON, Op.DEFER, Op.DEAD_LETTER))
        if op == Op.DEAD_LETTER and self.place.forwards_dead_letters_to is not None:
            op = Op.COMPLETE
        if op == Op.DEFER and self.place.options.ttl_ms is not None:
            op = Op.COMPLETE  # the verifier cannot tell a deferred message that expired from one never deferred
        try:
            transaction.settle(self.entity(), held.delivery, _SETTLEMENTS[op]).result()
            outcome = OK
        except PolybusError as error:
            outcome = outcome_of(error)
            self.held.append(held)
        self.recorder.record(op, held.name, outcome, transaction=name, **held.fields())

    async def _join_send(self, transaction: Transaction, name: str, entrance: Entrance, key: str) -> None:
        letter = self.letter(entrance, SESSIONS[0] if entrance.sessions else key)
        entity: Entity = self.world.namespace.entity(entrance.entity)
        began = self.recorder.begin()
        op = Op.SEND
        try:
            if self.rng.random() < 0.3:
                op = Op.SCHEDULE
                letter.due_ms = self.world.clock.now().wall_ms + self.rng.choice(self.world.schedules_ms)
                await self.call(transaction.schedule(entity, [letter.message()]))
            else:
                transaction.send(entity, [letter.message()])
            outcome = OK
        except PolybusError as error:
            outcome = outcome_of(error)
        if op == Op.SCHEDULE and outcome == UNKNOWN:
            outcome = FAILED  # only its number is in doubt: what has no number is not in the transaction
        recorded = entrance.recorded(letter.colour)
        self.recorder.record(op, recorded, outcome, began=began, transaction=name, **letter.fields())
        if entrance.churning is not None and outcome == OK:
            self.recorder.record(Op.SEND, entrance.churning, UNKNOWN, transaction=name, **letter.fields())

    async def _discharge(self, transaction: Transaction, name: str, alive: bool) -> None:
        began = self.recorder.begin()
        if not alive or self.world.bus is None:
            self.recorder.record(Op.ROLLBACK, transaction=name)
            return
        fail = self.rng.random() < 0.25
        intent = 0 if fail else self.world.intend(self.recorder, Op.COMMIT, "", began, transaction=name)
        try:
            await self.call(self.world.namespace.transactions.discharge(transaction, fail))
            outcome = OK
        except PolybusError as error:
            outcome = outcome_of(error)
        op = Op.ROLLBACK if fail or outcome == FAILED else Op.COMMIT
        self.recorder.record(op, outcome=outcome, began=began, transaction=name)
        self.world.done(intent)
