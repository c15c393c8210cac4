"""Clients that accept sessions and work on them in order; some are slow, and some never give back."""

from __future__ import annotations

from polybus.errors import PolybusError
from polybus.namespace.delivery import entity_verbs
from polybus.namespace.delivery.session_source import HeldSession, SessionSource
from polybus.namespace.delivery.source import Delivery
from polybus.testing.history import FAILED, OK, Op
from tests.support.simulation.client import SESSIONS, Client, outcome_of
from tests.support.simulation.places import Place, Plan
from tests.support.simulation.receivers import Held, note_delivery, settle
from tests.support.simulation.states import SessionStates
from tests.support.simulation.surroundings import Surroundings

WAIT_MS = 3_000


class SessionClient(Client):
    """Holds one session at a time."""

    deletes = False

    def __init__(self, name: str, world: Surroundings, plan: Plan, place: Place, states: SessionStates) -> None:
        super().__init__(name, world, plan)
        self.place = place
        self.credit = 0
        self._states = states
        self._session: HeldSession | None = None
        self._held: list[Held] = []
        self._deferred: dict[str, list[int]] = {}

    async def act(self) -> None:
        session = self._session
        if session is None:
            await self._accept()
            return
        draw = self.rng.random()
        if draw < 0.30 or not self._held:
            self.credit += 1
            session.pump()
        elif draw < 0.85:
            await self._decide(session, self._held.pop(0))
        elif draw < 0.90:
            self._renew(session)
        elif draw < 0.93:
            await self._set_state(session)
        elif draw < 0.96:
            await self._fetch_deferred(session)
        else:
            self._release(session)

    def pause_ms(self) -> float:
        return self.rng.choice((1, 5, 20, 100, 1_500))

    def process_died(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._session = None
        self._held = []
        self.credit = 0

    def _source(self) -> SessionSource:
        return self.world.namespace.entity(self.place.address.entity).session_source(self.place.address)

    # Holding

    async def _accept(self) -> None:
        began = self.recorder.begin()
        process = self.world.life
        try:
            if self.rng.random() < 0.6:
                held = await self.world.call(self._source().accept_next(self.name, WAIT_MS))
            else:
                held = await self.call(self._source().accept(self.rng.choice(SESSIONS), self.name))
        except PolybusError as error:
            outcome_of(error)
            return
        if process is not self.world.life:
            return
        self._session = held
        held.receiver = self
        partition = held.partition.index
        self.recorder.record(Op.SESSION_ACCEPT, self.place.name, began=began, session=held.id, partition=partition)
        if held.lock.lost:
            self.lock_lost()
            return
        await self._check_state(held)

    def _renew(self, session: HeldSession) -> None:
        try:
            session.renew().result()
            outcome = OK
        except PolybusError as error:
            outcome = outcome_of(error)
        self.recorder.record(Op.SESSION_RENEW, self.place.name, outcome, session=session.id)

    def _release(self, session: HeldSession) -> None:
        name, self._session = session.id, None
        self._held = []
        self.credit = 0
        began = self.recorder.begin()
        session.receiver = None
        session.release()
        self.recorder.record(Op.SESSION_RELEASE, self.place.name, began=began, session=name)

    # What the bus calls

    def deliver(self, delivery: Delivery) -> None:
        held = Held(self.world, self.place.name, self.place.address, delivery)
        note_delivery(self.recorder, Op.RECEIVE, held)
        self._held.append(held)

    def failed(self, error: PolybusError) -> None:
        raise AssertionError("nothing is deleted on delivery here") from error

    def lock_lost(self) -> None:
        session = self._session
        if session is not None:
            self._forget()
            self.recorder.record(Op.SESSION_LOST, self.place.name, session=session.id)

    # Settling

    async def _decide(self, session: HeldSession, held: Held) -> None:
        draw = self.rng.random()
        if draw < 0.75:
            op = Op.COMPLETE
        elif draw < 0.85:
            op = Op.ABANDON
        elif draw < 0.92:
            op = Op.DEFER
        elif draw < 0.96:
            op = Op.DEAD_LETTER
        else:
            return
        outcome = await self._settle(held, op)
        if op == Op.DEFER and outcome != FAILED:
            self._deferred.setdefault(session.id, []).append(held.number)

    async def _settle(self, held: Held, op: str) -> str:
        began = self.recorder.begin()
        intent = self.world.intend(self.recorder, op, held.name, began, **held.fields())
        try:
            await settle(self.world, held.delivery, op)
            outcome = OK
        except PolybusError as error:
            outcome = outcome_of(error)
        self.recorder.record(op, held.name, outcome, began=began, **held.fields())
        self.world.done(intent)
        return outcome

    async def _fetch_deferred(self, session: HeldSession) -> None:
        numbers = self._deferred.get(session.id)
        if not numbers:
            return
        number = numbers.pop()
        began = self.recorder.begin()
        entity = self.world.namespace.entity(self.place.address.entity)
        log_id = entity.log_id(self.place.address)
        work = entity_verbs.receive_deferred(self.world.namespace, entity, log_id, [number], True, session)
        try:
            found = await self.call(work)
        except PolybusError as error:
            outcome_of(error)
            return
        for delivery in found:
            held = Held(self.world, self.place.name, self.place.address, delivery)
            note_delivery(self.recorder, Op.RECEIVE_DEFERRED, held, began)
            self._held.append(held)

    # State

    async def _set_state(self, session: HeldSession) -> None:
        state = self.rng.choice((None, self.rng.randbytes(4)))
        where = (self.place.name, session.id)
        self._states.begins(where, state)
        try:
            await self.call(entity_verbs.set_session_state(self.world.namespace, session, state))
            outcome = OK
        except PolybusError as error:
            outcome = outcome_of(error)
        self._states.ends(where, state, outcome)

    async def _check_state(self, session: HeldSession) -> None:
        """A state that was acknowledged is there for the next holder."""
        where = (self.place.name, session.id)
        standing = self._states.standing(where)
        try:
            state = await self.call(entity_verbs.get_session_state(self.world.namespace, session))
        except PolybusError as error:
            outcome_of(error)
            return
        self._states.seen(where, state, standing)
