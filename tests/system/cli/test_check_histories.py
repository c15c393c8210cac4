"""Whatever a bus went through, and however it ended, the check has nothing to find."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path

import pytest

from polybus.message import outcome
from polybus.message.message import build
from polybus.namespace.delivery.source import Delivery
from polybus.namespace.entities.description import QueueDescription, SubscriptionDescription, TopicDescription
from polybus.operations.check import catalogue_url, check, store_urls
from polybus.partition.kinds import KINDS, MAIN
from tests.system.cli.small_bus import LARGE, SmallBus

STEPS = 120


def findings(data: Path) -> list[str]:
    return [str(finding) for finding in check(catalogue_url(data), store_urls(data)).findings]


@pytest.mark.parametrize("seed", range(4))
def test_random_histories_are_clean(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    wall_ms = 1_800_000_000_000
    for _ in range(3):
        wall_ms += 60_000
        asyncio.run(live(tmp_path, chance, wall_ms))
        assert findings(tmp_path) == []


async def live(data: Path, chance: random.Random, wall_ms: int) -> None:
    """One run of the bus: random sends, receipts and settlements, and time that passes."""
    async with SmallBus(data, wall_ms=wall_ms) as bus:
        if bus.namespace.find("q") is None:
            await declare(bus)
        bus.keep_settled("t")
        for _ in range(STEPS):
            action = chance.choice((send, send, send, settle_some, settle_some, advance))
            await action(bus, chance)


async def declare(bus: SmallBus) -> None:
    await bus.create(
        QueueDescription(
            path="q",
            enable_partitioning=True,
            requires_duplicate_detection=True,
            duplicate_detection_history_time_window_ms=20_000,
            dead_lettering_on_message_expiration=True,
            max_delivery_count=2,
        )
    )
    await bus.create(TopicDescription(path="t", enable_partitioning=True))
    for name in ("a", "b"):
        await bus.subscribe(SubscriptionDescription(topic="t", name=name, default_message_time_to_live_ms=30_000))
    await bus.create(QueueDescription(path="f", forward_to="q"))


async def send(bus: SmallBus, chance: random.Random) -> None:
    now_ms = bus.clock.now().wall_ms
    messages = [
        build(
            chance.choice((b"small", b"m" * 300, LARGE)),
            message_id=f"m{chance.randrange(60)}" if chance.random() < 0.8 else None,
            partition_key="k",
            ttl_ms=chance.choice((None, None, 5_000, 50_000)),
            scheduled_ms=chance.choice((None, None, None, now_ms + 10_000)),
        )
        for _ in range(chance.randint(1, 3))
    ]
    await bus.send(chance.choice(("q", "t", "f")), *messages)


async def settle_some(bus: SmallBus, chance: random.Random) -> None:
    path = chance.choice(("q", "q/$DeadLetterQueue", "t/Subscriptions/a", "t/Subscriptions/b"))
    for delivery in await bus.receive_now(path, chance.randint(1, 4)):
        await settle(bus, delivery, chance)


async def settle(bus: SmallBus, delivery: Delivery, chance: random.Random) -> None:
    kind = chance.random()
    if kind < 0.4:
        await bus.complete(delivery)
    elif kind < 0.6:
        await bus.settle(delivery, outcome.ABANDON, properties={"n": 1})
    elif kind < 0.75:
        await bus.defer(delivery)
    elif kind < 0.9 and delivery.log_id % KINDS == MAIN:
        await bus.dead_letter(delivery)


async def advance(bus: SmallBus, chance: random.Random) -> None:
    bus.clock.advance(chance.choice((1_000, 10_000, 40_000)))
    bus.bus.clock_moved()
    await asyncio.sleep(0)


CHILD = """
import asyncio, random, sys
from pathlib import Path
from tests.system.cli.small_bus import SmallBus
from tests.system.cli.test_check_histories import declare, send, settle_some

async def run():
    chance = random.Random(int(sys.argv[2]))
    async with SmallBus(Path(sys.argv[1])) as bus:
        await declare(bus)
        bus.keep_settled("t")
        while True:
            await asyncio.gather(*(chance.choice((send, settle_some))(bus, chance) for _ in range(10)))
            print("alive", flush=True)

asyncio.run(run())
"""


@pytest.mark.parametrize("seed", range(3))
def test_a_bus_that_was_killed_is_clean(seed: int, tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path), str(seed)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    for _ in range(10 + seed * 7):
        assert child.stdout.readline() == b"alive\n"
    child.kill()
    child.communicate()
    assert findings(tmp_path) == []
