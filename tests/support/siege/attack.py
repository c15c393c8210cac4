"""One attack: what is done, and what it may cost. The scene is the server that it is done to."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass

from polybus.client.sas import make_token
from polybus.limits import LOOP_STEP_MS
from tests.support.siege.peer import Peer
from tests.support.siege.watched import WatchedServer

MB = 1024 * 1024
PATIENCE_S = 3.0


class Scene:
    """A server under attack."""

    def __init__(self, server: WatchedServer) -> None:
        self.server = server
        self.amqp = server.addresses["amqp"]
        self.http = server.addresses["http"]
        self.token = make_token("http://x/", "RootManageSharedAccessKey", "SAS_KEY_VALUE", 4_000_000_000)

    def stranger(self) -> Peer:
        return Peer(self.amqp)

    def known(self) -> Peer:
        return Peer(self.amqp, known=True)

    def socket(self) -> socket.socket:
        host, _, port = self.http.rpartition(":")
        return socket.create_connection((host, int(port)), PATIENCE_S)

    def ask(self, request: bytes, *, seconds: float = PATIENCE_S) -> bytes:
        """Sends bytes over HTTP; the beginning of what comes back, if anything does."""
        with contextlib.suppress(OSError), self.socket() as client:
            client.settimeout(seconds)
            client.sendall(request)
            return client.recv(65_536)
        return b""

    def head(self, line: str, *headers: str) -> bytes:
        """The head of a request of somebody who is known."""
        return "\r\n".join([line, "Host: x", f"Authorization: {self.token}", *headers, "", ""]).encode("latin-1")


@dataclass(frozen=True)
class Attack:
    """`step_ms`, `bytes` and `descriptors` bound what it costs the server; `known` says that it shows a key."""

    name: str
    run: Callable[[Scene], None]
    known: bool = False
    step_ms: float = LOOP_STEP_MS
    bytes: int = 32 * MB
    descriptors: int = 16
