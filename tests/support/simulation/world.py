"""The simulated machine: disks that outlive processes, the process with its bus, and its death.

A disk is a memory store whose contents survive; what was not synced when the process died is gone, or there by
the seed's choice. A process is everything that a real one would hold in memory: when it dies its timers ring no more
and whoever waited for it hears that nobody knows. Who does what to the world, and when, lives in `nemesis`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from polybus.errors import BugError, PolybusError, StoreError
from polybus.hosting.store_host import StoreHost
from polybus.limits import DISK_CHECK_SECONDS, IDLE_CHECK_SECONDS
from polybus.namespace.bus import Bus
from polybus.partition.settings import Bounds
from polybus.promise import Promise, pause, spawn
from polybus.store.base import Batch, Read, Store
from polybus.store.driver import ReadDone, StoreDriver
from polybus.store.memory import MemoryStore
from polybus.testing.history import History, Op
from tests.support.assembly import assembled
from tests.support.sim_loop import SimClock, SimHandle, SimLoop
from tests.support.sim_store import SimFaults, SimStoreDriver
from tests.support.simulation.surroundings import NAMESPACE, ProcessDied, Surroundings

T = TypeVar("T")

RESTART_MS = 400
"""How long a supervisor waits before it starts a process again that could not start."""

DOWN = SimFaults(fail_before=0.5, fail_after=0.5, fail_read=1.0)


class Process:
    """One life of the bus: the loop that it sees, and the calls that wait for it."""

    def __init__(self, loop: SimLoop) -> None:
        self.alive = True
        self.bus: Bus | None = None
        self._loop = loop
        self._calls: dict[Promise[Any], None] = {}

    def call_soon(self, callback: Callable[..., object], *args: object) -> SimHandle:
        return self._loop.call_soon(self._unless_dead, callback, args)

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> SimHandle:
        return self._loop.call_later(delay, self._unless_dead, callback, args)

    def _unless_dead(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        if self.alive:
            callback(*args)

    def call(self, inner: Promise[T]) -> Promise[T]:
        """The same promise as a client over a connection sees it: broken when the process dies."""
        outer: Promise[T] = Promise()
        self._calls[outer] = None

        def answered(promise: Promise[T]) -> None:
            if self._calls.pop(outer, True) is None:
                copy_result(promise, outer)

        inner.then(answered)
        return outer

    def die(self) -> None:
        self.alive = False
        calls, self._calls = self._calls, {}
        for outer in calls:
            outer.reject(ProcessDied("the process died"))


def copy_result(source: Promise[T], target: Promise[T]) -> None:
    try:
        value = source.result()
    except Exception as error:
        target.reject(error)
    else:
        target.resolve(value)


class InlineReads(SimStoreDriver):
    """A driver whose reads answer at once, as those of an embedded store do."""

    def read(self, read: Read, done: ReadDone) -> None:
        self._read(read, done)


class Disk:
    """A store that outlives processes, with the faults that it has at present."""

    def __init__(self, loop: SimLoop, name: str, rng: Random) -> None:
        self.name = name
        self.rng = rng
        self.faults = SimFaults()
        self.down = False
        self.driver: SimStoreDriver | None = None
        self.opened = 0
        self.embedded = rng.random() < 0.5
        """Embedded: reads answer at once, and while a commit hangs nobody can open the store again."""
        self._loop = loop
        self._store: Store = MemoryStore(f"sim:{name}", rng.randbytes(16))

    def opener(self, process: Process) -> Callable[[], Promise[StoreDriver]]:
        def open_disk() -> Promise[StoreDriver]:
            promise: Promise[StoreDriver] = Promise()
            self._loop.call_later(self.rng.uniform(0.001, 0.03), self._open, process, promise)
            return promise

        return open_disk

    def _open(self, process: Process, promise: Promise[StoreDriver]) -> None:
        if not process.alive:
            return
        hangs = self.driver is not None and self.driver.hung and self.driver._hanging
        if self.down or (self.embedded and hangs):
            promise.reject(StoreError(f"{self.name} cannot be opened"))
            return
        self._store = self._reopened()
        driver_class = InlineReads if self.embedded else SimStoreDriver
        self.driver = driver_class(self._store, self._loop, self.rng, faults=self._present())
        self.opened += 1
        promise.resolve(self.driver)

    def _reopened(self) -> Store:
        """The store as the next process finds it; the old handle is of no more use."""
        assert isinstance(self._store, MemoryStore)
        return self._store.reopen()

    def _present(self) -> SimFaults:
        return DOWN if self.down else self.faults

    def apply(self) -> None:
        """Lets the driver at work feel what has changed."""
        if self.driver is not None:
            self.driver.faults = self._present()

    def plan(self, fault: str) -> None:
        if self.driver is not None:
            self.driver.planned.append(fault)

    def release(self) -> None:
        if self.driver is not None:
            self.driver.release()

    def heal(self) -> None:
        self.faults = SimFaults()
        self.down = False
        self.apply()
        if self.driver is not None:
            self.driver.planned.clear()
        self.release()

    def crash(self) -> None:
        if self.driver is not None:
            self.driver.crash()
            self.driver = None

    def copy(self) -> MemoryStore:
        """What is synced, for somebody who looks at it."""
        batch = Batch()
        for key, value in self.rows():
            batch.put(key, value)
        twin = MemoryStore(self._store.url, self._store.store_id)
        twin.commit(batch)
        return twin

    def rows(self) -> list[tuple[bytes, bytes]]:
        """Everything that is synced, whether the store is open or not."""
        assert isinstance(self._store, MemoryStore)
        return sorted(self._store._rows.items())


class World(Surroundings):
    """Loop, clocks, disks, history and the process of the moment."""

    def __init__(self, seed: int, stores: int, shuffle: bool = False) -> None:
        self.loop = SimLoop(seed, shuffle=shuffle)
        self._bus_clock = SimClock(self.loop)
        self._client_clock = SimClock(self.loop)
        """What clients read. The bus's clock may go ahead of it, and only that is recorded as a move."""
        super().__init__(seed, self._bus_clock, self._client_clock, History())
        self.harness = self.recorder("harness")
        self.disks = [Disk(self.loop, f"s{index}", self.rng(f"disk {index}")) for index in range(stores)]
        self.catalogue = Disk(self.loop, "catalogue", self.rng("catalogue"))
        self.process: Process | None = None
        self.errors: list[PolybusError] = []
        self.small = False
        """Whether brokers keep only a few messages in memory, so that a short backlog is a long one."""
        self.deaths = 0
        self.fences = 0
        self.rerouted = 0

    # Time

    def sleep(self, ms: float) -> Promise[None]:
        return pause(self.loop, ms)

    def jump_wall(self, ms: int) -> None:
        """The bus's wall clock jumps; back it can only be set for everybody, as the verifier wants it."""
        began = self.harness.begin()
        if ms < 0:
            self.harness.record(Op.CLOCK_MOVED, detail=f"the wall clock is about to jump by {ms} ms")
            self._client_clock.jump_wall(ms)
            self._bus_clock.jump_wall(ms)
        else:
            self._bus_clock.jump_wall(ms)
            self.harness.record(Op.CLOCK_MOVED, began=began, moved_wall_ms=ms, moved_mono_ms=0)

    def advance(self, ms: int) -> None:
        """Both clocks of the bus go forward, as a user's test would have it."""
        began = self.harness.begin()
        self._bus_clock.advance(ms)
        bus = self.bus
        self.harness.record(Op.CLOCK_MOVED, began=began, moved_wall_ms=ms, moved_mono_ms=ms)
        if bus is not None:
            bus.clock_moved()

    # The process

    @property
    def bus(self) -> Bus | None:
        return None if self.process is None else self.process.bus

    @property
    def life(self) -> object:
        return self.process

    async def start(self) -> None:
        """Brings a process up, however many tries it takes."""
        while True:
            process = self.process = Process(self.loop)
            bus = self._make_bus(process)
            try:
                await process.call(spawn(bus.start([NAMESPACE])))
            except BugError:
                raise
            except PolybusError:
                if process is not self.process:
                    return  # it died meanwhile, and whoever killed it starts the next one
                self._bury()
                await self.sleep(RESTART_MS)
                continue
            process.bus = bus
            self._watch_disks(process, bus)
            process.call_later(IDLE_CHECK_SECONDS, self._tidy, process, bus)
            return

    def _make_bus(self, process: Process) -> Bus:
        stores = {disk.name: disk.opener(process) for disk in self.disks}
        bus = assembled(process, self.clock, stores, self.catalogue.opener(process), new_key=lambda: "key")
        for host in bus.stores:
            host.on_fenced = self._fenced
        bus.on_error = self.errors.append
        if self.small:
            make_small(bus.bounds)
        return bus

    def _watch_disks(self, process: Process, bus: Bus) -> None:
        """What a node does: a store that was full is written to again when it has space."""
        for store in bus.stores:
            store.full = False
        process.call_later(DISK_CHECK_SECONDS, self._watch_disks, process, bus)

    def _tidy(self, process: Process, bus: Bus) -> None:
        bus.delete_idle()
        process.call_later(IDLE_CHECK_SECONDS, self._tidy, process, bus)

    def _fenced(self, store: StoreHost) -> None:
        self.fences += 1
        self.record_fencing(self.harness, store)

    def die(self) -> None:
        """The process is killed, and nothing is left but what the disks hold."""
        self.deaths += 1
        began = self.harness.begin()
        self._bury()
        for died in self.on_death:
            died()
        self.harness.record(Op.RESTART, began=began)

    async def stop(self) -> None:
        """The process ends in good order: what is under way is committed, then the stores are closed."""
        process, bus = self.process, self.bus
        if process is None or bus is None:
            return
        try:
            await process.call(spawn(bus.stop()))
        except ProcessDied:
            return
        self.die()

    def _bury(self) -> None:
        process, self.process = self.process, None
        if process is not None and process.bus is not None:
            self.rerouted += process.bus.namespace(NAMESPACE).sender.rerouted
        for disk in (*self.disks, self.catalogue):
            disk.crash()
        if process is not None:
            process.bus = None
            process.die()

    def call(self, inner: Promise[T]) -> Promise[T]:
        assert self.process is not None, "only a running bus gives promises"
        return self.process.call(inner)

    # Running

    def run_for(self, seconds: float) -> None:
        self.loop.run_for(seconds)
        self.check()

    def run_until(self, condition: Callable[[], bool], seconds: float, step: float = 0.25) -> bool:
        """Runs until it holds; False where it does not within these virtual seconds."""
        for _ in range(round(seconds / step)):
            if condition():
                return True
            self.run_for(step)
        return condition()

    def check(self) -> None:
        if self.failures:
            raise self.failures[0]


def make_small(bounds: Bounds) -> None:
    """Windows and pages of a few rows."""
    bounds.window_entries = 8
    bounds.window_bytes = 2_000
    bounds.page_entries = 4
    bounds.session_entries = 3
    bounds.session_bytes = 1_000
    bounds.sessions = 2
    bounds.recent_ids = 4
    bounds.sweep_rows = 3
    bounds.separate_body_bytes = 600
