"""Clients that send: one by one, in bursts, in batches, for later, and the same message twice."""

from __future__ import annotations

from typing import Any

from polybus.errors import PolybusError
from polybus.message.message import Message
from polybus.namespace.delivery import entity_verbs
from polybus.namespace.entities.entity import Entity
from polybus.promise import Promise
from polybus.testing.history import FAILED, OK, UNKNOWN, Began, Op
from tests.support.simulation.client import Client, Letter, outcome_of
from tests.support.simulation.places import Entrance, Plan
from tests.support.simulation.rules_model import RulesModel
from tests.support.simulation.surroundings import Surroundings, recorded_name

KEPT = 40
"""How many sent messages a client remembers, to send them again."""


class Sender(Client):
    def __init__(self, name: str, world: Surroundings, plan: Plan, rules: RulesModel) -> None:
        super().__init__(name, world, plan)
        self._rules = rules
        self._sent: list[tuple[Entrance, Letter]] = []
        self._scheduled: list[tuple[Entrance, Letter, int]] = []
        self._batches = 0

    async def act(self) -> None:
        draw = self.rng.random()
        if draw < 0.40:
            await self._send_one()
        elif draw < 0.65:
            await self._burst()
        elif draw < 0.78:
            await self._batch()
        elif draw < 0.88:
            await self._schedule()
        elif draw < 0.92:
            await self._cancel()
        else:
            await self._again()

    # Ways to send

    async def _send_one(self) -> None:
        entrance = self.pick_entrance()
        if entrance is not None:
            letter = self.letter(entrance)
            self._remember(entrance, letter)
            await self._post(entrance, [letter], Op.SEND)

    async def _burst(self) -> None:
        """Several sends under way at once, so that one commit takes many."""
        entrance = self.pick_entrance()
        if entrance is None:
            return
        key = self.rng.choice((None, "burst"))
        letters = [self.letter(entrance, key) for _ in range(self.rng.randint(2, 8))]
        waiting = [self.world.go(self._post(entrance, [letter], Op.SEND, pipelined=True)) for letter in letters]
        for promise in waiting:
            await promise

    async def _batch(self) -> None:
        entrance = self.pick_entrance(dedup=False)
        if entrance is None:
            return
        keyed = entrance.sessions or self.rng.random() < 0.5
        letters = [self.letter(entrance, "batch" if keyed else None) for _ in range(self.rng.randint(2, 5))]
        if not keyed:
            for letter in letters:
                letter.key = None
        self._batches += 1
        await self._post(entrance, letters, Op.BATCH_SEND, batch=f"{self.name}/{self._batches}")

    async def _schedule(self) -> None:
        entrance = self.pick_entrance()
        if entrance is None:
            return
        letter = self.letter(entrance)
        letter.due_ms = self.world.clock.now().wall_ms + self.rng.choice(self.world.schedules_ms)
        number = await self._post(entrance, [letter], Op.SCHEDULE)
        if number is not None:
            self._scheduled.append((entrance, letter, number))

    async def _again(self) -> None:
        """The same id once more: a client that did not hear whether it was accepted would do that."""
        known = [(entrance, letter) for entrance, letter in self._sent if entrance.dedup]
        if known:
            entrance, letter = self.rng.choice(known)
            await self._post(entrance, [letter], Op.SEND)

    def _remember(self, entrance: Entrance, letter: Letter) -> None:
        self._sent.append((entrance, letter))
        del self._sent[:-KEPT]

    # The send itself

    async def _post(
        self, entrance: Entrance, letters: list[Letter], op: str, pipelined: bool = False, **values: Any
    ) -> int | None:
        """Sends and writes down what came of it; gives the first sequence number where there is one."""
        began = self.recorder.begin()
        standing = self._rules.standing()
        intents = [intent for letter in letters for intent in self._intend(entrance, letter, op, began, values)]
        numbers: list[int] = []
        try:
            numbers = await self._sent_to(entrance, [letter.message() for letter in letters])
            outcome = OK
        except PolybusError as error:
            outcome = outcome_of(error)
        for place, letter in enumerate(letters):
            number = numbers[place] if numbers and numbers[place] else None
            self._note(entrance, letter, op, outcome, began, number, standing, pipelined, values)
        for intent in intents:
            self.world.done(intent)
        return numbers[0] if numbers and numbers[0] else None

    def _intend(self, entrance: Entrance, letter: Letter, op: str, began: Began, values: dict[str, Any]) -> list[int]:
        fields = {**letter.fields(), **values}
        intents = [self.world.intend(self.recorder, op, entrance.recorded(letter.colour), began, **fields)]
        if entrance.churning is not None:
            intents.append(self.world.intend(self.recorder, Op.SEND, entrance.churning, began, **fields))
        return intents

    def _sent_to(self, entrance: Entrance, messages: list[Message]) -> Promise[list[int]]:
        promise: Promise[list[int]] = Promise()
        namespace = self.world.namespace
        namespace.send(namespace.entity(entrance.entity), messages, promise.reply, None)
        return self.world.call(promise)

    def _note(
        self,
        entrance: Entrance,
        letter: Letter,
        op: str,
        outcome: str,
        began: Began,
        number: int | None,
        standing: object,
        pipelined: bool,
        values: dict[str, Any],
    ) -> None:
        # Sends that are under way together are no sequence, so they are written as by clients of their own.
        recorder = self.world.recorder(f"{self.name}/{letter.identity}") if pipelined else self.recorder
        direct = entrance.by_colour is None and entrance.forwards_to is None
        shown = number if direct or op == Op.SCHEDULE else None
        fields = {**letter.fields(), **values, "number": shown}
        recorder.record(op, entrance.recorded(letter.colour), outcome, began=began, **fields)
        if entrance.churning is not None and outcome != FAILED:
            matched = self._rules.verdict(standing, letter.colour) if op != Op.SCHEDULE else UNKNOWN
            fields["number"] = None
            recorder.record(Op.SEND, entrance.churning, _both(outcome, matched), began=began, **fields)

    # Taking back

    async def _cancel(self) -> None:
        if not self._scheduled:
            return
        entrance, letter, number = self._scheduled.pop(self.rng.randrange(len(self._scheduled)))
        began = self.recorder.begin()
        name = entrance.recorded(letter.colour)
        fields = {"message_id": letter.identity, "number": number}
        intents = [self.world.intend(self.recorder, Op.CANCEL, name, began, **fields)]
        if entrance.churning is not None:
            intents.append(self.world.intend(self.recorder, Op.CANCEL, entrance.churning, began, **fields))
        try:
            namespace = self.world.namespace
            entity = namespace.entity(entrance.entity)
            await self.call(entity_verbs.cancel_scheduled(namespace, entity, [number]))
            outcome = OK
        except PolybusError as error:
            outcome = outcome_of(error)
        self.recorder.record(Op.CANCEL, name, outcome, began=began, message_id=letter.identity, number=number)
        if entrance.churning is not None and outcome != FAILED:
            name = entrance.churning
            self.recorder.record(Op.CANCEL, name, UNKNOWN, began=began, message_id=letter.identity, number=number)
        for intent in intents:
            self.world.done(intent)


def _both(sent: str, matched: str) -> str:
    """The outcome of a send to a subscription whose rules were in this or that state."""
    if matched == FAILED:
        return FAILED
    return OK if sent == OK and matched == OK else UNKNOWN


class FleetingSender(Client):
    """Sends to queues that come and go."""

    async def act(self) -> None:
        namespace = self.world.namespace
        fleeting = [entity for entity in namespace.entities.values() if entity.name.startswith("fleeting")]
        if fleeting:
            await self._send(self.rng.choice(fleeting))

    async def _send(self, entity: Entity) -> None:
        letter = self.letter(Entrance(entity.name, len(entity.partitions)))
        began = self.recorder.begin()
        promise: Promise[list[int]] = Promise()
        name = recorded_name(entity.id, entity.name)
        intent = self.world.intend(self.recorder, Op.SEND, name, began, **letter.fields())
        try:
            self.world.namespace.send(entity, [letter.message()], promise.reply, None)
            await self.world.call(promise)
            outcome = OK
        except PolybusError as error:
            outcome = outcome_of(error)
        self.recorder.record(Op.SEND, name, outcome, began=began, **letter.fields())
        self.world.done(intent)
