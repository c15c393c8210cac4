"""uvicorn's HTTP protocol with what we need besides: header names as they came, quick answers, errors in XML.

Custom properties of a message travel as headers, and a receiver gets their names in the sender's case; ASGI has
lower case only. The names are taken from h11, which keeps both.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from polybus.gateway.atom.documents import ERROR_TYPE, error_document
from polybus.gateway.http.request import CASED_HEADERS
from polybus.limits import HTTP_HEADER_BYTES


class _HttpConnection(h11.Connection):
    """Remembers the headers of the latest request with their names as written."""

    raw_headers: list[tuple[bytes, bytes]] = []

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.raw_headers = event.headers.raw_items()
        return event


class HttpProtocol(H11Protocol):  # type: ignore[misc]
    """What listeners make for a connection that turns out to speak HTTP."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn = _HttpConnection(h11.SERVER, HTTP_HEADER_BYTES)

    def connection_made(self, transport: asyncio.Transport) -> None:
        # Headers and body leave in two writes; held back by Nagle's algorithm the second would come 40 ms later.
        # asyncio does this only for sockets that were made with the protocol's number.
        connected = transport.get_extra_info("socket")
        if connected is not None and connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)

    def handle_events(self) -> None:
        before = self.scope
        super().handle_events()
        # The application starts in the next turn of the loop, so what is added now is there when it looks.
        if self.scope is not None and self.scope is not before:
            self.scope[CASED_HEADERS] = self.conn.raw_headers

    def send_400_response(self, msg: str) -> None:
        """A request that is not HTTP, told in the one form that our clients read."""
        body = error_document(400, f"SubCode=40000. {msg}")
        headers = [
            ("Content-Type", ERROR_TYPE),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            response = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event))
        self.transport.close()
