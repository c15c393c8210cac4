"""Clients that manage messages by their numbers while others send and receive: they make deferred ones active, give
scheduled ones another time or take them back, send dead letters elsewhere, and delete in batches.

To the verifier a message that was sent elsewhere has left one place and entered another in one transaction. One that
was deferred and is active again keeps the number under which it was deferred (see `Rests`); so a message that a
history knows by an older number is not sent elsewhere, and the other way round.
"""

from __future__ import annotations

from typing import Any

from polybus.errors import PolybusError
from polybus.hosting.partition_client import PartitionClient
from polybus.message.edit import Edit
from polybus.message.message import SUBJECT, Message, with_scheduled_time
from polybus.message.peeked import Peeked
from polybus.message.rendering import STATE_ACTIVE, STATE_DEFERRED, STATE_SCHEDULED
from polybus.namespace.delivery import entity_verbs
from polybus.namespace.delivery.redrive import move_messages
from polybus.namespace.entities.entity import Entity
from polybus.namespace.entities.names import Address
from polybus.namespace.jobs.choice import Choice
from polybus.namespace.jobs.walk import Walk
from polybus.partition.data import Moved
from polybus.promise import Promise
from polybus.testing.history import DEAD_LETTER_QUEUE, FAILED, OK, UNKNOWN, Began, Op, digest
from tests.support.simulation.client import Client, identity_of, outcome_of
from tests.support.simulation.places import Entrance, Place, Plan
from tests.support.simulation.surroundings import Surroundings

SENT_AWAY = 40_000_000
"""Bytes that an edited message may have: more than any has."""


class Walker(Client):
    """Looks for messages of one state as a bulk job does, and deals with the first page that it finds."""

    def pause_ms(self) -> float:
        return self.rng.choice((150, 600, 1_200))

    async def page(self, address: Address, state: int) -> tuple[Entity, int, int, list[Peeked]]:
        """The entity, the log, the partition and some of its messages; none where there are none."""
        namespace = self.world.namespace
        entity = namespace.entity(address.entity)
        log_id = entity.log_id(address)
        indexes = list(range(len(entity.partitions)))
        self.rng.shuffle(indexes)
        for index in indexes:
            walk = Walk(namespace, entity, log_id, Choice(states=(state,)), [index])
            while not walk.done:
                _, found = await self.call(walk.page(16))
                if found:
                    return entity, log_id, index, found[: self.rng.randint(1, 4)]
        return entity, log_id, 0, []

    async def act(self) -> None:
        try:
            await self.deal()
        except PolybusError as error:
            outcome_of(error)

    async def deal(self) -> None:
        raise NotImplementedError

    async def answered(self, wanted: list[int], verb: Promise[Moved]) -> tuple[list[int], str]:
        """The numbers for which something was done, or for which nobody knows; and the outcome."""
        try:
            return (await self.world.call(verb)).moved, OK
        except PolybusError as error:
            return wanted, outcome_of(error)


class Restorer(Walker):
    """Makes deferred messages active again: of queues, subscriptions and dead-letter queues, with and without sessions."""

    async def deal(self) -> None:
        place = self.rng.choice(self.plan.places)
        dead = self.rng.random() < 0.2
        name = place.name + DEAD_LETTER_QUEUE if dead else place.name
        entity, log_id, index, page = await self.page(place.dead_letters if dead else place.address, STATE_DEFERRED)
        rests = self.world.rests
        # What is sent elsewhere at this moment would come back under a number that the history has given up.
        page = [each for each in page if not (dead and rests.is_moving(identity_of(each.message)))]
        numbers: dict[int, tuple[str, int]] = {}
        for each in page:
            identity = identity_of(each.message)
            known = rests.number(name, identity, each.marks)
            rests.note(name, identity, each.marks, known)
            numbers[each.marks.sequence] = (identity, known)
        if numbers:
            await self._undefer(name, entity.partitions[index], log_id, numbers)

    async def _undefer(
        self, name: str, partition: PartitionClient, log_id: int, numbers: dict[int, tuple[str, int]]
    ) -> None:
        began = self.recorder.begin()
        fields = {number: {"message_id": own[0], "number": own[1]} for number, own in numbers.items()}
        intents = [self.world.intend(self.recorder, Op.UNDEFER, name, began, **own) for own in fields.values()]
        gone, outcome = await self.answered(list(numbers), partition.undefer(log_id, list(numbers)))
        for number in gone:
            self.recorder.record(Op.UNDEFER, name, outcome, began=began, **fields[number])
        for intent in intents:
            self.world.done(intent)


class Rescheduler(Walker):
    """Gives scheduled messages another time, sooner or later, or takes them back."""

    async def deal(self) -> None:
        entrance = self.rng.choice(self.plan.entrances)
        entity, _, index, page = await self.page(Address(entrance.entity), STATE_SCHEDULED)
        if not page:
            return
        partition = entity.partitions[index]
        draw = self.rng.random()
        if draw < 0.25:
            await self._cancel(entrance, partition, page)
            return
        now_ms = self.world.clock.now().wall_ms
        by_ms = self.rng.choice((-5_000, 500, 3_000)) if draw < 0.5 else 0
        due_ms = 0 if by_ms else now_ms + self.rng.choice((-1_000, 100, 2_000, 6_000))
        # Whoever says "later by so much" must know of each by itself what that comes to.
        for each in page if by_ms else [None]:
            await self._reschedule(entrance, partition, page if each is None else [each], due_ms, by_ms)

    async def _reschedule(
        self, entrance: Entrance, partition: PartitionClient, page: list[Peeked], due_ms: int, by_ms: int
    ) -> None:
        began = self.recorder.begin()
        fields = {each.marks.sequence: _moved_in_time(each.message, due_ms, by_ms) for each in page}
        names = {each.marks.sequence: _names(entrance, each.message) for each in page}
        intents = [
            self.world.intend(self.recorder, Op.RESCHEDULE, name, began, **own)
            for number, own in fields.items()
            for name in names[number]
        ]
        done, outcome = await self.answered(list(fields), partition.reschedule(list(fields), due_ms, by_ms))
        # What another client has moved meanwhile has moved on from there: by how much is not for this one to say.
        outcome = UNKNOWN if by_ms and outcome == OK else outcome
        for number in done:
            for name in names[number]:
                self.recorder.record(Op.RESCHEDULE, name, outcome, began=began, **fields[number])
        for intent in intents:
            self.world.done(intent)

    async def _cancel(self, entrance: Entrance, partition: PartitionClient, page: list[Peeked]) -> None:
        began = self.recorder.begin()
        fields = {
            each.marks.sequence: {"message_id": identity_of(each.message), "number": each.marks.sequence}
            for each in page
        }
        names = {each.marks.sequence: _names(entrance, each.message) for each in page}
        intents = [
            self.world.intend(self.recorder, Op.CANCEL, name, began, **own)
            for number, own in fields.items()
            for name in names[number]
        ]
        done, outcome = await self.answered(list(fields), partition.cancel_numbers(list(fields)))
        for number in done:
            for name in names[number]:
                told = outcome if name != entrance.churning or outcome == FAILED else UNKNOWN
                self.recorder.record(Op.CANCEL, name, told, began=began, **fields[number])
        for intent in intents:
            self.world.done(intent)


def _names(entrance: Entrance, message: Message) -> list[str]:
    """Where a message that waits at an entrance will be looked for."""
    colour = message.properties()[SUBJECT]
    assert colour is None or isinstance(colour, str)
    names = [entrance.recorded(colour)]
    return names if entrance.churning is None else [*names, entrance.churning]


def _moved_in_time(message: Message, due_ms: int, by_ms: int) -> dict[str, Any]:
    due = max(due_ms or message.scheduled_ms + by_ms, 1)
    became = with_scheduled_time(message, due).raw
    return {"message_id": identity_of(message), "due_ms": due, "digest": digest(became)}


class Redriver(Walker):
    """Sends dead letters back to where they died, or to another queue, with and without an edit."""

    def __init__(self, name: str, world: Surroundings, plan: Plan) -> None:
        super().__init__(name, world, plan)
        self._moves = 0

    def pause_ms(self) -> float:
        return self.rng.choice((20, 100, 300))

    async def deal(self) -> None:
        for place in self.rng.sample(self.plan.places, len(self.plan.places)):
            entity, log_id, _, page = await self.page(place.dead_letters, STATE_ACTIVE)
            rests = self.world.rests
            page = [each for each in page if not rests.has(identity_of(each.message))]
            if page:
                for each in page:
                    rests.moves(place.name, identity_of(each.message), each.marks.sequence)
                await self._move(place, entity, log_id, page, self._target(place))
                return

    def _target(self, place: Place) -> Place:
        """Where it died, or a queue that can take it."""
        if self.rng.random() < 0.5:
            return place
        queues = [
            other
            for other in self.plan.places
            if other.address.subscription is None and other.options.sessions == place.options.sessions
        ]
        return self.rng.choice(queues) if queues else place

    async def _move(self, place: Place, entity: Entity, log_id: int, page: list[Peeked], target: Place) -> None:
        began = self.recorder.begin()
        transactions = {each.marks.sequence: self._begin(place, target, each, began) for each in page}
        numbers = list(transactions)
        destination = self.world.namespace.entity(target.address.entity)
        subscription = target.address.subscription
        only = 0 if subscription is None else destination.subscription(subscription).number
        edits = {number: _edit() for number in numbers} if self.rng.random() < 0.3 else {}
        work = move_messages(self.world.namespace, entity, log_id, numbers, {}, edits, destination.name, only)
        try:
            moved, outcome = (await self.call(work)).moved, OK
        except PolybusError as error:
            moved, outcome = numbers, outcome_of(error)
        for number, (name, taken, sent, intents) in transactions.items():
            if number in moved:
                ended = FAILED if outcome == FAILED else OK
                dead_letters = place.name + DEAD_LETTER_QUEUE
                self.recorder.record(Op.COMPLETE, dead_letters, ended, began=began, **taken)
                self.recorder.record(Op.MOVE, target.name, ended, began=began, **sent)
                self.recorder.record(Op.COMMIT, outcome=outcome, began=began, transaction=name)
            for intent in intents:
                self.world.done(intent)

    def _begin(
        self, place: Place, target: Place, peeked: Peeked, began: Began
    ) -> tuple[str, dict[str, Any], dict[str, Any], list[int]]:
        """The transaction's name, what it takes and what it sends, and what is unknown if nobody writes it down."""
        self._moves += 1
        name = f"{self.name}/{self._moves}"
        message = peeked.message
        own = {"message_id": identity_of(message), "session": message.session_id, "transaction": name}
        number = self.world.rests.number(place.name, own["message_id"] or "", peeked.marks)
        taken = {**own, "number": number}
        sent = {
            **own,
            "key": message.partition_key,
            "digest": digest(message.raw),
            "ttl_ms": None if message.ttl_ms < 0 else message.ttl_ms,
        }
        intents = [
            self.world.intend(self.recorder, Op.COMPLETE, place.name + DEAD_LETTER_QUEUE, began, **taken),
            self.world.intend(self.recorder, Op.MOVE, target.name, began, **sent),
            self.world.intend(self.recorder, Op.COMMIT, "", began, transaction=name),
        ]
        return name, taken, sent, intents


def _edit() -> Edit:
    edit = Edit(SENT_AWAY)
    edit.application["redriven"] = True
    return edit


class BatchDeleter(Client):
    """Deletes the oldest free messages of a place; it is told how many, not which."""

    def pause_ms(self) -> float:
        return self.rng.choice((700, 2_500))

    async def act(self) -> None:
        places = [each for each in self.plan.places if not each.options.sessions and not each.options.delivers_to]
        if not places:
            return
        place = self.rng.choice(places)
        namespace = self.world.namespace
        entity = namespace.entity(place.address.entity)
        before_ms = self.world.clock.now().wall_ms - self.rng.choice((0, 500, 4_000))
        count = self.rng.randint(1, 2)
        began = self.recorder.begin()
        op, fields = Op.RECEIVE_AND_DELETE, {"at_most": count}
        intent = self.world.intend(self.recorder, op, place.name, began, **fields)
        work = entity_verbs.delete_messages(namespace, entity, entity.log_id(place.address), count, before_ms)
        try:
            fields["at_most"] = await self.call(work)
        except PolybusError as error:
            # A partition may have been done when the next one failed.
            outcome_of(error)
        if fields["at_most"]:
            self.recorder.record(op, place.name, UNKNOWN, began=began, **fields)
        self.world.done(intent)


def make_wishers(world: Surroundings, plan: Plan, prefix: str = "") -> list[Client]:
    return [
        Restorer(f"{prefix}restorer", world, plan),
        Rescheduler(f"{prefix}rescheduler", world, plan),
        Redriver(f"{prefix}redriver", world, plan),
        BatchDeleter(f"{prefix}batch deleter", world, plan),
    ]
