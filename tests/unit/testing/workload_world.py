"""The world of the seeded workload: a reference bus, its clients and clocks, and what breaks in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from polybus.testing.history import UNKNOWN, History, Op, Recorder
from polybus.testing.verifier import EntityOptions
from tests.support.reference import Delivery, Message, ReferenceBus, ReferencePartition, SessionLock, Ticket
from tests.support.sim_loop import SimClock, SimLoop

QUEUES = {
    "plain": EntityOptions(lock_ms=4_000, max_delivery_count=3),
    "parted": EntityOptions(partitions=4, lock_ms=4_000),
    "sessions": EntityOptions(partitions=4, sessions=True, lock_ms=3_000, max_delivery_count=8),
    "dedup": EntityOptions(partitions=4, dedup_window_ms=8_000, lock_ms=4_000),
    "short": EntityOptions(ttl_ms=5_000, lock_ms=1_500),
    "buried": EntityOptions(
        partitions=2, ttl_ms=5_000, dead_letter_on_expiry=True, lock_ms=1_500, max_delivery_count=2
    ),
}
KEYS = ("red", "green", "blue")
SESSIONS = ("s1", "s2", "s3", "s4", "s5")


@dataclass
class Held:
    """A delivery that a client has not settled yet."""

    entity: str
    delivery: Delivery


@dataclass
class Client:
    recorder: Recorder
    waits: Ticket | None = None
    ended: Callable[[Ticket], None] | None = None
    held: list[Held] = field(default_factory=list)
    deferred: list[tuple[str, Message]] = field(default_factory=list)
    scheduled: list[tuple[str, int, str]] = field(default_factory=list)
    session: tuple[str, SessionLock] | None = None
    transaction: str | None = None


class World:
    """Partitions sync and fail, time passes and jumps; a client waits for one thing at a time."""

    def __init__(self, seed: int, bus_class: type[ReferenceBus] = ReferenceBus, clients: int = 4) -> None:
        self.rng = Random(seed)
        self.loop = SimLoop(seed)
        self.clock = SimClock(self.loop)
        self.history = History()
        self.bus = bus_class(QUEUES, self.clock)
        self.clients = [Client(Recorder(f"c{n}", self.clock, self.history)) for n in range(clients)]
        self._attempted: tuple[str, str, dict[str, Any]] = ("", "", {})
        self.harness = Recorder("harness", self.clock, self.history)
        self._sent = 0
        self._transactions = 0
        self._recent_ids: list[str] = []

    def _sync_some(self) -> None:
        for partitions in self.bus.partitions.values():
            for partition in partitions:
                if partition.up and self.rng.random() < 0.4:
                    partition.sync()
        self._collect()

    def _break_something(self) -> None:
        draw = self.rng.random()
        if draw < 0.2:
            self._restart()
        else:
            up = [p for ps in self.bus.partitions.values() for p in ps if p.up]
            partition = self.rng.choice([p for p in up if p.waiting] or up)
            self._fence(partition.name, partition.index)
        self._collect()

    def _recover_some(self) -> None:
        """Stores come back sooner than they fail, so that most of the run has something to do."""
        for name, partitions in self.bus.partitions.items():
            for partition in partitions:
                if not partition.up and self.rng.random() < 0.5:
                    self.bus.recover(name, partition.index)

    def _jump(self) -> None:
        by_ms = self.rng.choice((-2_000, -50, 50, 1_000))
        self.harness.record(Op.CLOCK_MOVED, detail=f"the wall clock is about to jump by {by_ms} ms")
        self.clock.jump_wall(by_ms)

    def _written(self, name: str, index: int) -> int:
        return self.rng.randint(0, len(self.bus.partitions[name][index].waiting))

    def _fence(self, name: str, index: int) -> None:
        self.bus.fence(name, index, self._written(name, index))
        self.harness.record(Op.FENCED, name, partitions=(index,))

    def _restart(self) -> None:
        places = [(name, p.index) for name, ps in self.bus.partitions.items() for p in ps]
        self.bus.restart({place: self._written(*place) for place in places})
        self.harness.record(Op.RESTART)
        for client in self.clients:
            client.session = client.transaction = None

    def _collect(self) -> None:
        for client in self.clients:
            ticket, ended = client.waits, client.ended
            if ticket is not None and ticket.outcome is not None and ended is not None:
                client.waits = client.ended = None
                ended(ticket)

    def _maybe_fence(self, partition: ReferencePartition | None) -> None:
        """Stores like to fail in the middle of what must not happen in part."""
        if partition is not None and partition.up and self.rng.random() < 0.25:
            self._fence(partition.name, partition.index)
            self._collect()

    def _attempt(self, op: str, entity: str, **values: Any) -> None:
        """Says what is being tried, so that a refusal can be recorded."""
        self._attempted = (op, entity, values)

    def _wait(self, client: Client, ticket: Ticket, ended: Callable[[Ticket], None]) -> None:
        client.waits, client.ended = ticket, ended

    def _record_when_known(self, client: Client, ticket: Ticket, ops: list[tuple[str, str, dict[str, Any]]]) -> None:
        began = client.recorder.begin()

        def ended(ticket: Ticket) -> None:
            for op, entity, values in ops:
                client.recorder.record(op, entity, ticket.outcome or UNKNOWN, began=began, **values)

        self._wait(client, ticket, ended)
