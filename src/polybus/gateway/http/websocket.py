"""AMQP over WebSocket: for clients behind proxies that let nothing but HTTP through (docs/protocol/amqp.md#websocket).

Each binary message carries some bytes of the AMQP stream, cut anywhere; what they mean is the AMQP side's business,
which sees a transport like any other. Browsers may open a WebSocket to any host and say from where: a page of another
origin is refused unless it was allowed, or every web page could talk to the bus on a developer's machine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from starlette.types import Receive, Scope, Send

from polybus.gateway.amqp.transport import AmqpProtocol
from polybus.gateway.atom.documents import ERROR_TYPE, error_document
from polybus.gateway.gateway import Gateway
from polybus.gateway.http.own_names import host_in
from polybus.gateway.http.request import KNOWN
from polybus.namespace.entities.names import fold

log = logging.getLogger(__name__)

ABORT = "polybus.abort"
"""Where the protocol leaves the way to end the connection at once."""
PATH = "/$servicebus/websocket"
PROTOCOLS = ("amqpwsb10", "amqp")
"""Names under which clients ask for AMQP; the answer repeats the client's own spelling."""
NOT_BINARY = 1003
NORMAL = 1000


async def handle_websocket(
    gateway: Gateway, origins: Collection[str], scope: Scope, receive: Receive, send: Send
) -> None:
    """Serves one WebSocket from its opening to its end."""
    await receive()
    refused = _refusal(gateway, scope, origins)
    if refused is not None:
        tracking_id = f"{uuid4()}_G0"
        log.info("a WebSocket was refused: %s", refused[1], extra={"tracking_id": tracking_id, "status": refused[0]})
        await _refuse(send, refused[0], f"{refused[1]} TrackingId:{tracking_id}")
        return
    await send({"type": "websocket.accept", "subprotocol": _protocol(scope)})
    transport = WebSocketTransport(send, scope.get(ABORT), scope.get("client"))
    protocol = AmqpProtocol(gateway, scope.get(KNOWN))
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    try:
        await _read(transport, protocol, receive)
    finally:
        transport.stop()
        protocol.connection_lost(None)
        await transport.finished()


def _refusal(gateway: Gateway, scope: Scope, origins: Collection[str]) -> tuple[int, str] | None:
    if fold(_path(scope)) != PATH:
        return 404, "There is no WebSocket at this path."
    headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
    origin = headers.get(b"origin")
    if origin is not None and origin not in origins and not _is_own(gateway, origin, headers.get(b"host", "")):
        return 403, "WebSockets from this origin are not allowed."
    if scope.get("subprotocols") and _protocol(scope) is None:
        return 400, f"The WebSocket must speak one of {', '.join(PROTOCOLS)}."
    return None


def _path(scope: Scope) -> str:
    """The path that was asked for; the Java SDK puts the whole address into its request line (RFC 9112 §3.2.2)."""
    raw: Any = scope.get("raw_path") or scope["path"].encode()
    target = raw.decode("latin-1")
    path = target if target.startswith("/") else urlsplit(target).path
    return unquote(path).rstrip("/")


def _is_own(gateway: Gateway, origin: str, host: str) -> bool:
    """Whether an origin is the bus itself: the Python SDK sends the address that it connects to.

    A page whose own name leads to this machine (DNS rebinding) is its own origin too, so the name must be the bus's.
    """
    return host_in(origin).lower() == host.lower() and gateway.own_names.has(host)


def _protocol(scope: Scope) -> str | None:
    return next((name for name in scope.get("subprotocols", []) if fold(name) in PROTOCOLS), None)


async def _refuse(send: Send, status: int, text: str) -> None:
    body = error_document(status, f"SubCode={status * 100}. {text}")
    headers = [(b"content-type", ERROR_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})


async def _read(transport: WebSocketTransport, protocol: AmqpProtocol, receive: Receive) -> None:
    """Hands on what the client sends, until it goes or the AMQP side closes."""
    while not transport.is_closing():
        await transport.may_read()
        message = await transport.unless_closed(receive())
        if message is None or message["type"] == "websocket.disconnect":
            return
        data = message.get("bytes")
        if data is None:
            transport.close_with(NOT_BINARY)
            return
        protocol.data_received(data)


class WebSocketTransport(asyncio.Transport):
    """A WebSocket as the AMQP side sees it: bytes are written at once and leave as fast as the client takes them."""

    def __init__(self, send: Send, abort: Callable[[], None] | None = None, client: object = None) -> None:
        """`abort` ends the connection under the WebSocket: a client that does not read would never see it closed.

        `client` is its address and port.
        """
        super().__init__({"peername": client})
        self._send = send
        self._abort = abort
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._in_flight_bytes = 0
        self._limit = 0
        self._paused = False
        self._closing = False
        self._code = NORMAL
        self._protocol: asyncio.BaseProtocol | None = None
        self._readable = asyncio.Event()
        self._readable.set()
        self._closed = asyncio.Event()
        self._written = asyncio.Event()
        self._writing = asyncio.get_running_loop().create_task(self._write_all())

    # What the AMQP side calls

    def write(self, data: Any) -> None:
        if not self._closing:
            self._unsent.append(bytes(data))
            self._unsent_bytes += len(data)
            self._written.set()
            self._check_limit()

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes + self._in_flight_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        del low
        self._limit = high or 0

    def pause_reading(self) -> None:
        self._readable.clear()

    def resume_reading(self) -> None:
        self._readable.set()

    def close(self) -> None:
        """Closes after everything that was written has left."""
        self._closing = True
        self._readable.set()
        self._closed.set()
        self._written.set()

    def close_with(self, code: int) -> None:
        self._code = code
        self.close()

    def abort(self) -> None:
        self._unsent.clear()
        self._unsent_bytes = 0
        self.close()
        if self._abort is not None:
            self._abort()

    def is_closing(self) -> bool:
        return self._closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None, "a transport has a protocol when it is used"
        return self._protocol

    # What the reading side calls

    async def may_read(self) -> None:
        await self._readable.wait()

    async def unless_closed(self, message: Any) -> Any:
        """The next message, or None where the AMQP side closed before one came."""
        coming = asyncio.ensure_future(message)
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait((coming, closed), return_when=asyncio.FIRST_COMPLETED)
            return coming.result() if coming.done() else None
        finally:
            coming.cancel()
            closed.cancel()

    def stop(self) -> None:
        self.close()

    async def finished(self) -> None:
        """Returns when the last bytes have left, or the client is gone."""
        await asyncio.gather(self._writing, return_exceptions=True)

    # Writing

    async def _write_all(self) -> None:
        try:
            while True:
                await self._written.wait()
                self._written.clear()
                while self._unsent:
                    await self._write_once()
                if self._closing:
                    await self._send({"type": "websocket.close", "code": self._code})
                    return
        except Exception as error:
            # The client is gone: the reading side hears of it, and ends everything.
            log.debug("a WebSocket could not be written: %s", error)

    async def _write_once(self) -> None:
        data = b"".join(self._unsent)
        self._unsent.clear()
        self._unsent_bytes, self._in_flight_bytes = 0, len(data)
        await self._send({"type": "websocket.send", "bytes": data})
        self._in_flight_bytes = 0
        self._check_limit()

    def _check_limit(self) -> None:
        """Tells the AMQP side to wait, or to go on."""
        over = self.get_write_buffer_size() > self._limit
        if over != self._paused and isinstance(self._protocol, asyncio.Protocol):
            self._paused = over
            if over:
                self._protocol.pause_writing()
            else:
                self._protocol.resume_writing()
