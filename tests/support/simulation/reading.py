"""What clients can see of everything at the end: contents by peeking, counters by asking, and what still moves."""

from __future__ import annotations

from collections.abc import Iterable

from polybus.message.peeked import Peeked
from polybus.message.rendering import STATE_DEFERRED, STATE_SCHEDULED
from polybus.namespace.bus import Bus
from polybus.namespace.delivery import entity_verbs
from polybus.namespace.entities.entity import Counts, Entity
from polybus.namespace.entities.names import Address
from polybus.partition.kinds import KINDS
from polybus.testing.history import digest
from polybus.testing.verifier import EntityContents, EntityOptions, FinalState, StoredMessage
from polybus.testing.verifier.contents import ACTIVE, DEAD_LETTER, DEFERRED, SCHEDULED
from tests.support.inside import broker_of
from tests.support.simulation.client import identity_of
from tests.support.simulation.places import Place, Plan
from tests.support.simulation.surroundings import Surroundings, recorded_name

_STATES = {STATE_DEFERRED: DEFERRED, STATE_SCHEDULED: SCHEDULED}
_FLEETING = EntityOptions(4)


async def peek_all(world: Surroundings, address: Address) -> list[Peeked]:
    """Every message of a place, page by page, as a client would look at them (C5)."""
    namespace = world.namespace
    entity = namespace.entity(address.entity)
    found: list[Peeked] = []
    following = 1
    while True:
        page = await entity_verbs.peek(namespace, entity, entity.log_id(address), following, 100)
        if not page:
            return found
        found += page
        following = page[-1].marks.sequence + 1


def counts_of(world: Surroundings, place: Place) -> Counts:
    entity = world.namespace.entity(place.address.entity)
    return entity.counts(entity.log_id(place.address) // KINDS).result()


async def read_contents(world: Surroundings, plan: Plan, names: Iterable[str]) -> FinalState:
    """Everything that is stored; `names` are the entities of the history, which may be gone."""
    options = plan.options()
    fleeting = _fleeting(world)
    for name in [*names, *fleeting]:
        if name.startswith("fleeting"):
            options.setdefault(name, _FLEETING)
    entities = {name: EntityContents(own) for name, own in options.items()}
    for place in plan.places:
        await _read(world, entities[place.name], place)
    for name, place in fleeting.items():
        await _read(world, entities[name], place)
    return FinalState(entities, world.clock.now().wall_ms)


def _fleeting(world: Surroundings) -> dict[str, Place]:
    """The queues that come and go, as far as they are there."""
    entities = [entity for entity in world.namespace.entities.values() if entity.name.startswith("fleeting")]
    return {recorded_name(entity.id, entity.name): Place(entity.name, _FLEETING) for entity in entities}


async def _read(world: Surroundings, contents: EntityContents, place: Place) -> None:
    """Reads it again where a message has expired meanwhile, and would be seen alive and among the dead."""
    counts, before = counts_of(world, place), None
    while before != counts.by_name():
        before = counts.by_name()
        contents.messages.clear()
        for peeked in await peek_all(world, place.address):
            contents.messages.append(_stored(world, place, peeked, _STATES.get(peeked.marks.state, ACTIVE)))
        for peeked in await peek_all(world, place.dead_letters):
            contents.messages.append(_stored(world, place, peeked, DEAD_LETTER))
        counts = counts_of(world, place)
    contents.counters = {ACTIVE: counts.active, DEFERRED: counts.deferred, DEAD_LETTER: counts.dead_letter}


def _stored(world: Surroundings, place: Place, peeked: Peeked, state: str) -> StoredMessage:
    message = peeked.message
    number = world.rests.number(place.name, identity_of(message), peeked.marks)
    return StoredMessage(
        identity_of(message),
        number,
        state,
        number >> 48,
        message.partition_key,
        message.session_id,
        digest(message.raw),
    )


def unrest(bus: Bus) -> list[str]:
    """What is missing, or still has to happen by itself."""
    found = [f"store {store.url} is {store.state.value}" for store in bus.stores if not store.available]
    if bus.publishing.pending:
        found.append(f"{bus.publishing.pending} publications are not moved, or not struck off")
    for entity in bus.entities.values():
        found += [f"{entity.name}: {what}" for what in _restless(entity)]
    return found


def _restless(entity: Entity) -> list[str]:
    found = [f"partition {index} is missing" for index in entity.missing_partitions()]
    brokers = [broker_of(partition) for partition in entity.partitions if partition.available]
    unsynced = [log.id for broker in brokers for log in broker.logs.values() if log.positions > log.stable_end]
    found += [f"what entered log {log_id} is not synced" for log_id in unsynced]
    for number in [0, *(subscription.number for subscription in entity.subscriptions.values())]:
        counts = entity.counts(number).result()
        if counts.locked or counts.scheduled or counts.transfer:
            found.append(f"{counts.locked} locked, {counts.scheduled} scheduled, {counts.transfer} on their way")
        if counts.transfer_dead_letter:
            found.append(f"{counts.transfer_dead_letter} could not be moved on")
    return found
