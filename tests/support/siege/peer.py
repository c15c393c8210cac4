"""A peer that keeps to no rule: frames as it likes them, on a real socket, with or without showing who it is."""

from __future__ import annotations

import socket
import time
from types import TracebackType
from typing import Any

from polybus.amqp.codec import encode
from polybus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from polybus.amqp.performatives import Attach, Begin, Open, Performative
from polybus.amqp.sasl import Init
from polybus.amqp.terminus import Source, Target
from polybus.amqp.traffic import Flow, Transfer
from tests.support.raw_frames import Frame, take_frame

PATIENCE_S = 10.0
LOGIN = b"\x00RootManageSharedAccessKey\x00SAS_KEY_VALUE"


class Peer:
    """One AMQP connection. Without `known` it stays anonymous, as everybody may be until its first token."""

    def __init__(self, address: str, *, known: bool = False, buffer: int | None = None) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.socket()
        if buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(PATIENCE_S)
        self._unread = bytearray()
        self.closed = False
        try:
            self.socket.connect((host, int(port)))
            self._log_in(known)
        except BaseException:
            self.socket.close()
            raise

    def _log_in(self, known: bool) -> None:
        init = Init("PLAIN", LOGIN) if known else Init("ANONYMOUS", b"")
        self.send(SASL_HEADER + frame(0, init, SASL_FRAME))
        self.until("sasl-outcome")
        self.send(AMQP_HEADER + frame(0, Open("peer", "localhost", 65536)))
        if self.until("open") is None:
            raise ConnectionError("the server does not answer")

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    # Bytes

    def send(self, data: bytes) -> bool:
        """False once the server has hung up."""
        try:
            self.socket.sendall(data)
        except OSError:
            self.closed = True
        return not self.closed

    def say(self, performative: Performative, channel: int = 0, payload: bytes = b"") -> bool:
        return self.send(frame(channel, performative, payload=payload))

    def until(self, *names: str, seconds: float = PATIENCE_S) -> Frame | None:
        """The next frame of one of these kinds; None where the server hangs up, or says nothing of it in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            while (one := take_frame(self._unread)) is not None:
                if one.name in names:
                    return one
            if not self._read(deadline):
                return None
        return None

    def _read(self, deadline: float) -> bool:
        self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            data = self.socket.recv(65_536)
        except TimeoutError:
            return False
        except OSError:
            data = b""
        finally:
            self.socket.settimeout(PATIENCE_S)
        self._unread += data
        self.closed = self.closed or not data
        return bool(data)

    # Sessions and links

    def begin(self, channel: int = 0, window: int = 5_000) -> None:
        self.say(Begin(0, window, window, handle_max=255), channel)
        self.until("begin")

    def attach_sender(self, address: str, handle: int = 0, channel: int = 0, name: str | None = None) -> None:
        attach = Attach(
            name or f"s{channel}-{handle}", handle, False, Source("here"), Target(address), initial_delivery_count=0
        )
        self.say(attach, channel)

    def attach_receiver(self, address: str, handle: int = 1, channel: int = 0, name: str | None = None) -> None:
        self.say(Attach(name or f"r{channel}-{handle}", handle, True, Source(address), Target("here")), channel)

    def credit(self, handle: int, credit: int, channel: int = 0, window: int = 5_000) -> None:
        self.say(Flow(None, window, 0, 5_000, handle, 0, credit), channel)

    def transfer(
        self,
        payload: bytes,
        handle: int = 0,
        number: int = 0,
        channel: int = 0,
        more: bool = False,
        size: int = 60_000,
    ) -> bool:
        """One delivery in as many frames as it takes; with `more` it never ends."""
        for place in range(0, max(len(payload), 1), size):
            goes_on = more or place + size < len(payload)
            one = Transfer(handle, number, number.to_bytes(4, "big"), 0, False, goes_on)
            if not self.say(one, channel, payload[place : place + size]):
                return False
        return True


def request(application: dict[str, Any], body: object, *, reply_to: object = "here", message_id: object = 1) -> bytes:
    """A request to a token or management node, with whatever fields the peer likes."""
    fields: list[object] = [None] * 13
    fields[0], fields[4] = message_id, reply_to
    return b"\x00\x53\x73" + encode(fields) + b"\x00\x53\x74" + encode(application) + b"\x00\x53\x77" + encode(body)


def put_token(name: str, token: str = "", **options: Any) -> bytes:
    return request(
        {"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": name}, token, **options
    )
