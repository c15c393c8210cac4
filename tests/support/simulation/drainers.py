"""Clients of the ending: they take everything out of a place, so that what was acknowledged must come out."""

from __future__ import annotations

from dataclasses import replace

from polybus.errors import MessageNotFound, OperationTimeout, SessionCannotBeLocked
from polybus.message.peeked import Peeked
from polybus.message.rendering import STATE_DEFERRED
from polybus.namespace.delivery import entity_verbs
from polybus.namespace.delivery.session_source import HeldSession, SessionSource
from polybus.namespace.delivery.source import Delivery
from polybus.testing.history import DEAD_LETTER_QUEUE, Began, Op
from tests.support.simulation.client import Client
from tests.support.simulation.places import Place, Plan
from tests.support.simulation.reading import peek_all
from tests.support.simulation.receivers import Held, note_delivery, settle
from tests.support.simulation.surroundings import Surroundings

CREDIT = 100_000
SESSION_WAIT_MS = 6_000
"""Longer than any lock: a client may have gone without giving its session back."""


class Drainer(Client):
    """Completes whatever a place holds, its deferred messages and its dead letters included."""

    deletes = False

    def __init__(self, name: str, world: Surroundings, plan: Plan, place: Place) -> None:
        super().__init__(name, world, plan)
        self.place = place
        self.credit = CREDIT
        self._address = place.address
        self._recorded = place.name
        self._completing = 0
        self._twin: Drainer | None = None

    @property
    def under_way(self) -> int:
        """Completions that are not answered yet; counts are ahead of them."""
        return self._completing + (0 if self._twin is None else self._twin.under_way)

    async def work(self) -> None:
        if self.place.options.sessions:
            await self._drain_sessions()
        elif not self.place.options.delivers_to:
            self._receive()
            await self._drain_deferred()
        if self._address.sub_queue is None:
            self.world.go(self._dead_letters().work())

    def _dead_letters(self) -> Drainer:
        """They come last, for what the others left may still die."""
        options = replace(self.place.options, sessions=False, delivers_to=())
        twin = Drainer(f"{self.name}/dead", self.world, self.plan, replace(self.place, options=options))
        twin._address = self.place.dead_letters
        twin._recorded = self.place.name + DEAD_LETTER_QUEUE
        self._twin = twin
        return twin

    def _receive(self) -> None:
        self.world.namespace.entity(self._address.entity).source(self._address).want(self)

    def deliver(self, delivery: Delivery) -> None:
        held = Held(self.world, self._recorded, self._address, delivery)
        note_delivery(self.recorder, Op.RECEIVE, held)
        self.world.go(self._complete(held))

    def failed(self, error: Exception) -> None:
        raise error

    def lock_lost(self) -> None:
        raise AssertionError("nobody loses a lock once the faults have stopped")

    async def _complete(self, held: Held) -> None:
        began = self.recorder.begin()
        self._completing += 1
        await settle(self.world, held.delivery, Op.COMPLETE)
        self._completing -= 1
        self.recorder.record(Op.COMPLETE, held.name, began=began, **held.fields())

    async def _drain_deferred(self) -> None:
        """Again while one is still locked by a client that took it and went."""
        while True:
            deferred = [p.marks.sequence for p in await peek_all(self.world, self._address) if _deferred(p)]
            fetched = [await self._fetch_deferred(number) for number in deferred]
            if all(fetched):
                return
            await self.world.sleep(100)

    async def _fetch_deferred(self, number: int) -> bool:
        namespace = self.world.namespace
        entity = namespace.entity(self._address.entity)
        began = self.recorder.begin()
        work = entity_verbs.receive_deferred(namespace, entity, entity.log_id(self._address), [number], True, None)
        try:
            found = await self.call(work)
        except MessageNotFound:
            return False
        for delivery in found:
            await self._take_deferred(delivery, began)
        return True

    async def _take_deferred(self, delivery: Delivery, began: Began) -> None:
        held = Held(self.world, self._recorded, self._address, delivery)
        note_delivery(self.recorder, Op.RECEIVE_DEFERRED, held, began)
        await self._complete(held)

    async def _drain_sessions(self) -> None:
        """Accepts whatever session has something, until none has."""
        source = self.world.namespace.entity(self.place.address.entity).session_source(self.place.address)
        while True:
            began = self.recorder.begin()
            try:
                held = await self.world.call(source.accept_next(self.name, SESSION_WAIT_MS))
            except OperationTimeout:
                break
            self._accepted(held, began)
            held.receiver = self
            await held.drained()
            await self.world.sleep(20)
            began = self.recorder.begin()
            held.receiver = None
            held.release()
            self.recorder.record(Op.SESSION_RELEASE, self.place.name, began=began, session=held.id)
        await self._drain_deferred_sessions()

    def _accepted(self, held: HeldSession, began: Began) -> None:
        partition = held.partition.index
        self.recorder.record(Op.SESSION_ACCEPT, self.place.name, began=began, session=held.id, partition=partition)

    async def _accept(self, source: SessionSource, session_id: str) -> HeldSession:
        """A session that was just found for a receiver who had given up takes a moment to be free again."""
        while True:
            try:
                return await self.call(source.accept(session_id, self.name))
            except SessionCannotBeLocked:
                await self.world.sleep(100)

    async def _drain_deferred_sessions(self) -> None:
        namespace = self.world.namespace
        entity = namespace.entity(self.place.address.entity)
        log_id = entity.log_id(self.place.address)
        source = entity.session_source(self.place.address)
        for peeked in [p for p in await peek_all(self.world, self.place.address) if _deferred(p)]:
            session_id = peeked.message.session_id
            assert session_id is not None, "it was deferred in a session"
            began = self.recorder.begin()
            held = await self._accept(source, session_id)
            self._accepted(held, began)
            began = self.recorder.begin()
            number = peeked.marks.sequence
            work = entity_verbs.receive_deferred(namespace, entity, log_id, [number], True, held)
            for delivery in await self.call(work):
                await self._take_deferred(delivery, began)
            began = self.recorder.begin()
            held.release()
            self.recorder.record(Op.SESSION_RELEASE, self.place.name, began=began, session=session_id)


def _deferred(peeked: Peeked) -> bool:
    return peeked.marks.state == STATE_DEFERRED
