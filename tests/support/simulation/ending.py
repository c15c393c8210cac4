"""How a run ends: the faults stop, everything must come to rest, and what is left is read and compared.

Within sixty virtual seconds every store is back, every message has arrived, every lock has ended: else the run has a
finding although nothing was lost. Then some places are emptied by receivers, the rest is peeked at, and the process
is killed once more: what the next one finds must be the same.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from polybus.hosting.catalogue import DOUBT, TOMBSTONE
from polybus.hosting.partition_host import MARKS
from polybus.limits import STAGE_MS
from polybus.namespace.entities.entity import Entity
from polybus.partition import records
from polybus.promise import Promise
from polybus.testing.verifier import EntityContents, FinalState
from tests.support.inside import host_of
from tests.support.simulation.checking import check_disks
from tests.support.simulation.drainers import Drainer
from tests.support.simulation.pipelines import Tap
from tests.support.simulation.places import Place, Plan
from tests.support.simulation.reading import counts_of, read_contents, unrest
from tests.support.simulation.world import World

REST_SECONDS = 60
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
        found += unrest(bus)
        rows = world.catalogue.rows()
        found += ["rows of something deleted remain" for key, _ in rows if key.startswith(TOMBSTONE)]
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
        return counts_of(self.world, place).total

    # Reading

    def read_to_the_end(self, tap: Tap) -> list[str]:
        """Lets a tap read what is left and let go of what was kept for it; gives what it has to complain of."""
        done = self.world.go(tap.end())
        if not self.world.run_until(lambda: done.settled and not self._kept(), REST_SECONDS):
            self.findings.append(f"{self._kept()} messages are kept for a tap that is gone")
        return tap.judge()

    def _kept(self) -> int:
        entities = self.world.namespace.entities.values()
        brokers = [host_of(partition).broker for entity in entities for partition in entity.partitions]
        return sum(log.retained for broker in brokers if broker is not None for log in broker.logs.values())

    def contents(self) -> FinalState:
        """What a client can see of everything."""
        found: list[FinalState] = []

        async def read() -> None:
            names = [event.entity for event in self.world.history]
            found.append(await read_contents(self.world, self.plan, dict.fromkeys(names)))

        self.world.go(read())
        if not self.world.run_until(lambda: bool(found), REST_SECONDS):
            raise AssertionError("the contents cannot be read")
        return found[0]

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
            if contents.options.ttl_ms is not None or contents.options.dead_letter_ttl_ms is not None:
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

    def expire_orphans(self) -> None:
        """A day later nothing is left of what was staged and never published."""
        self.world.advance(STAGE_MS + 1)
        if not self.world.run_until(lambda: not self._staged(), REST_SECONDS):
            self.findings.append(f"{self._staged()} rows that were staged and never published are left")

    def _staged(self) -> int:
        keys = [key for disk in self.world.disks for key, _ in disk.rows() if key.startswith(b"P")]
        return sum(key[_PREFIX_BYTES : _PREFIX_BYTES + 1] in (records.STAGED, records.STAGES) for key in keys)

    # What lies on the disks

    def audit(self, drained: list[Place]) -> None:
        """Nothing may be left of what was consumed, deleted or settled between stores, and all must fit together."""
        self.findings += check_disks(self.world)
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
            size = entity.counts().result().size_bytes
            if size and not entity.settings.own.requires_session:
                self.findings.append(f"{entity.name}: {size} bytes are counted, none is there")

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
