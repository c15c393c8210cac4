"""AMQP on an asyncio transport: bytes in and out, one timer, and the brakes of both directions.

The only file of the AMQP side that knows asyncio. What the bytes mean is the endpoint's business.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from polybus.gateway.amqp.endpoint import AmqpEndpoint
from polybus.gateway.gateway import Gateway
from polybus.limits import AMQP_UNSENT_BYTES


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class AsyncioTransport:
    """An asyncio transport as an endpoint sees it."""

    __slots__ = ("_transport",)

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    @property
    def unsent(self) -> int:
        return self._transport.get_write_buffer_size()


class AmqpProtocol(asyncio.Protocol):
    """One client over TCP or TLS."""

    def __init__(self, gateway: Gateway, known: Callable[[], None] | None = None) -> None:
        """`known` is called when the client has shown who it is, where that is not its socket's business."""
        self._gateway = gateway
        self._known = known
        self._endpoint: AmqpEndpoint | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms: int | None = None
        self._told = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(AMQP_UNSENT_BYTES)
        self._transport = transport
        self._endpoint = AmqpEndpoint(self._gateway, AsyncioTransport(transport), monotonic_ms())
        peer = transport.get_extra_info("peername")
        self._endpoint.client_host = str(peer[0]) if isinstance(peer, (tuple, list)) and peer else None
        self._arm()

    def data_received(self, data: bytes) -> None:
        assert self._endpoint is not None
        self._endpoint.feed(data, monotonic_ms())
        self._arm()
        if self._endpoint is not None and not self._told and self._endpoint.connection.known:
            self._told = True
            self._tell_known()

    def _tell_known(self) -> None:
        if self._known is not None:
            self._known()
        elif self._transport is not None:
            self._gateway.sockets.known(self._transport.get_extra_info("socket"))

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self._timer is not None:
            self._timer.cancel()
        if self._endpoint is not None:
            self._endpoint.lost()
        self._endpoint = None
        self._transport = None

    def pause_writing(self) -> None:
        if self._endpoint is not None:
            self._endpoint.pause_writing()

    def resume_writing(self) -> None:
        if self._endpoint is not None:
            self._endpoint.resume_writing()

    def _arm(self) -> None:
        """Sets the timer where something is due before it would ring."""
        endpoint = self._endpoint
        due_ms = None if endpoint is None else endpoint.next_tick_ms
        if due_ms is None or (self._armed_ms is not None and self._armed_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_ms = due_ms
        seconds = max(due_ms - monotonic_ms(), 0) / 1000
        self._timer = asyncio.get_running_loop().call_later(seconds, self._tick)

    def _tick(self) -> None:
        self._armed_ms = None
        if self._endpoint is not None:
            self._endpoint.tick(monotonic_ms())
            self._arm()
