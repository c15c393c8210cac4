"""What a recorded client stands on: a bus to call, time that passes, chance, and a history to write in.

The simulated world is one such ground; a real process over real stores is another (see `soak_child`). The same clients
work on both. Nothing here knows which.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from polybus.clock import Clock
from polybus.errors import PolybusError
from polybus.hosting.store_host import StoreHost
from polybus.message.rendering import Marks
from polybus.namespace.bus import Bus
from polybus.namespace.entities.entity import Entity
from polybus.namespace.namespace import Namespace
from polybus.promise import Promise, spawn
from polybus.testing.history import DEAD_LETTER_QUEUE, Began, History, Op, Recorder

T = TypeVar("T")

NAMESPACE = "sim"
SCHEDULES_MS = (50, 1_000, 5_000, 12_000)


class ProcessDied(PolybusError):
    """The bus is gone in the middle of a call: nobody knows what it had done."""


class NotRunning(PolybusError):
    """There is no bus to call: nothing was done."""


class Rests:
    """Messages that were abandoned with a delay, or deferred and made active again: they return under a new number, and
    are the same to the verifier."""

    def __init__(self) -> None:
        self.enabled = False
        """Whether clients abandon so, and purge: runs that do not ask for it stay as they were."""
        self.retrying: set[str] = set()
        """Places where every abandoned message rests."""
        self._numbers: dict[tuple[str, str, int], int] = {}
        self._moving: set[str] = set()
        self._left: set[tuple[str, str, int]] = set()

    def moves(self, name: str, identity: str, number: int) -> None:
        """Somebody sends the message elsewhere: there it has a number of its own."""
        self._moving.add(identity)
        self._left.add((_base(name), identity, number))

    def is_moving(self, identity: str) -> bool:
        return identity in self._moving

    def has_left(self, name: str, identity: str, number: int) -> bool:
        """Whether this copy was sent elsewhere: a receiver that held it once knows nothing of that."""
        return (_base(name), identity, number) in self._left

    def note(self, name: str, identity: str, marks: Marks, number: int) -> None:
        self._numbers[_base(name), identity, marks.original_sequence or marks.sequence] = number

    def has(self, identity: str) -> bool:
        """Whether the message was asked to rest, somewhere."""
        return any(each == identity for _, each, _ in self._numbers)

    def number(self, name: str, identity: str, marks: Marks) -> int:
        """The number under which the history knows a message."""
        origin = marks.original_sequence or marks.sequence
        return self._numbers.get((_base(name), identity, origin), marks.sequence)


def _base(name: str) -> str:
    return name.removesuffix(DEAD_LETTER_QUEUE)


class Surroundings:
    schedules_ms: tuple[int, ...] = SCHEDULES_MS
    """How far ahead messages are scheduled."""
    pace = 1.0
    """How long clients pause, as a part of what they would."""

    def __init__(self, seed: int, clock: Clock, recorder_clock: Clock, history: History) -> None:
        self.seed = seed
        self.clock: Clock = clock
        self.recorder_clock: Clock = recorder_clock
        self.history = history
        self.failures: list[BaseException] = []
        self.rests = Rests()
        self.on_death: list[Callable[[], None]] = []

    def rng(self, purpose: str) -> Random:
        """A source of chance of its own for each purpose, so that one does not disturb the others."""
        return Random(f"{self.seed}/{purpose}")

    def recorder(self, client: str) -> Recorder:
        return Recorder(client, self.recorder_clock, self.history)

    # The bus

    @property
    def bus(self) -> Bus | None:
        raise NotImplementedError

    @property
    def life(self) -> object:
        """Another object for each life of the bus; what was given in an earlier one is worth nothing."""
        raise NotImplementedError

    @property
    def namespace(self) -> Namespace:
        bus = self.bus
        if bus is None:
            raise NotRunning("there is no bus")
        return bus.namespace(NAMESPACE)

    def call(self, inner: Promise[T]) -> Promise[T]:
        """The same promise as a client over a connection sees it: broken when the process dies."""
        raise NotImplementedError

    def record_fencing(self, harness: Recorder, store: StoreHost) -> None:
        """The locks of every partition on the store have ended."""
        bus = self.bus
        if bus is None:
            return
        for entity in bus.entities.values():
            indexes = tuple(partition.index for partition in entity.partitions if partition.store is store)
            if indexes:
                for name in names_of(entity):
                    harness.record(Op.FENCED, name, partitions=indexes)

    # Time and work

    def sleep(self, ms: float) -> Promise[None]:
        raise NotImplementedError

    def go(self, work: Coroutine[Any, Any, T]) -> Promise[T]:
        """Lets a client work; whatever it does not expect ends the run."""
        promise = spawn(work)
        promise.then(self._ended)
        return promise

    def _ended(self, promise: Promise[T]) -> None:
        try:
            promise.result()
        except Exception as error:
            self.failures.append(error)

    # What would be forgotten if the client itself died

    def intend(self, recorder: Recorder, op: str, entity: str, began: Began, **fields: Any) -> int:
        """Says, before it is done, what will be unknown if nobody lives to write it down; gives a number for `done`."""
        del recorder, op, entity, began, fields
        return 0

    def done(self, intent: int) -> None:
        """It stands in the history now."""


def names_of(entity: Entity) -> list[str]:
    """The names under which an entity's own places stand in the history."""
    names = [recorded_name(entity.id, entity.name)]
    return names + [f"{entity.name}/Subscriptions/{s.description.name}" for s in entity.subscriptions.values()]


def recorded_name(entity_id: int, name: str) -> str:
    """Entities that come and go are told apart by their ids: what is created again is another one."""
    return f"{name}@{entity_id}" if name.startswith("fleeting") else name
