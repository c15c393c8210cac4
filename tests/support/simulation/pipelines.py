"""Clients as a data pipeline has them: one publishes what it staged, epoch by epoch; one reads a log by position.

The publisher does what a query does that is started again: an epoch whose outcome it does not know it stages anew and
publishes once more under the same number, which must not double it. The tap reads every position up to the stable end
and must find the same message there for ever.
"""

from __future__ import annotations

from polybus.errors import PolybusError
from polybus.namespace.entities.entity import Entity
from polybus.namespace.pipeline.cursors import Start
from polybus.namespace.pipeline.publishing import Staged
from polybus.namespace.pipeline.ranges import RangeReader, partition_logs
from polybus.namespace.pipeline.stage_writer import StageWriter
from polybus.partition.kinds import MAIN
from polybus.testing.history import FAILED, OK, SENDS, UNKNOWN, Began, History, Op
from tests.support.simulation.client import Client, Letter, identity_of, outcome_of
from tests.support.simulation.places import Entrance, Plan
from tests.support.simulation.surroundings import NAMESPACE, Surroundings

TARGET = "wide"
"""The queue that pipelines work on, where there is one."""
WEEK_MS = 7 * 86_400_000
CURSOR = "tap"


class Publisher(Client):
    """Stages and publishes epoch after epoch. To the verifier an epoch is a transaction: all of it, or nothing."""

    def __init__(self, name: str, world: Surroundings, plan: Plan, entrance: Entrance) -> None:
        super().__init__(name, world, plan)
        self._entrance = entrance
        self._epoch = 0
        self._letters: list[Letter] = []
        self._published: list[Letter] = []
        """What the last epoch held that is known to be published."""
        self._began: Began | None = None
        """When the epoch was first published, as far as that was tried."""
        self._in_doubt = False
        self._intent = 0

    def pause_ms(self) -> float:
        return self.rng.choice((100, 500, 1_500))

    async def act(self) -> None:
        if self._published and self.rng.random() < 0.3:
            await self._again()
            return
        if not self._letters:
            self._letters = [self.letter(self._entrance) for _ in range(self.rng.randint(1, 6))]
        staged = await self._staged(self._letters)
        if staged is None or self.rng.random() < 0.1:
            return  # the task was lost, perhaps after it had staged: then its rows are orphans
        self._announce()
        outcome = await self._publish(staged, self._epoch)
        self._in_doubt = self._in_doubt or outcome == UNKNOWN
        if outcome == OK:
            self._end(OK)
            self._epoch += 1
            self._published, self._letters = self._letters, []
            self._in_doubt = False

    async def _again(self) -> None:
        """A query that was started again does its last epoch once more, though it had been published."""
        staged = await self._staged(self._published)
        if staged is not None:
            await self._publish(staged, self._epoch - 1)

    async def _staged(self, letters: list[Letter]) -> Staged | None:
        try:
            return await self.call(self._stage(self.world.namespace.entity(TARGET), letters))
        except PolybusError as error:
            outcome_of(error)  # whatever came of it, it is not published
            return None

    async def _stage(self, entity: Entity, letters: list[Letter]) -> Staged:
        bus = self.world.bus
        assert bus is not None, "it was there a moment ago"
        writer = StageWriter(bus, entity)
        writer.id = self.rng.randbytes(len(writer.id))
        half = len(letters) // 2
        for frame in (letters[:half], letters[half:]):
            if frame:
                await writer.write([letter.message() for letter in frame])
        return Staged(entity.id, writer.id, writer.partitions)

    async def _publish(self, staged: Staged, epoch: int) -> str:
        bus = self.world.bus
        if bus is None:
            return FAILED
        try:
            await self.call(bus.publishing.publish(NAMESPACE, self.name, "query", epoch, [staged]))
        except PolybusError as error:
            return outcome_of(error)
        return OK

    def _announce(self) -> None:
        """Before an epoch is published for the first time: its messages, and that a commit is coming."""
        if self._began is not None:
            return
        began = self._began = self.recorder.begin()
        name = self._transaction()
        for letter in self._letters:
            self.recorder.record(Op.SEND, TARGET, began=began, transaction=name, **letter.fields())
        self._intent = self.world.intend(self.recorder, Op.COMMIT, "", began, transaction=name)

    def _transaction(self) -> str:
        return f"{self.name}/epoch {self._epoch}"

    def _end(self, outcome: str) -> None:
        self.recorder.record(Op.COMMIT, outcome=outcome, began=self._began, transaction=self._transaction())
        self.world.done(self._intent)
        self._began = None

    async def work(self) -> None:
        await super().work()
        if self._began is not None:
            self._end(UNKNOWN if self._in_doubt else FAILED)


def entered(history: History) -> list[str]:
    """The messages that certainly entered the queue's log."""
    committed = {e.transaction for e in history if e.op == Op.COMMIT and e.outcome == OK}
    cancelled = {e.message_id for e in history if e.op == Op.CANCEL and e.outcome != FAILED}
    return [
        event.message_id
        for event in history
        if event.op in SENDS
        and event.entity == TARGET
        and event.outcome == OK
        and event.message_id is not None
        and event.message_id not in cancelled
        and (event.transaction is None or event.transaction in committed)
    ]


class Tap(Client):
    """Reads a queue's log by position, over and over, with a cursor that keeps what it has not read."""

    def __init__(self, name: str, world: Surroundings, plan: Plan) -> None:
        super().__init__(name, world, plan)
        self.findings: list[str] = []
        self._positions: dict[int, int] = {}
        self._found: dict[tuple[int, int], str] = {}

    def pause_ms(self) -> float:
        return self.rng.choice((50, 300, 1_000))

    async def begin(self) -> None:
        """From here on nothing that enters the log is let go before it was read."""
        bus = self.world.bus
        assert bus is not None, "nothing goes wrong before it begins"
        entity = self.world.namespace.entity(TARGET)
        await bus.cursors.create(entity, MAIN, CURSOR, NAMESPACE, Start(), WEEK_MS, None)

    async def act(self) -> None:
        try:
            await self.call(self._read())
        except PolybusError as error:
            outcome_of(error)

    async def _read(self) -> None:
        bus = self.world.bus
        assert bus is not None, "it was there a moment ago"
        entity = self.world.namespace.entity(TARGET)
        read_to: dict[int, int] = {}
        for log in await partition_logs(entity, MAIN):
            if log.problem is not None:
                continue
            # Now and then a range is read again, as a task is that failed.
            first = 1 if self.rng.random() < 0.1 else self._positions.get(log.index, 0) + 1
            first = max(first, log.earliest)
            await self._read_range(entity, log.index, first, log.stable_end)
            read_to[log.index] = log.stable_end
        self._positions.update(read_to)
        if self.rng.random() < 0.5:
            cursor = bus.cursors.find(entity, MAIN, CURSOR)
            await bus.cursors.advance(entity, cursor, dict(self._positions), None)

    async def _read_range(self, entity: Entity, index: int, first: int, last: int) -> None:
        if first > last:
            return
        reader = await RangeReader(entity.partitions[index], MAIN, first, last).begin()
        while not reader.done:
            for row in await reader.read(50, 1 << 20):
                assert row.position is not None, "a range is read by position"
                self._note(index, row.position, identity_of(row.message))

    def _note(self, index: int, position: int, identity: str) -> None:
        known = self._found.setdefault((index, position), identity)
        if known != identity:
            self.findings.append(f"position {position} of partition {index} was {known} and is {identity}")

    async def end(self) -> None:
        """Reads what is left, and lets go of what it has kept."""
        bus = self.world.bus
        assert bus is not None, "the faults have stopped"
        entity = self.world.namespace.entity(TARGET)
        await self._read()
        await bus.cursors.delete(entity, bus.cursors.find(entity, MAIN, CURSOR))

    def judge(self) -> list[str]:
        """What the tap should have seen and has not, or has seen twice."""
        acknowledged = entered(self.world.history)
        seen: dict[str, int] = {}
        for identity in self._found.values():
            seen[identity] = seen.get(identity, 0) + 1
        missed = [f"the tap has never seen {identity}" for identity in acknowledged if identity not in seen]
        # What has rested or was sent elsewhere enters the log again when it returns.
        doubled = [
            f"the tap has seen {identity} {count} times"
            for identity, count in seen.items()
            if count > 1 and not self.world.rests.has(identity) and not self.world.rests.is_moving(identity)
        ]
        return self.findings + missed + doubled
