"""How a run ends: the faults stop, everything must come to rest, and what is left is read and compared.

Within sixty virtual seconds every store is back, every message has arrived, every lock has ended: else the run has a
finding although nothing was lost. Then some places are emptied by receivers, the rest is peeked at, and the process
is killed once more: what the next one finds must be the same.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from polybus.message.rendering import STATE_DEFERRED, STATE_SCHEDULED
from polybus.namespace.catalogue import DOUBT, REMAINS
from polybus.namespace.entity import Counts, Entity
from polybus.namespace.promise import Promise
from polybus.namespace.sender import MARKS
from polybus.partition import records
from polybus.partition.receiving import Peeked
from polybus.testing.history import digest
from polybus.testing.simulation.client import identity_of
from polybus.testing.simulation.drainers import Drainer, peek_all
from polybus.testing.simulation.places import Place, Plan
from polybus.testing.simulation.world import World, recorded_name
from polybus.testing.verifier import EntityContents, EntityOptions, FinalState, StoredMessage
from polybus.testing.verifier.contents import ACTIVE, DEAD_LETTER, DEFERRED, SCHEDULED

REST_SECONDS = 60
_STATES = {STATE_DEFERRED: DEFERRED, STATE_SCHEDULED: SCHEDULED}
_LASTING = (
    records.META,
    records.LOG_META,
    records.INBOX,
    records.DUPLICATE_IDS,
    records.DUPLICATE_TIMES,
    records.SESSION_STATE,
)
"""Tables that may have rows in a partition without messages."""
_PREFIX_BYTES = len(records.partition_prefix(0, 0))


class Ending:
    def __init__(self, world: World, plan: Plan, working: list[Promise[None]]) -> None:
        self.world = world
        self.plan = plan
        self.findings: list[str] = []
        self._working = working

    # Rest

    def rest(self) -> None:
        for disk in (*self.world.disks, self.world.catalogue):
            disk.heal()
        if not self.world.run_until(lambda: not self.unrest(), REST_SECONDS):
            self.findings += [f"no rest within {REST_SECONDS} s: {what}" for what in self.unrest()]

    def unrest(self) -> list[str]:
        """What still moves, or is missing."""
        world = self.world
        bus = world.bus
        if bus is None:
            return ["there is no bus"]
        found = [f"client {place} works" for place, promise in enumerate(self._working) if not promise.settled]
        found += [f"store {store.url} is {store.state.value}" for store in bus.stores if not store.available]
        for entity in bus.entities.values():
            found += [f"{entity.name}: {what}" for what in _restless(entity)]
        rows = world.catalogue.rows()
        found += ["rows of something deleted remain" for key, _ in rows if key.startswith(REMAINS)]
        found += ["a store is still doubted" for key, _ in rows if key.startswith(DOUBT)]
        return found

    # Draining

    def drain(self, rng: Random) -> list[Place]:
        """Empties some of the places."""
        chosen = [place for place in self.plan.places if rng.random() < 0.6]
        drainers = [Drainer(f"drainer {place.name}", self.world, self.plan, place) for place in chosen]
        working = [self.world.go(drainer.work()) for drainer in drainers]

        def left() -> list[str]:
            found = [f"{place.name} holds {self._left(place)}" for place in chosen if self._left(place)]
            found += [f"{drainer.name} works" for drainer in drainers if drainer.under_way]
            return found + ["a drainer works" for promise in working if not promise.settled]

        if not self.world.run_until(lambda: not left(), REST_SECONDS):
            self.findings += [f"not drained within {REST_SECONDS} s: {what}" for what in left()]
        return chosen

    def _left(self, place: Place) -> int:
        return self._counts(place).total

    def _counts(self, place: Place) -> Counts:
        entity = self.world.namespace.entity(place.address.entity)
        return entity.counts(entity.log_id(place.address) // 4)

    # Reading

    def contents(self) -> FinalState:
        """What a client can see of everything."""
        found: list[FinalState] = []

        async def read() -> None:
            entities = {name: EntityContents(options) for name, options in self._options().items()}
            for place in self.plan.places:
                await self._read(entities[place.name], place)
            for name, place in self._fleeting().items():
                await self._read(entities[name], place)
            found.append(FinalState(entities, self.world.clock.now().wall_ms))

        self.world.go(read())
        if not self.world.run_until(lambda: bool(found), REST_SECONDS):
            raise AssertionError("the contents cannot be read")
        return found[0]

    def _options(self) -> dict[str, EntityOptions]:
        options = self.plan.options()
        for event in self.world.history:
            if event.entity.startswith("fleeting"):
                options.setdefault(event.entity, EntityOptions(4))
        for name in self._fleeting():
            options.setdefault(name, EntityOptions(4))
        return options

    def _fleeting(self) -> dict[str, Place]:
        """The queues of this kind that exist at the end."""
        entities = [e for e in self.world.namespace.entities.values() if e.name.startswith("fleeting")]
        return {recorded_name(e.id, e.name): Place(e.name, EntityOptions(4)) for e in entities}

    async def _read(self, contents: EntityContents, place: Place) -> None:
        for peeked in await peek_all(self.world, place.address):
            contents.messages.append(_stored(peeked, _STATES.get(peeked.marks.state, ACTIVE)))
        for peeked in await peek_all(self.world, place.dead_letters):
            contents.messages.append(_stored(peeked, DEAD_LETTER))
        counts = self._counts(place)
        contents.counters = {
            ACTIVE: counts.active,
            DEFERRED: counts.deferred,
            DEAD_LETTER: counts.dead_letter,
        }

    # Over a death

    def compare(self, before: FinalState) -> None:
        """Kills the process; what the next one shows must be the same."""
        self.world.die()
        self.world.go(self.world.start())
        if not self.world.run_until(lambda: not self.unrest(), REST_SECONDS):
            self.findings += [f"no rest after the last restart: {what}" for what in self.unrest()]
            return
        after = self.contents()
        for name, contents in before.entities.items():
            if contents.options.ttl_ms is not None:
                continue  # more of it has expired meanwhile
            self._compare(name, contents, after.entities[name])

    def _compare(self, name: str, before: EntityContents, after: EntityContents) -> None:
        if before.counters != after.counters:
            self.findings.append(f"{name}: counters {before.counters} are {after.counters} after a restart")
        ours, theirs = Counter(before.messages), Counter(after.messages)
        for message in (ours - theirs).elements():
            self.findings.append(f"{name}: {message} is missing after a restart")
        for message in (theirs - ours).elements():
            self.findings.append(f"{name}: {message} is new after a restart")

    # What lies on the disks

    def audit(self, drained: list[Place]) -> None:
        """Nothing may be left of what was consumed, deleted or settled between stores."""
        empty: dict[int, Entity] = {}
        entities = self.world.namespace.entities.values()
        drained_names = [place.name for place in drained]
        for entity in entities:
            own = [place.name for place in self.plan.places if place.address.entity == entity.name]
            if own and all(name in drained_names for name in own) and not entity.is_topic:
                empty[entity.id] = entity
        known = {entity.id for entity in entities}
        for disk in self.world.disks:
            for key, _ in disk.rows():
                self._audit_row(disk.name, key, known, empty)
        for entity in empty.values():
            if entity.counts().size_bytes and not entity.settings.own.requires_session:
                self.findings.append(f"{entity.name}: {entity.counts().size_bytes} bytes are counted, none is there")

    def _audit_row(self, disk: str, key: bytes, known: set[int], empty: dict[int, Entity]) -> None:
        if key.startswith(MARKS):
            self.findings.append(f"{disk}: a mark about a send in doubt is left")
        elif key.startswith(b"P"):
            entity_id = int.from_bytes(key[1:5], "big")
            table = key[_PREFIX_BYTES : _PREFIX_BYTES + 1]
            if entity_id not in known:
                self.findings.append(f"{disk}: a row of the deleted entity {entity_id} is left in table {table!r}")
            elif entity_id in empty and table not in _LASTING:
                self.findings.append(f"{disk}: {empty[entity_id].name} is empty, but {key!r} is there")


def _restless(entity: Entity) -> list[str]:
    found = [f"partition {index} is missing" for index in entity.missing_partitions()]
    for number in [0, *(subscription.number for subscription in entity.subscriptions.values())]:
        counts = entity.counts(number)
        if counts.locked or counts.scheduled or counts.transfer:
            found.append(f"{counts.locked} locked, {counts.scheduled} scheduled, {counts.transfer} on their way")
        if counts.transfer_dead_letter:
            found.append(f"{counts.transfer_dead_letter} could not be moved on")
    return found


def _stored(peeked: Peeked, state: str) -> StoredMessage:
    message, number = peeked.message, peeked.marks.sequence
    return StoredMessage(
        identity_of(message),
        number,
        state,
        number >> 48,
        message.partition_key,
        message.session_id,
        digest(message.raw),
    )
