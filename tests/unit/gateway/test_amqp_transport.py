"""The asyncio adapter: one write for each turn of the loop, one timer, and both brakes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from polybus import limits
from polybus.amqp.frames import AMQP_HEADER, SASL_HEADER, frame
from polybus.amqp.performatives import Begin, Open
from polybus.asyncio_bridge import run as run_promised
from polybus.clock import MovableClock
from polybus.gateway.amqp.transport import AmqpProtocol
from polybus.gateway.gateway import Gateway
from tests.protocol.peer import parse
from tests.support.assembly import MemoryOpener, assembled


class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.limit: int | None = None
        self.closed = False
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limit = high

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


async def gateway() -> Gateway:
    loop = asyncio.get_running_loop()
    bus = assembled(loop, MovableClock(), {"memory:": MemoryOpener(loop)}, MemoryOpener(loop))
    await run_promised(bus.start(["ns"]))
    return Gateway(bus, [])


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_everything_of_one_turn_is_one_write() -> None:
    async def work() -> None:
        protocol, wire = AmqpProtocol(await gateway()), Wire()
        protocol.connection_made(wire)
        assert wire.limit == limits.AMQP_UNSENT_BYTES
        protocol.data_received(AMQP_HEADER + frame(0, Open("c")))
        protocol.data_received(frame(0, Begin(0, 10, 10)) + frame(1, Begin(0, 10, 10)))
        assert wire.writes == []
        await turns()
        assert len(wire.writes) == 1
        assert len(parse(wire.writes[0])) == 4
        protocol.connection_lost(None)

    run(work())


def test_a_lost_connection_is_forgotten_and_its_timer_with_it() -> None:
    async def work() -> None:
        hub = await gateway()
        protocol, wire = AmqpProtocol(hub), Wire()
        protocol.connection_made(wire)
        assert len(hub.connections) == 1
        timer = protocol._timer
        assert timer is not None
        protocol.connection_lost(None)
        assert timer.cancelled()
        assert not hub.connections
        protocol.pause_writing()
        protocol.resume_writing()
        await turns()
        assert wire.writes == []

    run(work())


def test_the_timer_is_set_for_what_is_due_first() -> None:
    async def work() -> None:
        protocol = AmqpProtocol(await gateway())
        protocol.connection_made(Wire())
        loop = asyncio.get_running_loop()
        assert protocol._timer is not None
        assert protocol._timer.when() - loop.time() == pytest.approx(limits.AMQP_HANDSHAKE_MS / 1000, abs=1)
        protocol.data_received(AMQP_HEADER + frame(0, Open("c", idle_time_out=4_000)))
        assert protocol._timer.when() - loop.time() == pytest.approx(2, abs=1)
        protocol.connection_lost(None)

    run(work())


def test_a_connection_that_is_closed_by_the_bus_closes_its_transport() -> None:
    async def work() -> None:
        protocol, wire = AmqpProtocol(await gateway()), Wire()
        protocol.connection_made(wire)
        protocol.data_received(SASL_HEADER + b"nonsense")
        await turns()
        assert wire.closed
        protocol.connection_lost(None)

    run(work())


def test_pausing_reaches_the_endpoint() -> None:
    async def work() -> None:
        protocol = AmqpProtocol(await gateway())
        protocol.connection_made(Wire())
        assert protocol._endpoint is not None
        protocol.pause_writing()
        assert protocol._endpoint.blocked
        protocol.resume_writing()
        await turns()
        assert not protocol._endpoint.blocked
        protocol.connection_lost(None)

    run(work())
