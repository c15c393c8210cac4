"""What goes wrong, when, and for how long: the faults that a seed injects.

A run has one to three misfortunes of the list below. Each is a coroutine that lives until the run is closing; what
it has broken is healed by the ending, which then wants everything to come to rest.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any, Final

from tests.support.sim_store import Fault, SimFaults
from tests.support.simulation.checking import check_disks
from tests.support.simulation.world import Disk, World

Misfortune = Callable[["Nemesis", Random], Coroutine[Any, Any, None]]


class Nemesis:
    def __init__(self, world: World, kinds: list[str]) -> None:
        self.world = world
        self.kinds = kinds
        self.closing = False
        self.findings: list[str] = []

    def begin(self) -> None:
        for kind in self.kinds:
            self.world.go(MISFORTUNES[kind](self, self.world.rng(f"nemesis {kind}")))

    def close(self) -> None:
        self.closing = True

    async def pause(self, rng: Random, low_ms: float, high_ms: float) -> bool:
        """Waits; False where the run is closing."""
        await self.world.sleep(rng.uniform(low_ms, high_ms))
        return not self.closing


def choose(rng: Random) -> list[str]:
    return rng.sample(list(MISFORTUNES), rng.choice((1, 1, 2, 2, 3)))


async def _doubt(nemesis: Nemesis, rng: Random) -> None:
    """Commits that fail after they have written, or before, on every store."""
    rate = rng.choice((0.01, 0.03, 0.1))
    for disk in nemesis.world.disks:
        disk.faults = replace(disk.faults, fail_after=rate, fail_before=rate / 3)
        disk.apply()


async def _outages(nemesis: Nemesis, rng: Random) -> None:
    """Stores that are gone for a while, one or several at a time."""
    while await nemesis.pause(rng, 500, 5_000):
        gone = rng.sample(nemesis.world.disks, rng.choice((1, 1, 2)) if len(nemesis.world.disks) > 1 else 1)
        for disk in gone:
            disk.down = True
            disk.apply()
        await nemesis.pause(rng, 100, 8_000)
        for disk in gone:
            disk.down = False
            disk.apply()


async def _hangs(nemesis: Nemesis, rng: Random) -> None:
    """Commits that do not come back, for shorter or longer than the bus has patience."""
    while await nemesis.pause(rng, 500, 4_000):
        disk = rng.choice(nemesis.world.disks)
        disk.plan(Fault.HANG)
        await nemesis.pause(rng, 500, 12_000)
        disk.release()


async def _slowness(nemesis: Nemesis, rng: Random) -> None:
    for disk in nemesis.world.disks:
        if rng.random() < 0.6:
            commit_ms = rng.choice(((1.0, 40.0), (50.0, 600.0)))
            disk.faults = replace(disk.faults, commit_ms=commit_ms, read_ms=(0.0, rng.choice((5.0, 300.0))))
            disk.apply()


async def _bad_reads(nemesis: Nemesis, rng: Random) -> None:
    for disk in nemesis.world.disks:
        disk.faults = replace(disk.faults, fail_read=rng.choice((0.01, 0.1)))
        disk.apply()


async def _fullness(nemesis: Nemesis, rng: Random) -> None:
    while await nemesis.pause(rng, 300, 4_000):
        rng.choice(nemesis.world.disks).plan(Fault.FULL)


async def _catalogue(nemesis: Nemesis, rng: Random) -> None:
    """The catalogue fails in all ways, and is gone for a while."""
    disk: Disk = nemesis.world.catalogue
    disk.faults = SimFaults(fail_after=0.1, fail_before=0.1, fail_read=0.02)
    disk.apply()
    while await nemesis.pause(rng, 500, 6_000):
        if rng.random() < 0.5:
            disk.plan(Fault.HANG)
            await nemesis.pause(rng, 200, 9_000)
            disk.release()
        else:
            disk.down = True
            disk.apply()
            await nemesis.pause(rng, 100, 4_000)
            disk.down = False
            disk.apply()


async def _deaths(nemesis: Nemesis, rng: Random) -> None:
    """The process is killed, or now and then stopped in good order, and started again."""
    while await nemesis.pause(rng, 500, 10_000):
        if rng.random() < 0.25:
            await nemesis.world.stop()
        else:
            nemesis.world.die()
        nemesis.findings += check_disks(nemesis.world)
        await nemesis.pause(rng, 0, 1_500)
        await nemesis.world.start()


async def _clocks(nemesis: Nemesis, rng: Random) -> None:
    while await nemesis.pause(rng, 300, 6_000):
        draw = rng.random()
        if draw < 0.4:
            nemesis.world.jump_wall(rng.choice((-3_000, -200, -1)))
        elif draw < 0.8:
            nemesis.world.jump_wall(rng.choice((1, 700, 6_000)))
        else:
            nemesis.world.advance(rng.choice((100, 3_000, 6_000)))


MISFORTUNES: Final[dict[str, Misfortune]] = {
    "doubt": _doubt,
    "outages": _outages,
    "hangs": _hangs,
    "slowness": _slowness,
    "bad reads": _bad_reads,
    "fullness": _fullness,
    "catalogue": _catalogue,
    "deaths": _deaths,
    "clocks": _clocks,
}
