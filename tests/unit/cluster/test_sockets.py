"""Links over real Unix sockets, between real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from polybus.asyncio_bridge import from_promise
from polybus.clock import RealClock
from polybus.cluster.link import Link
from polybus.cluster.remote_partition import RemotePartition, RemotePartitions
from polybus.cluster.sockets import connect, listen
from polybus.errors import PartitionUnavailable
from polybus.hosting.store_host import InDoubt, StoreHost
from polybus.message.message import build
from polybus.namespace.delivery.source import Delivery, MessageSource
from polybus.partition.kinds import MAIN
from polybus.partition.settings import EntitySettings
from polybus.promise import Promise

_CHILD = """
import asyncio, sys
from pathlib import Path
from bench.bench_bus import BenchBus
from polybus.cluster.owner import Owner
from polybus.cluster.sockets import listen
from polybus.namespace.entities.description import QueueDescription

async def main():
    async with BenchBus(["memory:"]) as bench:
        queue = await bench.create(QueueDescription(path="q"))
        partition = queue.partitions[0]
        find = lambda entity_id, index: partition if (entity_id, index) == (queue.id, 0) else None
        await listen(Path(sys.argv[1]), lambda link: Owner(link, find, bench.bus.clock))
        print(queue.id, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


class Completing:
    """A receiver that completes what it gets."""

    def __init__(self, credit: int) -> None:
        self.credit = credit
        self.deletes = False
        self.bodies: list[bytes] = []
        self.done = 0
        self._clock = RealClock()

    def deliver(self, delivery: Delivery) -> None:
        self.bodies.append(delivery.message.raw)
        delivery.partition.complete(delivery, self._clock.now(), self._completed, None)

    def _completed(self, context: object, result: object, error: Exception | None) -> None:
        assert error is None, error
        self.done += 1

    def failed(self, error: Exception) -> None:
        raise error


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def remote(link: Link, entity_id: int) -> RemotePartition:
    loop = asyncio.get_running_loop()
    store = StoreHost("elsewhere", loop, Promise)
    return RemotePartitions(link).add(entity_id, 0, EntitySettings("q", 1, False), store)


async def play(path: Path) -> None:
    environment = {**os.environ, "POLYBUS_BUILD": "plain"}
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CHILD, str(path), stdout=asyncio.subprocess.PIPE, env=environment
    )
    try:
        assert child.stdout is not None
        entity_id = int((await child.stdout.readline()).strip())
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        partition = remote(await connect(path), entity_id)
        await until(lambda: partition.available)
        receiver = Completing(1000)
        MessageSource("q", MAIN, [partition]).want(receiver)
        sent = []
        for number in range(300):
            done: Promise[list[int]] = Promise()
            partition.send([build(b"%d" % number)], done.reply, None)
            sent.append(from_promise(done))
        assert [numbers[0] for numbers in await asyncio.gather(*sent)] == list(range(1, 301))
        await until(lambda: receiver.done == 300)
        assert receiver.bodies == [build(b"%d" % number).raw for number in range(300)]
        found = await from_promise(partition.statistics([0]))
        assert [(log.active, log.locked) for log in found.logs if log.id == MAIN] == [(0, 0)]
        await killed(child, partition)
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def killed(child: asyncio.subprocess.Process, partition: RemotePartition) -> None:
    """The owner is frozen with a send under way, and killed."""
    child.send_signal(signal.SIGSTOP)
    done: Promise[list[int]] = Promise()
    partition.send([build(b"under way")], done.reply, None)
    child.kill()
    with pytest.raises(InDoubt):
        await from_promise(done)
    assert not partition.available
    with pytest.raises(PartitionUnavailable):
        await from_promise(partition.log_end(MAIN))


def test_messages_pass_a_socket_and_its_end_is_heard(tmp_path: Path) -> None:
    asyncio.run(play(tmp_path / "s"))


def test_a_socket_that_a_dead_process_left_is_replaced(tmp_path: Path) -> None:
    async def twice() -> None:
        path = tmp_path / "s"
        path.touch()
        accepted: list[Link] = []
        server = await listen(path, accepted.append)
        link = await connect(path)
        await until(lambda: bool(accepted))
        link.close()
        await until(lambda: accepted[0].closed)
        server.close()
        await server.wait_closed()

    asyncio.run(twice())
