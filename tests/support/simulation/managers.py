"""Clients that manage and look: they create, change and delete while messages flow, and peek."""

from __future__ import annotations

import json
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from polybus.errors import PolybusError
from polybus.hosting.partition_client import PartitionClient
from polybus.message.peeked import Peeked
from polybus.message.rendering import STATE_SCHEDULED
from polybus.namespace.delivery import entity_verbs
from polybus.namespace.entities.description import EntityStatus, QueueDescription, SubscriptionDescription
from polybus.namespace.entities.options import MEMBER as OPTIONS
from polybus.namespace.entities.tiers import Tier
from polybus.testing.history import DEAD_LETTER_QUEUE, FAILED, OK, UNKNOWN, Op, digest
from tests.support.simulation.client import Client, identity_of, outcome_of
from tests.support.simulation.places import COLOURS, Plan, rule
from tests.support.simulation.rules_model import RulesModel
from tests.support.simulation.surroundings import Surroundings, recorded_name

EVERYTHING = 1_000_000
FLEETING = ("fleeting/a", "fleeting/b")


class Manager(Client):
    def __init__(self, name: str, world: Surroundings, plan: Plan, rules: RulesModel) -> None:
        super().__init__(name, world, plan)
        self._rules = rules
        self._churning = [e.churning for e in plan.entrances if e.churning is not None]
        self._must_ask = False
        self._life = world.life

    async def work(self) -> None:
        self._ask_rules()
        await super().work()

    def pause_ms(self) -> float:
        return self.rng.choice((50, 300, 1_500))

    async def act(self) -> None:
        if self._life is not self.world.life:
            self._life = self.world.life
            self._ask_rules()
        draw = self.rng.random()
        if draw < 0.45 and self._churning:
            await self._change_rules()
        elif draw < 0.65:
            await self._create()
        elif draw < 0.80:
            await self._delete()
        elif draw < 0.92:
            await self._update()
        elif self._churning:
            await self._pass_by()

    async def _attempt(self, work: Coroutine[Any, Any, object]) -> str:
        try:
            await self.call(work)
        except PolybusError as error:
            return outcome_of(error)
        return OK

    # Rules

    async def _change_rules(self) -> None:
        colour = self.rng.choice(COLOURS)
        management = self.world.namespace.management
        self._rules.begins()
        if colour in self._rules.known:
            outcome = await self._attempt(management.delete_rule("news", "churn", colour))
        else:
            outcome = await self._attempt(management.create_rule("news", "churn", rule(colour, colour)))
        self._rules.ends(UNKNOWN if outcome != OK else OK)
        if self.world.bus is not None:
            self._ask_rules()

    def _ask_rules(self) -> None:
        if self._churning and self.world.bus is not None:
            subscription = self.world.namespace.entity("news").subscription("churn")
            self._rules.learned(list(subscription.rules))

    # Entities that come and go

    async def _create(self) -> None:
        bus = self.world.bus
        assert bus is not None
        partitions = self.rng.choice((1, 4))
        bus.tier = Tier(partitions=partitions)
        described = QueueDescription(path=self.rng.choice(FLEETING), enable_partitioning=partitions > 1)
        await self._attempt(self.world.namespace.management.create(described))

    async def _delete(self) -> None:
        """Whatever it held may be gone from the moment on at which the deletion began."""
        namespace = self.world.namespace
        entity = namespace.find(self.rng.choice(FLEETING))
        if entity is None:
            return
        began = self.recorder.begin()
        name = recorded_name(entity.id, entity.name)
        intent = self.world.intend(self.recorder, Op.RECEIVE_AND_DELETE, name, began, at_most=EVERYTHING)
        outcome = await self._attempt(namespace.management.delete(entity.name))
        if outcome != FAILED:
            self.recorder.record(Op.RECEIVE_AND_DELETE, name, UNKNOWN, began=began, at_most=EVERYTHING)
        self.world.done(intent)

    async def _update(self) -> None:
        namespace = self.world.namespace
        names = [name for name, entity in namespace.entities.items() if not entity.is_topic]
        if not names:
            return
        old = namespace.entity(self.rng.choice(names)).description
        assert isinstance(old, QueueDescription)
        # What others send on to is never closed: after ten tries they would give up.
        closed = old.path.startswith("fleeting") and self.rng.random() < 0.3
        status = EntityStatus.SEND_DISABLED if closed else EntityStatus.ACTIVE
        note = f"note {self.rng.randrange(100)}"
        asked = replace(old, user_metadata=_noted(old.user_metadata, note), status=status)
        await self._attempt(namespace.management.update(asked))
        if closed:
            await self.world.sleep(100)
            if self.world.bus is not None:
                await self._reopen(old.path)

    async def _reopen(self, path: str) -> None:
        entity = self.world.namespace.find(path)
        if entity is not None and isinstance(entity.description, QueueDescription):
            asked = replace(entity.description, status=EntityStatus.ACTIVE)
            await self._attempt(self.world.namespace.management.update(asked))

    async def _pass_by(self) -> None:
        """A subscription that comes and goes, which nobody reads."""
        management = self.world.namespace.management
        if "passing" in self.world.namespace.entity("news").subscriptions:
            await self._attempt(management.delete_subscription("news", "passing"))
        else:
            described = SubscriptionDescription(topic="news", name="passing")
            await self._attempt(management.create_subscription(described))


def _noted(metadata: str | None, note: str) -> str:
    """The metadata with a note in it, and with the options of ours that it holds."""
    if metadata is None or OPTIONS not in metadata:
        return note
    return json.dumps({**json.loads(metadata), "note": note})


class Peeker(Client):
    """Looks at messages, which changes nothing."""

    def pause_ms(self) -> float:
        return self.rng.choice((100, 700))

    async def act(self) -> None:
        place = self.rng.choice(self.plan.places)
        namespace = self.world.namespace
        entity = namespace.entity(place.address.entity)
        began = self.recorder.begin()
        count = self.rng.choice((1, 5))
        try:
            found = await self.call(entity_verbs.peek(namespace, entity, entity.log_id(place.address), 1, count))
        except PolybusError as error:
            outcome_of(error)
            return
        for peeked in found:
            message, marks = peeked.message, peeked.marks
            session = message.session_id
            self.recorder.record(
                Op.PEEK,
                place.name,
                began=began,
                message_id=identity_of(message),
                number=marks.sequence,
                session=session,
                key=message.partition_key,
                digest=digest(message.raw),
            )


class Purger(Client):
    """Removes messages by their numbers while others receive them: of queues, and dead letters of every place."""

    def pause_ms(self) -> float:
        return self.rng.choice((400, 1500))

    async def act(self) -> None:
        place = self.rng.choice(self.plan.places)
        dead = self.rng.random() < 0.5
        if not dead and (place.options.sessions or place.options.delivers_to):
            return
        address = place.dead_letters if dead else place.address
        name = place.name + DEAD_LETTER_QUEUE if dead else place.name
        namespace = self.world.namespace
        entity = namespace.entity(address.entity)
        log_id = entity.log_id(address)
        try:
            page = await self.call(entity_verbs.peek(namespace, entity, log_id, 1, 4))
        except PolybusError as error:
            outcome_of(error)
            return
        wanted = {
            each.marks.sequence: self._fields(name, each) for each in page if each.marks.state != STATE_SCHEDULED
        }
        for index in sorted({number >> 48 for number in wanted}):
            own = {number: fields for number, fields in wanted.items() if number >> 48 == index}
            await self._purge(name, entity.partitions[index], log_id, own)

    async def _purge(
        self, name: str, partition: PartitionClient, log_id: int, wanted: dict[int, dict[str, Any]]
    ) -> None:
        began = self.recorder.begin()
        intents = [self.world.intend(self.recorder, Op.PURGE, name, began, **fields) for fields in wanted.values()]
        try:
            gone = (await self.world.call(partition.delete_numbers(log_id, list(wanted)))).moved
            outcome = OK
        except PolybusError as error:
            gone, outcome = list(wanted), outcome_of(error)
        for number in gone:
            self.recorder.record(Op.PURGE, name, outcome, began=began, **wanted[number])
        for intent in intents:
            self.world.done(intent)

    def _fields(self, name: str, peeked: Peeked) -> dict[str, Any]:
        identity = identity_of(peeked.message)
        return {"message_id": identity, "number": self.world.rests.number(name, identity, peeked.marks)}
