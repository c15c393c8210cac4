"""uvicorn's HTTP protocols with what we need besides: header names as they came, quick answers, errors in XML, limits.

Custom properties of a message travel as headers, and a receiver gets their names in the sender's case; ASGI has
lower case only. The names are taken from h11, which keeps both. What a client sends is read in small pieces, so that no
number of headers, chunks or frames holds up the loop; a head that does not come, and an answer that nobody reads, end
the connection.
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from polybus import limits
from polybus.gateway.atom.documents import ERROR_TYPE, error_document
from polybus.gateway.http.request import CASED_HEADERS, KNOWN
from polybus.gateway.http.websocket import ABORT

_HEAD_END = re.compile(rb"\n\r?\n")
_PHRASES = {400: b"Bad Request", 408: b"Request Timeout", 431: b"Request Header Fields Too Large"}


class _Connection(h11.Connection):
    """Remembers the headers of the latest request with their names as written."""

    raw_headers: list[tuple[bytes, bytes]] = []

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.raw_headers = event.headers.raw_items()
        return event


class Pieces:
    """Bytes of a client that wait for their turn; `take` is given one piece after the other, for a few milliseconds."""

    def __init__(self, cut: Callable[[bytes], int], take: Callable[[bytes], None]) -> None:
        self._cut = cut
        self._take = take
        self._rest = b""
        self._due = False

    @property
    def waiting(self) -> bool:
        return self._due

    def add(self, data: bytes, transport: asyncio.Transport, resume: Callable[[], None]) -> None:
        self._rest = self._rest + data if self._rest else data
        if not self._due:
            self._work(transport, resume)

    def _work(self, transport: asyncio.Transport, resume: Callable[[], None]) -> None:
        self._due = False
        until_s = time.perf_counter() + limits.AMQP_TURN_SECONDS
        while self._rest and not transport.is_closing():
            length = self._cut(self._rest)
            piece, self._rest = self._rest[:length], self._rest[length:]
            self._take(piece)
            if self._rest and time.perf_counter() > until_s:
                self._due = True
                transport.pause_reading()
                asyncio.get_running_loop().call_soon(self._next, transport, resume)
                return

    def _next(self, transport: asyncio.Transport, resume: Callable[[], None]) -> None:
        self._work(transport, resume)
        if not self._due and not transport.is_closing():
            resume()


def _lines(data: bytes) -> int:
    """The length of a piece that has as many lines as one turn reads."""
    end = -1
    for _ in range(limits.HTTP_TURN_LINES):
        end = data.find(b"\n", end + 1, limits.HTTP_TURN_BYTES)
        if end < 0:
            return limits.HTTP_TURN_BYTES
    return end + 1


def _frames(data: bytes) -> int:
    del data
    return limits.WEBSOCKET_TURN_BYTES


class HttpProtocol(H11Protocol):  # type: ignore[misc]
    """What listeners make for a connection that turns out to speak HTTP."""

    def __init__(
        self, *args: Any, known: Callable[[socket.socket | None], None] | None = None, **options: Any
    ) -> None:
        """`known` is told of the socket whose client has shown who it is."""
        super().__init__(*args, **options)
        self.conn = _Connection(h11.SERVER, limits.HTTP_HEADER_BYTES)
        self._known = known
        self._pieces = Pieces(_lines, self._read)
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_lines = 0
        self._head_tail = b""
        self._unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        # Headers and body leave in two writes; held back by Nagle's algorithm the second would come 40 ms later.
        # asyncio does this only for sockets that were made with the protocol's number.
        connected = transport.get_extra_info("socket")
        if connected is not None and connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        if len(self.connections) > limits.HTTP_CONNECTIONS:
            transport.abort()

    # Reading

    def data_received(self, data: bytes) -> None:
        self._pieces.add(data, self.transport, self._resume)

    def _resume(self) -> None:
        if not self.flow.read_paused:
            self.transport.resume_reading()

    def _read(self, piece: bytes) -> None:
        if self.transport.get_protocol() is not self:  # it has become a WebSocket meanwhile
            self.transport.get_protocol().data_received(piece)
        elif self._head_fits(piece):
            super().data_received(piece)

    def _head_fits(self, piece: bytes) -> bool:
        """Counts the lines of a head before they are taken apart: each costs as much as a small request."""
        if self.conn.their_state is not h11.IDLE:
            return True
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(limits.HTTP_HEAD_SECONDS, self._head_is_late)
        looked_at = self._head_tail + piece
        end = _HEAD_END.search(looked_at)
        head = looked_at if end is None else looked_at[: end.end()]
        self._head_lines += head.count(b"\n") - self._head_tail.count(b"\n")
        self._head_tail = piece[-3:]
        if self._head_lines <= limits.HTTP_HEADERS + 16:
            return True
        self._refuse(431, "The request has too many headers.")
        return False

    def _head_is_late(self) -> None:
        self._refuse(408, "The head of the request did not arrive in time.")

    def _head_is_here(self) -> None:
        self._head_lines, self._head_tail = 0, b""
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def handle_events(self) -> None:
        before = self.scope
        super().handle_events()
        # The application starts in the next turn of the loop, so what is added now is there when it looks.
        if self.scope is not None and self.scope is not before:
            self._head_is_here()
            self.scope[CASED_HEADERS] = self.conn.raw_headers
            self.scope[KNOWN] = self._is_known

    def _is_known(self) -> None:
        if self._known is not None:
            self._known(self.transport.get_extra_info("socket"))

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._head_is_here()
        super().handle_websocket_upgrade(event)
        protocol = self.transport.get_protocol()
        if isinstance(protocol, WebSocketProtocol):
            protocol.told_known = self._is_known

    # Writing

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread_timer is None:
            self._unread_timer = self.loop.call_later(limits.HTTP_UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_here()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
        super().connection_lost(exc)

    # Refusals

    def send_400_response(self, msg: str) -> None:
        """A request that is not HTTP, told in the one form that our clients read."""
        self._refuse(400, msg)

    def _refuse(self, status: int, text: str) -> None:
        body = error_document(status, f"SubCode={status * 100}. {text}")
        headers = [
            ("Content-Type", ERROR_TYPE),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        if self.transport.is_closing():
            return
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            response = h11.Response(status_code=status, headers=headers, reason=_PHRASES[status])
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event))
        self.transport.close()
        # What was written may leave, but a client that does not read keeps no socket.
        self.loop.call_later(limits.HTTP_DRAIN_SECONDS, self.transport.abort)


class WebSocketProtocol(WSProtocol):  # type: ignore[misc]
    """uvicorn's WebSocket, read in pieces, whose application can end it at once."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.told_known: Callable[[], None] | None = None
        self._pieces = Pieces(_frames, super().data_received)

    def data_received(self, data: bytes) -> None:
        self._pieces.add(data, self.transport, self._resume)

    def _resume(self) -> None:
        if not self.read_paused:
            self.transport.resume_reading()

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        self.scope[ABORT] = self.transport.abort
        self.scope[KNOWN] = self._is_known

    def _is_known(self) -> None:
        if self.told_known is not None:
            self.told_known()
