"""The process that is killed: a bus on real stores with clients that write down, before and after, what they do.

Every line goes into the pipe at once. What a client is about to do is announced (`?`), so that the parent knows what
was under way when the process died; when its event is written the announcement is struck off (`!`). The parent makes
one history of all lives. Nothing is judged here.
"""

from __future__ import annotations

import asyncio
import json
import os
import traceback
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, TypeVar

from polybus.asyncio_bridge import run
from polybus.clock import RealClock
from polybus.namespace.bus import Bus
from polybus.promise import Promise, pause
from polybus.testing.history import UNKNOWN, Began, Event, History, Recorder, to_line
from tests.support.assembly import assembled_at
from tests.support.simulation.drainers import Drainer
from tests.support.simulation.places import Plan, make_plan
from tests.support.simulation.reading import counts_of, read_contents, unrest
from tests.support.simulation.simulation import make_clients
from tests.support.simulation.states import SessionStates
from tests.support.simulation.surroundings import NAMESPACE, Surroundings

T = TypeVar("T")

KINDS = ["wide", "plain", "unique", "sessions", "chain", "graves", "news", "orders"]
REST_STEPS = 3_000
"""Looks at whether everything has come to rest, twenty milliseconds apart."""


@dataclass(frozen=True)
class Site:
    """Where the stores are, and the seed of the whole run."""

    seed: int
    stores: tuple[str, ...]
    catalogue: str

    def plan(self) -> Plan:
        return make_plan(Random(f"{self.seed}/plan"), KINDS)


class Pipe:
    """Lines to the parent."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, line: bytes) -> int:
        return os.write(self._descriptor, line)

    def say(self, mark: str, value: object) -> None:
        self.write(f"{mark}{json.dumps(value)}\n".encode())


class LiveGround(Surroundings):
    """The ground of clients in a real process: when it dies they die with it."""

    schedules_ms = (10, 200, 800)
    pace = 0.04

    def __init__(self, seed: int, name: str, pipe: Pipe) -> None:
        clock = RealClock()
        super().__init__(seed, clock, clock, History(out=pipe))  # type: ignore[arg-type]
        self.name = name
        self.running: Bus | None = None
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()
        self._intents = 0

    @property
    def bus(self) -> Bus | None:
        return self.running

    @property
    def life(self) -> object:
        return self

    def call(self, inner: Promise[T]) -> Promise[T]:
        return inner

    def rng(self, purpose: str) -> Random:
        return Random(f"{self.seed}/{self.name}/{purpose}")

    def sleep(self, ms: float) -> Promise[None]:
        return pause(self._loop, ms)

    def intend(self, recorder: Recorder, op: str, entity: str, began: Began, **fields: Any) -> int:
        self._intents += 1
        event = Event(began.ms, began.ms, 0, recorder.client, op, entity, UNKNOWN, after=began.after, **fields)
        self._pipe.write(f"?{self._intents} ".encode() + to_line(event))
        return self._intents

    def done(self, intent: int) -> None:
        if intent:
            self._pipe.write(f"!{intent}\n".encode())

    def _ended(self, promise: Promise[T]) -> None:
        super()._ended(promise)
        if self.failures:
            self.fail(self.failures[0])

    def fail(self, error: BaseException) -> None:
        """A client met what it did not expect: the parent hears why, and the process ends."""
        self._pipe.say("E", "".join(traceback.format_exception(error)))
        os._exit(1)


async def _start(site: Site, ground: LiveGround, pipe: Pipe) -> Bus:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: ground.fail(context.get("exception") or RuntimeError(str(context))))
    harness = ground.recorder("harness")
    bus = assembled_at(loop, ground.clock, site.stores, site.catalogue)
    bus.on_error = ground.fail
    pipe.say("S", "starting")
    await run(bus.start([NAMESPACE]))
    for host in bus.stores:
        host.on_fenced = lambda store: ground.record_fencing(harness, store)
    ground.running = bus
    pipe.say("S", "started")
    return bus


def live(site: Site, life: int, descriptor: int) -> None:
    """One life: works until it is killed."""
    asyncio.run(_live(site, life, Pipe(descriptor)))


async def _live(site: Site, life: int, pipe: Pipe) -> None:
    plan = site.plan()
    ground = LiveGround(site.seed, f"life {life}", pipe)
    bus = await _start(site, ground, pipe)
    if plan.entities[0][0].path not in bus.namespace(NAMESPACE).entities:
        await run(plan.create(bus, NAMESPACE))
    for client in make_clients(ground, plan, SessionStates(), f"{life}/"):
        ground.go(client.work())
    await asyncio.Event().wait()


def finish(site: Site, descriptor: int) -> None:
    """The last life: everything comes to rest, some places are emptied, what is left is told."""
    asyncio.run(_finish(site, Pipe(descriptor)))


async def _finish(site: Site, pipe: Pipe) -> None:
    plan = site.plan()
    ground = LiveGround(site.seed, "end", pipe)
    bus = await _start(site, ground, pipe)
    left = await _rest(lambda: unrest(bus))
    if left:
        pipe.say("L", left)
    else:
        await _drain(ground, plan, pipe)
        names = [entity.name for entity in bus.entities.values()]
        final = await run(read_contents(ground, plan, names))
        pipe.say("F", asdict(final))
    await run(bus.stop())


async def _rest(left: Any) -> list[str]:
    for _ in range(REST_STEPS):
        found: list[str] = left()
        if not found:
            return []
        await asyncio.sleep(0.02)
    return found


async def _drain(ground: LiveGround, plan: Plan, pipe: Pipe) -> None:
    rng = ground.rng("drain")
    places = [place for place in plan.places if rng.random() < 0.6]
    drainers = [Drainer(f"drainer {place.name}", ground, plan, place) for place in places]
    working = [ground.go(drainer.work()) for drainer in drainers]

    def left() -> list[str]:
        found = [place.name for place in places if counts_of(ground, place).total]
        found += [drainer.name for drainer in drainers if drainer.under_way]
        return found + ["a drainer" for promise in working if not promise.settled]

    not_drained = await _rest(left)
    if not_drained:
        pipe.say("L", [f"{name} is not drained" for name in not_drained])
