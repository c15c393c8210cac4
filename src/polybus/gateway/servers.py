"""The protocols that a listener hands connections to: AMQP, and HTTP on uvicorn's protocol classes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.server import ServerState

from polybus import limits
from polybus.gateway.amqp.transport import AmqpProtocol
from polybus.gateway.gateway import Gateway
from polybus.gateway.http.app import make_app
from polybus.gateway.http.protocol import HttpProtocol, WebSocketProtocol
from polybus.gateway.listener import ProtocolFactory

if TYPE_CHECKING:
    from polybus.gateway.http.faults import FaultPanel


def amqp_protocol(gateway: Gateway) -> ProtocolFactory:
    return lambda: AmqpProtocol(gateway)


def http_protocol(gateway: Gateway, faults: FaultPanel | None, open_metrics: bool) -> ProtocolFactory:
    """Connections for the HTTP API, AMQP over WebSocket among it."""
    config = uvicorn.Config(
        make_app(gateway, faults=faults, open_metrics=open_metrics),
        http="h11",
        ws=WebSocketProtocol,
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=limits.HTTP_HEADER_BYTES,
        timeout_keep_alive=limits.HTTP_KEEP_ALIVE_SECONDS,
        # AMQP has heartbeats of its own, and a client that is busy must not be dropped for a missed pong.
        ws_ping_interval=None,
        ws_max_size=limits.WEBSOCKET_MESSAGE_BYTES,
        # Decompression has no bound.
        ws_per_message_deflate=False,
    )
    config.load()
    state = ServerState()
    gateway.http_connections = state.connections

    def protocol() -> asyncio.Protocol:
        made = HttpProtocol(config=config, server_state=state, app_state={}, known=gateway.sockets.known)
        assert isinstance(made, asyncio.Protocol)
        return made

    return protocol
